r"""ProjNormLinear on one kernel in several ways: what is done to the features, the ridge, and whose pseudo-labels.

Features are treated through the kernel alone. With the mean :math:`\bar\phi` of the training features, "unit" and
"centred" are

.. math::
   \frac{K(x, x')}{\sqrt{K(x, x)\,K(x', x')}}, \qquad
   \langle\phi(x) - \bar\phi, \phi(x') - \bar\phi\rangle = K(x, x') - \bar K(x) - \bar K(x') + \bar{\bar K}

where :math:`\bar K(x)` is the mean of :math:`K(x, x_i)` over the training samples, and :math:`\bar{\bar K}` its mean.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntk.experiments.analysis import kernel_noise
from projnorm.core.statistics import Floats
from projnorm_theory import LinearPair, projnorm_linear_of_pair

FEATURES = ("raw", "centred", "unit", "unit-centred")
LABELS = ("kernel", "kernel, as classes", "network")
RIDGES = (0.0, 0.01, 0.1, 1.0, 10.0)


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to compute ProjNormLinear.

    Attributes:
        features: Treatment of the features: "raw"; "centred" on the training mean; "unit", scaled to length one; or
            "unit-centred", both in this order.
        ridge: Number added to the diagonal of each kernel, in units of its mean eigenvalue.
        labels: Pseudo-labels of the target: the outputs of the "kernel" regression, as in ProjNormLinear; "kernel, as
            classes" for the class of its largest output; or those of the evaluated "network", as in Algorithm 1.
    """

    features: str = "raw"
    ridge: float = 0.0
    labels: str = "kernel"

    def __str__(self) -> str:
        return f"{self.features}, ridge {self.ridge:g}, labels of the {self.labels}"


VARIANTS = tuple(Variant(*way) for way in itertools.product(FEATURES, RIDGES, LABELS))
PLAIN = Variant()


@dataclass(frozen=True, slots=True, eq=False)
class KernelBlocks:
    """The three blocks of a kernel; shapes ``(n, n)``, ``(m, n)`` and ``(m, m)``."""

    train: Floats
    ood_train: Floats
    ood: Floats

    def part(self, train: NDArray[np.intp], ood: NDArray[np.intp]) -> KernelBlocks:
        """The blocks of some samples of each set."""
        return KernelBlocks(
            self.train[np.ix_(train, train)], self.ood_train[np.ix_(ood, train)], self.ood[np.ix_(ood, ood)]
        )

    def unit(self) -> KernelBlocks:
        """The blocks of features that are scaled to length one."""
        a, b = np.sqrt(self.train.diagonal()), np.sqrt(self.ood.diagonal())
        return KernelBlocks(self.train / np.outer(a, a), self.ood_train / np.outer(b, a), self.ood / np.outer(b, b))

    def centred(self) -> KernelBlocks:
        """The blocks of features from which their training mean is subtracted."""
        column, grand = self.train.mean(axis=0), self.train.mean()
        row = self.ood_train.mean(axis=1)
        return KernelBlocks(
            self.train - column[:, None] - column + grand,
            self.ood_train - row[:, None] - column + grand,
            self.ood - row[:, None] - row + grand,
        )

    def with_features(self, features: str) -> KernelBlocks:
        """The blocks of features as a `Variant` names them."""
        blocks = self.unit() if features.startswith("unit") else self
        return blocks.centred() if features.endswith("centred") else blocks

    def noise(self, features: str, accumulate: str) -> float:
        """Error of treated features against the largest eigenvalue: centring takes off a mean, not its rounding."""
        before = self.unit() if features.startswith("unit") else self
        after = self.with_features(features)
        return max(
            kernel_noise(changed, accumulate, scale=float(rounded.diagonal().max()))
            for changed, rounded in ((after.train, before.train), (after.ood, before.ood))
        )


def variant_values(
    blocks: KernelBlocks,
    responses: Floats,
    network: Floats,
    *,
    accumulate: str = "float64",
    variants: tuple[Variant, ...] = VARIANTS,
) -> dict[Variant, float]:
    """ProjNormLinear in each of the given ways, from blocks of products in the precision `accumulate`.

    The centred training `responses` have shape ``(n, c)``; `network`, shape ``(m, c)``, are the one-hot labels that the
    evaluated network gives the target, centred in the same way.
    """
    values = {}
    for features, group in itertools.groupby(variants, key=lambda variant: variant.features):
        chosen = blocks.with_features(features)
        noise = blocks.noise(features, accumulate)
        pair = LinearPair.from_gram(chosen.train, chosen.ood_train, chosen.ood, noise=noise)
        means = chosen.train.trace() / len(chosen.train), chosen.ood.trace() / len(chosen.ood)
        for variant in group:
            ridge = variant.ridge * means[0], variant.ridge * means[1]
            pseudo_labels = {"kernel": None, "network": network}.get(variant.labels)
            if variant.labels == "kernel, as classes":
                pseudo_labels = _kernel_classes(pair, responses, ridge[0])
            values[variant] = projnorm_linear_of_pair(pair, responses, ridge=ridge, pseudo_labels=pseudo_labels).value
    return values


def _kernel_classes(pair: LinearPair, responses: Floats, ridge: float) -> Floats:
    """The classes that the kernel regression predicts, as centred one-hot rows."""
    centre = -responses.min(axis=0)  # of one-hot rows with their mean taken off
    outputs = pair.ood_predictions(pair.ridge_coordinates(pair.fit(responses), ridge))
    return np.eye(len(centre))[(outputs + centre).argmax(axis=1)] - centre
