"""Verification of the intervals on many drawn designs: where each must hold it is checked, elsewhere reported.

Every instance depends on the seed, its size class and its number alone, so any of them can be drawn again. All
intervals come from the public functions of `projnorm_theory`; the loss they are compared with from its definition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from projnorm.core.arrays import Arrays, from_npz, to_npz
from projnorm.core.atomic import write_atomically
from projnorm.core.config import Config, seed_setting, setting
from projnorm.core.errors import InputError
from projnorm.core.files import read_file, reason
from projnorm.core.records import Record, RunContext, recorded
from projnorm_theory import (
    LinearPair,
    LossInterval,
    generalised_bound,
    joint_interval,
    joint_ratio,
    min_norm_solution,
    ood_loss,
    proposition_bound,
    sharp_ends,
    sharp_interval,
    spherical_loss,
)
from projnorm_theory.bounds import holds
from simulations.designs import Design, FloatArray, flat_tail_design, spectral_design

Family = Literal["exact", "phi", "rho", "tilt", "flat"]
FAMILIES: tuple[Family, ...] = ("exact", "phi", "rho", "tilt", "flat")
# One period of the families: half of all instances satisfy every assumption.
_CYCLE: tuple[Family, ...] = ("exact", "phi", "exact", "rho", "exact", "tilt", "exact", "flat")
INTERVALS = ("paper", "generalised_k", "generalised_0", "sharp", "joint", "generalised_0_rho_1", "sharp_rho_1")
# Where the theory says that an interval contains the loss, given the instance's own rho or eta.
MUST_HOLD: dict[str, tuple[Family, ...]] = {
    "paper": ("exact",),
    "generalised_k": ("exact", "phi", "rho", "flat"),
    "generalised_0": FAMILIES,
    "sharp": FAMILIES,
    "joint": FAMILIES,
}
_SAVED_AT_MOST = 10
_SAVED_ARRAYS = ("X", "X_ood", "theta_star", "k", "family", "dial")

MEANINGS = {
    "family": "index into exact, phi, rho, tilt, flat, (instance,)",
    "dial": "how far the one assumption is broken: pi/2 - tail angle, rho - 1, span tilt in radians, (instance,)",
    "loss": "TestLoss from its definition, (instance,)",
    "projnorm_linear": "ProjNormLinear, (instance,)",
    "deficient": "1 where d < n + m or a matrix is rank deficient, (instance,)",
    "probability": "probability of a smaller loss under the law for isotropic truths; nan if it is 0, (instance,)",
    **{
        name: f"ends of the interval {name} for TestLoss; nan where rho = 1 is infeasible, (instance, 2)"
        for name in INTERVALS
    },
}


@dataclass(frozen=True)
class BoundConfig(Config):
    """Number and size of the designs on which the intervals are verified."""

    instances: int = setting(
        100_000, "Number of instances, which are designs with up to 20 rows a set and 80 features.", least=1
    )
    large: int = setting(200, "Number of designs with 200 rows a set and 1000 features.", least=0)
    seed: int = seed_setting()


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """One design and what is known of it.

    Attributes:
        design: The design; its `k` is the true shared dimension.
        family: Which assumption is broken, if any.
        dial: How far the assumption is broken.
    """

    design: Design
    family: Family
    dial: float


def run_bound_check(config: BoundConfig | None = None, context: RunContext | None = None) -> Record:
    """The record of the verification, computed batch by batch where it is missing.

    The first designs that break an interval which must hold are saved beside the record, for `load_instance`.

    Args:
        config: Number and size of the designs. Default: 100,000 small ones and 200 large ones.
        context: Folder of the records and the processes; by default it runs in this process and leaves no files.

    >>> record = run_bound_check(BoundConfig(instances=8, large=0))
    >>> violations(record)  # by design, the intervals that miss a loss they must hold
    {}
    """
    config = config or BoundConfig()
    total = config.instances + config.large
    batches = [range(start, min(start + 500, config.instances)) for start in range(0, config.instances, 500)]
    batches += [range(start, min(start + 4, total)) for start in range(config.instances, total, 4)]
    work = partial(check_batch, config)
    record = recorded("bound", config, context, items=batches, work=work, meanings=MEANINGS)
    if context is not None:
        save_violations(record, context.root / record.id)
    return record


def check_batch(config: BoundConfig, indices: Sequence[int]) -> Arrays:
    """Measure the instances with these indices."""
    rows = [measure(draw_instance(config, index)) for index in indices]
    return {name: np.array([row[name] for row in rows]) for name in MEANINGS}


def draw_instance(config: BoundConfig, index: int) -> Instance:
    """Instance number `index`; the large ones are numbered after the small."""
    large = index >= config.instances
    number = index - config.instances if large else index
    rng = np.random.default_rng(np.random.SeedSequence(config.seed, spawn_key=(int(large), number)))
    family = _CYCLE[number % len(_CYCLE)]
    if family == "flat":
        dial = float(rng.uniform(0.05, math.pi / 2 - 0.05))
        tail, k, dim = (150, 50, 1000) if large else (int(rng.integers(1, 11)), int(rng.integers(1, 11)), None)
        design = flat_tail_design(
            rng, tail=tail, k=k, phi=math.pi / 2 - dial, root="tan" if rng.random() < 0.5 else "cot", dim=dim
        )
        return Instance(design, family, dial)

    sizes = _sizes(rng, large=large)
    dials = {"phi": rng.uniform(0.01, math.pi / 2 - 0.05), "rho": rng.uniform(0.0, 3.0), "tilt": rng.uniform(1e-3, 0.5)}
    dial = float(dials.get(family, 0.0))
    design = spectral_design(
        rng,
        train_singular_values=_spectrum(rng, sizes["k"], sizes["rank"]),
        ood_singular_values=_spectrum(rng, sizes["k"], sizes["rank_ood"]),
        dim=max(sizes["dim"], sizes["rank"] + sizes["rank_ood"]) if family == "tilt" else sizes["dim"],
        k=sizes["k"],
        n_train=sizes["n"],
        n_ood=sizes["m"],
        tail_angle=math.pi / 2 - (dial if family == "phi" else 0.0),
        span_tilt=dial if family == "tilt" else 0.0,
        rho=1.0 + (dial if family == "rho" else 0.0),
    )
    return Instance(design, family, dial)


def measure(instance: Instance) -> dict[str, Any]:
    """The loss and every interval of one instance."""
    design = instance.design
    X, X_ood, Y, k = design.X, design.X_ood, design.Y, design.k
    pair = LinearPair.from_features(X, X_ood)
    theta = min_norm_solution(X, Y).theta
    rho = float(np.linalg.norm(pair.ood_coordinates(design.Y_ood))) / float(np.linalg.norm(theta))
    loss = ood_loss(theta, X_ood, design.Y_ood)
    law = spherical_loss(pair, Y)
    paper = proposition_bound(pair, Y, k=k)
    return {
        "family": FAMILIES.index(instance.family),
        "dial": instance.dial,
        "loss": loss,
        "projnorm_linear": paper.projnorm_linear,
        "deficient": int(X.shape[1] < len(X) + len(X_ood) or pair.train_rank < len(X) or pair.ood_rank < len(X_ood)),
        "paper": _ends(paper),
        "generalised_k": _ends(generalised_bound(pair, Y, k=k, rho=rho)),
        "generalised_0": _ends(generalised_bound(pair, Y, rho=rho)),
        "sharp": _ends(sharp_interval(pair, Y, rho=rho)),
        "joint": _ends(joint_interval(pair, Y, eta=joint_ratio(pair, Y, Y_ood=design.Y_ood))),
        "generalised_0_rho_1": _ends(generalised_bound(pair, Y)),
        "sharp_rho_1": sharp_ends(pair, Y),
        "probability": math.nan if law.law is None else law.cdf(loss),
    }


def violations(record: Record) -> dict[int, tuple[str, ...]]:
    """Instances on which an interval that must hold does not, with the intervals."""
    loss, family = record.arrays["loss"], record.arrays["family"]
    broken: dict[int, list[str]] = {}
    for name, families in MUST_HOLD.items():
        required = np.isin(family, [FAMILIES.index(required_family) for required_family in families])
        for index in np.flatnonzero(required & ~holds(loss, record.arrays[name])):
            broken.setdefault(int(index), []).append(name)
    return {index: tuple(names) for index, names in sorted(broken.items())}


def save_violations(record: Record, folder: Path) -> None:
    """Save the first designs that break an interval which must hold, each as ``violation-<index>.npz``."""
    for index in list(violations(record))[:_SAVED_AT_MOST]:
        save_instance(draw_instance(BoundConfig.from_json(record.config), index), folder / f"violation-{index}.npz")


def save_instance(instance: Instance, path: Path) -> None:
    """Write an instance to a file that `load_instance` and ``projnorm bound --replay`` read."""
    design = instance.design
    arrays = {
        "X": design.X,
        "X_ood": design.X_ood,
        "theta_star": design.theta_star,
        "k": np.array(design.k),
        "family": np.array(FAMILIES.index(instance.family)),
        "dial": np.array(instance.dial),
    }
    write_atomically(path, to_npz(arrays))


def load_instance(path: Path) -> Instance:
    """Read an instance that `save_instance` wrote."""
    data = read_file(path)
    try:
        arrays = from_npz(data)
    except InputError as error:
        raise InputError(f"{path} is not a saved design: {error}.") from error
    if not arrays.keys() >= set(_SAVED_ARRAYS):
        needed = f"{', '.join(_SAVED_ARRAYS[:-1])} and {_SAVED_ARRAYS[-1]}"
        raise InputError(f"{path} is not a saved design: it needs the arrays {needed}.")
    try:
        X, X_ood, theta_star = (
            arrays[name].astype(np.float64, casting="same_kind") for name in ("X", "X_ood", "theta_star")
        )
        k, number, dial = int(arrays["k"]), int(arrays["family"]), float(arrays["dial"])
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is not a saved design: {reason(error)}.") from error
    if not 0 <= number < len(FAMILIES):
        raise InputError(
            f"{path} is not a saved design: `family` must be between 0 and {len(FAMILIES) - 1}; got {number}."
        )
    if X.ndim != 2 or X_ood.ndim != 2 or theta_star.ndim != 2 or not X.shape[1] == X_ood.shape[1] == len(theta_star):
        raise InputError(f"{path} is not a saved design: its arrays do not fit together.")
    if not (X @ theta_star).any():
        raise InputError(f"{path} is not a saved design: its training responses are zero.")
    return Instance(Design(X, X_ood, theta_star, k), FAMILIES[number], dial)


def _sizes(rng: np.random.Generator, *, large: bool) -> dict[str, int]:
    """Sizes of a design; of the small ones about a third have d < n + m, about a quarter are rank deficient."""
    if large:
        return {"n": 200, "m": 200, "rank": 200, "rank_ood": 200, "k": int(rng.integers(1, 150)), "dim": 1000}
    n, m = (int(size) for size in rng.integers(2, 21, 2))
    rank, rank_ood = n, m
    if rng.random() < 0.25:
        rank, rank_ood = int(rng.integers(2, n + 1)), int(rng.integers(2, m + 1))
    k = int(rng.integers(1, min(rank, rank_ood)))
    needed = rank + rank_ood - k
    dim = needed + (0 if rng.random() < 0.3 else int(rng.integers(0, 81 - needed)))
    return {"n": n, "m": m, "rank": rank, "rank_ood": rank_ood, "k": k, "dim": dim}


def _spectrum(rng: np.random.Generator, k: int, rank: int) -> FloatArray:
    """`k` strong directions over a tail of condition up to 1e6."""
    top = 10 * np.sort(1 + rng.random(k))[::-1]
    tail = 5 * 10.0 ** -np.sort(rng.uniform(0, rng.uniform(0, 6), rank - k))
    return np.concatenate([top, tail])


def _ends(interval: LossInterval) -> tuple[float, float]:
    return interval.lower, interval.upper
