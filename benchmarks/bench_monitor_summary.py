"""False alarms, delays and the real order of time as numbers, from what `bench_monitor.py` measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench_monitor_sets import LAST_QUIET_WEEK, RISEN_WEEKS, ROWS, STABLE_WEEKS, Rated
from benchmarks.bench_monitor_years import ALARMS, CORRECTED, ESTIMATES, Watched
from projnorm.core.arrays import Arrays
from projnorm.estimators.softmax import Floats

NANNYML = "NannyML CBPE"
FALSE_ROOMS, DELAY_ROOMS, ORDER_ROOMS = (0.0, 0.02, 0.05), (0.01, 0.02, 0.03), (0.02, 0.05)
# Batches over which the true error is averaged to see whether it really is above the threshold.
_RUNNING = 10
_DIGITS = 4
# Sets whose batches are in the record one by one, for the figure.
_DRAWN = ("loans", "elec2")


def described(data: Rated, arrays: Arrays, theirs: dict[str, Any]) -> dict[str, Any]:
    """Rows and errors of a set."""
    return {
        "reference_rows": data.n_reference,
        "reference_error": float(data.wrong[: data.n_reference].mean()),
        "later_rows": len(data.later),
        "shifted_part": data.shifted_name,
        "shifted_error": float(data.wrong[data.shifted].mean()),
        "shifted_share": float(arrays["shifted_share"].mean()),
        "nannyml_cpu_seconds_a_year": theirs["seconds"],
    }


def _years(arrays: Arrays) -> list[tuple[float, Watched]]:
    """The true error and the batches of every year."""
    return [(float(error), Watched.from_arrays(arrays, number)) for number, error in enumerate(arrays["error"])]


def false_alarms(name: str, kind: str, arrays: Arrays, theirs: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Shares of the stable years with an alarm, and how far estimates are from the truth."""
    years = _years(arrays)
    row: dict[str, Any] = {
        "set": name,
        "source": kind,
        "n_source": int(arrays["n_source"]),
        "years": len(years),
        "estimate_minus_error": _missed([watched.stable.estimates - error for error, watched in years]),
        "source_error_minus_error": {
            "mean": float((arrays["source_error"] - arrays["error"]).mean()),
            "deviation": float((arrays["source_error"] - arrays["error"]).std()),
        },
        "corrected_minus_error": _missed([watched.stable.corrected - error for error, watched in years]),
        "share_of_batches_with_no_shift_refuted": float(arrays["refuted"][:, :STABLE_WEEKS].mean()),
        "alarms": _by_threshold(FALSE_ROOMS, [(error, watched.stable) for error, watched in years], _false),
    }
    if theirs is not None:
        alerts = np.array([_falls(alert)[:STABLE_WEEKS] for alert in theirs])
        row[NANNYML] = {**_share(alerts.any(axis=1).tolist()), "share_of_weeks": float(alerts.mean())}
    return row


def _missed(differences: list[Floats]) -> dict[str, float]:
    """What estimates of years miss the true error by: on average, from year to year, and from week to week."""
    by_year = np.array([year.mean() for year in differences])
    return {
        "mean": float(by_year.mean()),
        "standard_error": float(by_year.std() / np.sqrt(len(by_year))),
        "deviation_between_years": float(by_year.std()),
        "deviation_within_a_year": float(np.mean([year.std() for year in differences])),
    }


def _by_threshold(
    rooms: Sequence[float], years: list[tuple[float, Watched]], summarised: Callable[[list[int]], dict[str, Any]]
) -> list[dict[str, Any]]:
    """What becomes of the weeks of each alarm, for thresholds so far above the true error of the stable weeks."""
    weeks = {
        alarm: np.array([watched.weeks_of_alarm(alarm, [error + room for room in rooms]) for error, watched in years])
        for alarm in ALARMS
    }
    return [
        {
            "threshold_above_error": room,
            **{alarm: summarised(first_weeks[:, number].tolist()) for alarm, first_weeks in weeks.items()},
        }
        for number, room in enumerate(rooms)
    ]


def _false(weeks: list[int]) -> dict[str, Any]:
    """Share of the years with an alarm."""
    return _share([week > 0 for week in weeks])


def _falls(alerts: dict[str, Any]) -> NDArray[Any]:
    """Whether each chunk has an alert of falling accuracy."""
    return np.array(alerts["accuracy"]) < alerts["thresholds"][0]


def delays(name: str, arrays: Arrays, theirs: list[dict[str, Any]]) -> dict[str, Any]:
    """How soon a rise of the error is seen, and how often it was seen before."""
    years = _years(arrays)
    risen = arrays["estimates"][:, STABLE_WEEKS:].mean(axis=1)
    truth = arrays["wrong"][:, STABLE_WEEKS:].mean(axis=1) / ROWS
    stable = arrays["estimates"][:, :STABLE_WEEKS].mean(axis=1)
    alerts = np.array([_falls(alert) for alert in theirs])
    after = alerts[:, STABLE_WEEKS:]
    first = np.where(after.any(axis=1), after.argmax(axis=1) + 1, RISEN_WEEKS + 1)
    before = alerts[:, :LAST_QUIET_WEEK].any(axis=1)
    return {
        "set": name,
        "years": len(years),
        "true_rise": float((truth - arrays["error"]).mean()),
        "estimated_rise": float((risen - stable).mean()),
        "alarms": _by_threshold(DELAY_ROOMS, [(error, watched.risen) for error, watched in years], _delay),
        NANNYML: {**_quantiles(first), "false": _share(before.tolist())},
    }


def _delay(weeks: list[int]) -> dict[str, Any]:
    """Delays from the weeks of the alarms, 0 for none."""
    delays_in_weeks = np.array(weeks)
    is_false = (delays_in_weeks > 0) & (delays_in_weeks <= LAST_QUIET_WEEK)
    delays = np.where(delays_in_weeks > 0, delays_in_weeks - LAST_QUIET_WEEK, RISEN_WEEKS + 1)[~is_false]
    return {**_quantiles(delays), "false": _share(is_false.tolist())}


def _quantiles(delays: NDArray[Any]) -> dict[str, Any]:
    """Median and 90th percentile, None where that many weeks were not enough; and the share of years without alarm."""
    never = delays > RISEN_WEEKS
    median, most = (float(np.quantile(delays, q, method="higher")) for q in (0.5, 0.9))
    return {
        "median": median if median <= RISEN_WEEKS else None,
        "90th": most if most <= RISEN_WEEKS else None,
        "never": float(never.mean()),
    }


def order(name: str, arrays: Arrays, theirs: dict[str, Any]) -> dict[str, Any]:
    """When alarms come in the real order of time, beside when the true error is above the threshold."""
    watched, source_error = Watched.from_arrays(arrays, 0), float(arrays["source_error"][0])
    truth = watched.wrong / ROWS
    running = np.convolve(truth, np.full(_RUNNING, 1.0 / _RUNNING), mode="valid")
    falls = _falls(theirs)
    row: dict[str, Any] = {
        "batches": len(truth),
        "n_source": watched.n_source,
        "source_error": source_error,
        "mean_true_error": float(truth.mean()),
        "mean_estimate": float(watched.estimates.mean()),
        "mean_absolute_error": {
            ESTIMATES: float(np.abs(watched.estimates - truth).mean()),
            CORRECTED: float(np.abs(watched.corrected - truth).mean()),
            NANNYML: float(np.abs(1.0 - np.array(theirs["accuracy"]) - truth).mean()),
        },
        NANNYML: {"first": _first(falls), "alerts": int(falls.sum()), "threshold": 1.0 - theirs["thresholds"][0]},
        "alarms": [],
    }
    for room in ORDER_ROOMS:
        threshold = source_error + room
        above = _first(running > threshold)
        row["alarms"].append(
            {
                "threshold": threshold,
                "true_error_above": _first(truth > threshold),
                f"mean_of_{_RUNNING}_above": above and above + _RUNNING - 1,
                "share_above": float((truth > threshold).mean()),
                **{alarm: watched.evidence(alarm, threshold)[1] for alarm in ALARMS},
            }
        )
    if name in _DRAWN:
        row["by_batch"] = _by_batch(watched, theirs, source_error + ORDER_ROOMS[0])
    return row


def _by_batch(watched: Watched, theirs: dict[str, Any], threshold: float) -> dict[str, list[float]]:
    """What the figure draws."""
    series: dict[str, Floats] = {
        "true_error": watched.wrong / ROWS,
        "estimate": watched.estimates,
        "corrected": watched.corrected,
        "nannyml": 1.0 - np.array(theirs["accuracy"]),
        **{f"evidence, {alarm}": watched.evidence(alarm, threshold)[0] / np.log(10.0) for alarm in ALARMS},
    }
    return {
        key: np.round(values, 2 if key.startswith("evidence") else _DIGITS).tolist() for key, values in series.items()
    }


def _first(flags: NDArray[Any]) -> int:
    """Number of the first that is set, from 1; 0 for none."""
    return int(flags.argmax()) + 1 if flags.any() else 0


def _share(values: Sequence[bool]) -> dict[str, float]:
    """A share with its standard error."""
    share = float(np.mean(values))
    return {"share": share, "standard_error": math.sqrt(share * (1.0 - share) / len(values))}
