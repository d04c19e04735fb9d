"""The Gaussian toy experiment of the paper (Section 4.1, Figure "toy"), and its siblings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg
from scipy.special import expit, xlogy

from projnorm.core.arrays import Arrays
from projnorm.core.config import Config, seed_setting, setting
from projnorm.core.records import Record, RunContext, recorded
from projnorm_theory import LinearPair, RowSpace, generalised_bound, min_norm_solution, proposition_bound, sharp_ends
from projnorm_theory.sign_labels import OUTPUTS
from simulations.designs import FloatArray
from simulations.toy_designs import DESIGNS, ToyDesign

MEANINGS = {
    "sigma": "the dial: standard deviation of the hidden coordinates; for overlap, its ratio to that of the seen ones",
    "test_error": "share of wrong signs on the shifted set, (trial, sigma)",
    "projnorm_linear": "||theta - P~ theta||, in units of theta, (trial, sigma)",
    "confidence": "mean of the larger softmax probability: sigmoid(2 |output|) of one output, or sigmoid(|difference|) "
    "of two, (trial, sigma)",
    "entropy": "mean entropy of the two softmax probabilities, in nats, (trial, sigma)",
    "mean_margin": "mean of |output|, or of |difference| of two outputs, (trial, sigma)",
    "confident_share": "share of shifted examples with confidence above 0.9, (trial, sigma)",
    "squared_loss": "TestLoss: mean squared error on the labels, +-1 or one-hot, summed over outputs, (trial, sigma)",
    "theta_norm": "||theta||, (trial,)",
    "rho": "measured ||P~ theta*|| / ||P theta*||, (interval trial, sigma)",
    "paper": "ends of the paper's interval for TestLoss, (interval trial, sigma, 2)",
    "generalised": "ends of the generalised interval at k = 0 with the measured rho, (interval trial, sigma, 2)",
    "sharp": "ends of the sharp one; nan where no linear ground truth exists, (interval trial, sigma, 2)",
}
INTERVALS = ("paper", "generalised", "sharp")
_LARGEST_SIGMA = 1e6


@dataclass(frozen=True)
class ToyConfig(Config):
    """Sizes and randomness of the toy experiment; the defaults are the paper's, with the design "gaussian".

    Examples:
        >>> import projnorm as pn
        >>> config = pn.ToyConfig(n=20, m=20, sigmas=(0.0, 2.0))
        >>> config.design, config.d1, config.n
        ('gaussian', 1000, 20)

    >>> ToyConfig().n, ToyConfig("spiked", n=100).design
    (500, 'spiked')
    """

    design: str = setting("gaussian", "Design of the two covariances; gaussian is the paper's.", choices=tuple(DESIGNS))
    d1: int = setting(1000, "Number of coordinates that both sets see.", least=1)
    d2: int = setting(500, "Number of coordinates that are zero in training.", least=1)
    n: int = setting(500, "Number of training examples.", least=1)
    m: int = setting(500, "Number of shifted examples.", least=1)
    outputs: str = setting(
        "sign", "Regression on labels +-1 with one output, or on one-hot labels with two.", choices=OUTPUTS
    )
    sigmas: tuple[float, ...] = setting(
        tuple(np.linspace(0.0, 5.0, 11).tolist()),
        "Standard deviations of the coordinates that are zero in training.",
        least=0.0,
        most=_LARGEST_SIGMA,
        nonempty=True,
    )
    trials: int = setting(20, "Number of independent repetitions.", least=1)
    interval_trials: int = setting(5, "Number of trials that also compute the three intervals.", least=0)
    seed: int = seed_setting()


def run_toy(config: ToyConfig | None = None, context: RunContext | None = None) -> Record:
    """The record of the experiment, computed trial by trial where it is missing; a trial depends on the seed alone.

    Args:
        config: Design, sizes and seed. Default: the paper's.
        context: Folder of the records and the processes; by default it runs in this process and leaves no files.

    Examples:
        >>> import projnorm as pn
        >>> record = pn.run_toy(pn.ToyConfig(d1=40, d2=20, n=20, m=20, sigmas=(0.0, 2.0), trials=2, interval_trials=0))
        >>> record.arrays["projnorm_linear"].round(1).tolist()
        [[0.7, 0.8], [0.5, 0.8]]

    >>> config = ToyConfig(d1=40, d2=20, n=20, m=20, sigmas=(0.0, 5.0), trials=2, interval_trials=0)
    >>> record = run_toy(config)
    >>> record.arrays["projnorm_linear"].mean(axis=0).round(3).tolist()  # it rises with the shift
    [0.614, 0.866]
    >>> record.arrays["confidence"].mean(axis=0).round(3).tolist()  # it does not
    [0.778, 0.778]
    """
    config = config or ToyConfig()
    return recorded(
        "toy",
        config,
        context,
        items=range(config.trials),
        work=partial(toy_trial, config),
        assemble=partial(_assemble, config),
        meanings=MEANINGS,
    )


def toy_trial(config: ToyConfig, trial: int) -> Arrays:
    """One trial: one draw, every sigma."""
    design, sigma = DESIGNS[config.design], np.array(config.sigmas)
    rng = np.random.default_rng(np.random.SeedSequence(config.seed, spawn_key=(trial,)))
    draw = ToyDraw.from_design(design, config, rng)
    a, b = design.weights(sigma)
    outputs, labels = draw.outputs(a), draw.labels(a, b)
    responses = as_responses(labels, config.outputs)
    # The class is the sign of the margin; the softmax of one output z is that of (z, -z).
    margin = outputs if config.outputs == "sign" else outputs[..., 0] - outputs[..., 1]
    confidence = expit(2 * np.abs(margin) if config.outputs == "sign" else np.abs(margin))
    squared_errors = (outputs - responses) ** 2
    arrays: dict[str, FloatArray] = {
        "test_error": np.mean(np.sign(margin) != labels, axis=1),
        "projnorm_linear": projnorm_sweep(draw.theta, draw.seen, draw.hidden, a, b),
        "confidence": np.mean(confidence, axis=1),
        "entropy": np.mean(-xlogy(confidence, confidence) - xlogy(1 - confidence, 1 - confidence), axis=1),
        "mean_margin": np.mean(np.abs(margin), axis=1),
        "confident_share": np.mean(confidence > 0.9, axis=1),
        "squared_loss": np.mean(squared_errors if config.outputs == "sign" else squared_errors.sum(axis=-1), axis=1),
        "theta_norm": np.array(np.linalg.norm(draw.theta)),
    }
    if trial < config.interval_trials:
        train = RowSpace.from_matrix(np.hstack([draw.X, np.zeros((config.n, config.d2))]))
        pairs = (
            LinearPair.from_row_spaces(train, RowSpace.from_matrix(np.hstack([a[i] * draw.seen, b[i] * draw.hidden])))
            for i in range(sigma.size)
        )
        rows = [_intervals(pair, draw.Y, responses[i], design.k) for i, pair in enumerate(pairs)]
        arrays |= {name: np.array([row[name] for row in rows]) for name in ("rho", *INTERVALS)}
    return arrays


@dataclass(frozen=True, slots=True, eq=False)
class ToyDraw:
    """The randomness of one trial, shared by all sigmas.

    Attributes:
        X: Training inputs on the seen block, shape ``(n, d1)``; on the hidden block they are zero.
        Y: Training responses: labels +-1, shape ``(n,)``, or one-hot labels, shape ``(n, 2)``.
        theta: Minimum-norm solution on the seen block, shape ``(d1,)`` or ``(d1, 2)``; on the hidden block it is zero.
        seen: Shifted inputs on the seen block before the dial, shape ``(m, d1)``.
        hidden: Shifted inputs on the hidden block before the dial, shape ``(m, d2)``.
        truth: Coefficients of the label on the seen block.
        hidden_truth: Coefficient of the label on the last hidden coordinate.
        flips: +-1 per shifted example, -1 where its label is flipped.
    """

    X: FloatArray
    Y: FloatArray
    theta: FloatArray
    seen: FloatArray
    hidden: FloatArray
    truth: FloatArray
    hidden_truth: float
    flips: FloatArray

    @classmethod
    def from_design(cls, design: ToyDesign, config: ToyConfig, rng: np.random.Generator) -> ToyDraw:
        """Draw a trial."""
        scale, hidden_scale = design.scale(config.d1), design.hidden_scale(config.d2)
        truth = design.truth(scale)
        X = rng.standard_normal((config.n, config.d1)) * scale
        seen = rng.standard_normal((config.m, config.d1)) * scale
        hidden = rng.standard_normal((config.m, config.d2)) * hidden_scale
        Y = as_responses(np.sign(X @ truth) * _flips(rng, config.n, design.flipped), config.outputs)
        flips = _flips(rng, config.m, design.flipped)
        theta = min_norm_solution(X, Y).theta
        return cls(X, Y, theta, seen, hidden, truth, float(1 / hidden_scale[-1]), flips)

    def outputs(self, a: FloatArray) -> FloatArray:
        """The model's outputs, shape ``(sigmas, m)``, or ``(sigmas, m, 2)`` where there are two.

        The hidden block meets zero weights and leaves no trace.
        """
        return np.multiply.outer(a, self.seen @ self.theta)

    def labels(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """The true labels +-1, shape ``(sigmas, m)``."""
        score = np.outer(a, self.seen @ self.truth) + np.outer(b, self.hidden[:, -1] * self.hidden_truth)
        return np.sign(score) * self.flips


def as_responses(labels: FloatArray, outputs: str) -> FloatArray:
    """What a regression is fitted to: the labels +-1 themselves, or one-hot labels along a last axis."""
    return labels if outputs == "sign" else np.stack([labels > 0.0, labels < 0.0], axis=-1).astype(np.float64)


def projnorm_sweep(theta: FloatArray, seen: FloatArray, hidden: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    r"""ProjNormLinear for every pair of weights (a, b) at the price of one generalised eigendecomposition.

    With :math:`G_1, G_2` the Gram matrices of the blocks and :math:`Q^\top (G_1 + G_2) Q = I`,
    :math:`Q^\top G_1 Q = \mathrm{diag}(w)`, the Gram matrix of the shifted rows is
    :math:`Q^{-\top}(a^2 w + b^2 (1 - w)) Q^{-1}`, and the square of ProjNormLinear is

    .. math:: \|\theta\|^2 - \sum_i \frac{a^2 (Q^\top X_1\theta)_i^2}{a^2 w_i + b^2 (1 - w_i)} .

    Args:
        theta: Weights on the seen block, shape ``(d1,)`` or ``(d1, c)``; zero on the hidden one.
        seen: Seen block of the shifted rows, shape ``(m, d1)``.
        hidden: Hidden block, shape ``(m, d2)``.
        a: Weights of the seen block, shape ``(sigmas,)``.
        b: Weights of the hidden block.
    """
    m, d1 = seen.shape
    if m > d1 + hidden.shape[1]:  # the pencil is singular: every direction with a weight is spanned
        return np.where(a > 0.0, 0.0, np.linalg.norm(theta))
    G1 = seen @ seen.T
    w, Q = linalg.eigh(G1, G1 + hidden @ hidden.T, check_finite=False)
    scores = np.sum((Q.T @ (seen @ theta)).reshape(m, -1) ** 2, axis=1)
    # With b = 0 and m > d1 some directions have no weight at all; theta has no part in them.
    seen_part = np.where(np.arange(m) < m - d1, 0.0, w)
    denominators = np.outer(a**2, seen_part) + np.outer(b**2, 1 - seen_part)
    with np.errstate(divide="ignore", invalid="ignore"):
        explained = np.where(denominators > 0.0, np.outer(a**2, scores) / denominators, 0.0)
    return np.sqrt(np.maximum(np.vdot(theta, theta) - explained.sum(axis=1), 0.0))


def _intervals(pair: LinearPair, Y: FloatArray, labels: FloatArray, k: int) -> dict[str, Any]:
    """Measured rho and the ends of the three intervals."""
    fit = pair.fit(Y)
    rho = float(np.linalg.norm(pair.ood_coordinates(labels))) / fit.norm
    top = min(k, pair.train_rank - 1, pair.ood_rank - 1)
    paper, generalised = proposition_bound(pair, Y, k=top), generalised_bound(pair, Y, rho=rho)
    return {
        "rho": rho,
        "paper": (paper.lower, paper.upper),
        "generalised": (generalised.lower, generalised.upper),
        "sharp": sharp_ends(pair, Y, rho=rho),
    }


def _assemble(config: ToyConfig, results: Sequence[Arrays]) -> Arrays:
    arrays: dict[str, FloatArray] = {"sigma": np.array(config.sigmas)}
    for name in MEANINGS:
        if name not in arrays:
            rows = [result[name] for result in results if name in result]
            arrays[name] = np.array(rows) if rows else np.zeros((0, len(config.sigmas)))
    return arrays


def _flips(rng: np.random.Generator, size: int, share: float) -> FloatArray:
    return np.where(rng.random(size) < share, -1.0, 1.0)
