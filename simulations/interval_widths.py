"""How wide and how right each interval is, where what it assumes holds and where it does not.

Gaussian inputs with power-law spectra, three kinds of shift and two kinds of ground truth. Every interval is computed
with the ratio that it asks for measured on the ground truth, and with the ratio a user without labels might take.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.special import smirnov

from projnorm.core.arrays import Arrays
from projnorm.core.config import Config, seed_setting, setting
from projnorm.core.errors import InputError
from projnorm.core.records import Record, RunContext, recorded
from projnorm.core.tasks import stacked
from projnorm_theory import (
    LinearPair,
    joint_interval,
    joint_ratio,
    min_norm_solution,
    ood_loss,
    scaled_loss,
    sharp_ends,
    sharp_interval,
    spherical_loss,
)
from projnorm_theory.bounds import holds
from simulations.designs import FloatArray, haar
from simulations.two_ratios import two_ratio_interval

SHIFTS = ("none", "rotated", "flattened")
TRUTHS = ("isotropic", "aligned")
INTERVALS = ("sharp", "joint", "both", "sharp_guess", "joint_guess", "spherical", "loo", "power")
_ALIGNMENT = 1.0  # coordinates of an aligned truth fall like index**-1 in the training eigenbasis

MEANINGS = {
    "decay": "exponent of the training eigenvalues, (setting,)",
    "shift": "index into none, rotated, flattened, (setting,)",
    "truth": "index into isotropic, aligned, (setting,)",
    "loss": "TestLoss from its definition, (setting, draw)",
    "rho": "||P~ theta*|| / ||P theta*||, (setting, draw)",
    "eta": "||P_Z theta*|| / ||P theta*||, (setting, draw)",
    "probability": "probability of a smaller loss under the law for isotropic truths, (setting, draw)",
    "sharp": "ends of the sharp interval with the true rho, (setting, draw, 2)",
    "joint": "ends of the joint interval with the true eta, (setting, draw, 2)",
    "both": "bounds on the loss with the true rho and eta together, by Lagrangian duality, (setting, draw, 2)",
    "sharp_guess": "ends of the sharp interval with rho = 1, (setting, draw, 2)",
    "joint_guess": "ends of the joint interval with eta^2 = 1 + m/n, that of an isotropic truth, (setting, draw, 2)",
    "spherical": "prediction interval for isotropic truths, (setting, draw, 2)",
    "loo": "prediction interval with the leave-one-out scale, (setting, draw, 2)",
    "power": "prediction interval of the power prior, (setting, draw, 2)",
}


@dataclass(frozen=True)
class IntervalWidthsConfig(Config):
    """Sizes and spectra of the designs on which the intervals are compared."""

    n: int = setting(40, "Number of training examples.", least=4)
    m: int = setting(40, "Number of shifted examples.", least=2)
    dim: int = setting(200, "Number of features.", least=1)
    decays: tuple[float, ...] = setting(
        (1.0, 2.0, 3.0), "Exponents of the training eigenvalues.", least=0.0, nonempty=True, distinct=True
    )
    draws: int = setting(50, "Number of designs drawn for each exponent, shift and truth.", least=1)
    level: float = setting(0.9, "Probability that the prediction intervals state.", above=0.0, below=1.0)
    seed: int = seed_setting()

    def check(self) -> None:
        """Refuse sizes at which the training rows leave nothing undetermined."""
        if self.dim <= self.n:
            raise InputError(f"`dim` must be larger than `n`; got {self.dim} and {self.n}.")


def run_interval_widths(config: IntervalWidthsConfig | None = None, context: RunContext | None = None) -> Record:
    """The record of the comparison, computed setting by setting where it is missing.

    Args:
        config: Sizes and spectra of the designs.
        context: Folder of the records and the processes; by default it runs in this process and leaves no files.
    """
    config = config or IntervalWidthsConfig()
    settings = list(product(config.decays, SHIFTS, TRUTHS))
    work = partial(compare_setting, config)
    return recorded(
        "intervals", config, context, items=list(enumerate(settings)), work=work, meanings=MEANINGS, assemble=stacked
    )


def compare_setting(config: IntervalWidthsConfig, item: tuple[int, tuple[float, str, str]]) -> Arrays:
    """Every interval on the designs of one setting."""
    number, (decay, shift, truth) = item
    rows = []
    for draw in range(config.draws):
        rng = np.random.default_rng(np.random.SeedSequence(config.seed, spawn_key=(number, draw)))
        rows.append(_compare(config, draw_power_law(rng, config, decay, shift, truth)))
    names = {"decay": decay, "shift": SHIFTS.index(shift), "truth": TRUTHS.index(truth)}
    return {
        **{name: np.array(value) for name, value in names.items()},
        **{name: np.array([row[name] for row in rows]) for name in rows[0]},
    }


class PowerLawDesign(NamedTuple):
    """A drawn design.

    Attributes:
        X: Training inputs, shape ``(n, d)``.
        X_ood: Shifted inputs, shape ``(m, d)``.
        theta_star: Ground truth, shape ``(d,)``.
    """

    X: FloatArray
    X_ood: FloatArray
    theta_star: FloatArray


def draw_power_law(
    rng: np.random.Generator, config: IntervalWidthsConfig, decay: float, shift: str, truth: str
) -> PowerLawDesign:
    """A design of Gaussian rows whose eigenvalues fall like a power law.

    The length of an isotropic truth is Cauchy, to show that its law does not matter.
    """
    index = np.arange(1, config.dim + 1.0)
    X = rng.standard_normal((config.n, config.dim)) * index ** (-decay / 2)
    X_ood = rng.standard_normal((config.m, config.dim)) * index ** (-decay / (4 if shift == "flattened" else 2))
    if shift == "rotated":
        X_ood = X_ood @ haar(rng, config.dim, config.dim)
    theta_star = rng.standard_normal(config.dim) * (rng.standard_cauchy() if truth == "isotropic" else 1.0)
    return PowerLawDesign(X, X_ood, theta_star * (index**-_ALIGNMENT if truth == "aligned" else 1.0))


def width_rows(record: Record) -> list[dict[str, Any]]:
    """One row per kind of truth, kind of shift and interval: how often it holds the loss, and how wide it is.

    "coverage" is the share of losses inside, over all decays; "width" the median of upper over lower end.
    """
    arrays = record.arrays
    rows = []
    for (t, truth), (s, shift) in product(enumerate(TRUTHS), enumerate(SHIFTS)):
        chosen = (arrays["truth"] == t) & (arrays["shift"] == s)
        for name in INTERVALS:
            ends = arrays[name][chosen].reshape(-1, 2)
            rows.append(
                {
                    "truth": truth,
                    "shift": shift,
                    "interval": name,
                    "coverage": float(np.mean(holds(arrays["loss"][chosen].ravel(), ends))),
                    "width": _median_width(ends),
                }
            )
    return rows


def setting_rows(record: Record) -> list[dict[str, Any]]:
    """One row per setting: median widths of the intervals that must hold, and how the law for isotropic truths fares.

    "ks_p_value" is that of a Kolmogorov-Smirnov test of the probabilities of the losses against the uniform law.
    """
    arrays = record.arrays
    return [
        {
            "decay": float(arrays["decay"][i]),
            "shift": SHIFTS[int(arrays["shift"][i])],
            "truth": TRUTHS[int(arrays["truth"][i])],
            **{name: _median_width(arrays[name][i]) for name in ("sharp", "joint", "both")},
            "intersection": _median_width(_intersection(arrays["sharp"][i], arrays["joint"][i])),
            "eta": [float(np.quantile(arrays["eta"][i], p)) for p in (0.1, 0.5, 0.9)],
            "ks_p_value": _uniformity(arrays["probability"][i]),
        }
        for i in range(len(arrays["decay"]))
    ]


def _compare(config: IntervalWidthsConfig, design: PowerLawDesign) -> dict[str, Any]:
    X, X_ood, theta_star = design
    Y, Y_ood = X @ theta_star, X_ood @ theta_star
    pair = LinearPair.from_features(X, X_ood)
    theta = min_norm_solution(X, Y).theta
    loss = ood_loss(theta, X_ood, Y_ood)
    rho = float(np.linalg.norm(pair.ood_coordinates(Y_ood)) / np.linalg.norm(theta))
    eta = joint_ratio(pair, Y, Y_ood=Y_ood)
    spherical = spherical_loss(pair, Y)
    guess = math.sqrt(1 + config.m / config.n)
    predictions = {"spherical": spherical} | {name: scaled_loss(pair, Y, method=name) for name in ("loo", "power")}
    exact = {
        "sharp": sharp_interval(pair, Y, rho=rho),
        "joint": joint_interval(pair, Y, eta=eta),
        "joint_guess": joint_interval(pair, Y, eta=guess),
    }
    return {
        "loss": loss,
        "rho": rho,
        "eta": eta,
        "probability": spherical.cdf(loss),
        **{name: (interval.lower, interval.upper) for name, interval in exact.items()},
        "both": two_ratio_interval(pair, Y, rho=rho, eta=eta),
        "sharp_guess": sharp_ends(pair, Y),
        **{
            name: (ends.lower, ends.upper)
            for name, ends in ((name, law.interval(config.level)) for name, law in predictions.items())
        },
    }


def _uniformity(values: FloatArray) -> float:
    """p-value of the Kolmogorov-Smirnov test against the uniform law: at most twice the exact one-sided one."""
    grid = np.arange(values.size + 1) / values.size
    ordered = np.sort(values)
    distance = max(float(np.max(grid[1:] - ordered)), float(np.max(ordered - grid[:-1])))
    return min(2 * float(smirnov(values.size, distance)), 1.0)


def _intersection(first: FloatArray, second: FloatArray) -> FloatArray:
    return np.stack([np.maximum(first[..., 0], second[..., 0]), np.minimum(first[..., 1], second[..., 1])], axis=-1)


def _median_width(ends: FloatArray) -> float:
    """Median of upper over lower end, infinite where most lower ends are zero; nan ends are left out."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.nanmedian(ends[..., 1] / ends[..., 0]))
