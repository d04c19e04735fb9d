"""Which reference of ProjNormLinear follows the error under corruptions, under other class shares, and under both.

Run: python -m benchmarks.matched_reference RECORDS OUT.json [RUN], on a finished comparison on images (`projnorm deep
run`) in the folder RECORDS.

Every target is drawn as it is and with other class shares, three times each, and scored in closed form on the inputs of
the last layer with references that differ in whose labels they have and which shares they are matched to. Matching to
the true shares needs labels: it is no method, but shows what the shares cost. Two rows combine the published and the
matched value: by the test of the class shares, and in a regression on both that is fitted to the probe families. A line
from score to error is fitted to the targets as they are; its mean squared error is that on targets with other shares.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import write_result
from deep.comparison.runs import open_run
from deep.comparison.trained_networks import for_workers, networks_of
from projnorm.core.progress import tracked
from projnorm.core.statistics import Line, fit_quality
from projnorm.data.image_settings import PROBE_FAMILIES
from projnorm.data.targets import CLEAN
from projnorm.estimators.class_shares import label_shares, maximum_likelihood_shares
from projnorm.estimators.projnorm_linear import ProjNormLinearEstimator, reweighted_distance, share_ratios
from projnorm.estimators.shift_test import ShiftTest
from projnorm.estimators.softmax import BiasCorrected
from projnorm.models.preparation import one_thread
from projnorm.outputs.outputs import Outputs

AS_THEY_ARE = "as in the source"
DRAWS, ALPHA, SEED = 3, 0.05, 0


def few_classes(classes: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Equal shares of one to half of the classes."""
    shares = np.zeros(classes)
    shares[rng.permutation(classes)[: rng.integers(1, classes // 2 + 1)]] = 1.0
    return shares / shares.sum()


SHARES: dict[str, Callable[[int, np.random.Generator], NDArray[np.float64]]] = {
    "Dirichlet(1)": lambda classes, rng: rng.dirichlet(np.ones(classes)),
    "Dirichlet(0.3)": lambda classes, rng: rng.dirichlet(np.full(classes, 0.3)),
    "1 to 5 of 10 classes": few_classes,
}


def drawn(outputs: Outputs, shares: NDArray[np.float64], rng: np.random.Generator) -> Outputs:
    """Half as many samples with these class shares; a sample may come twice."""
    labels = rng.choice(len(shares), size=len(outputs) // 2, p=shares)
    return outputs.take(np.array([rng.choice(np.flatnonzero(outputs.known_labels == label)) for label in labels]))


class References:
    """The value of a target with every reference."""

    def __init__(self, source: Outputs) -> None:
        """`source` are labelled outputs in distribution."""
        self.source, self.classes = source, source.classes
        self.published, self.test = ProjNormLinearEstimator().fit(source), ShiftTest.fit(source)
        self.scaling = BiasCorrected.fit(source.logits, source.known_labels)
        self.true = label_shares(source.known_labels, self.classes)
        self.own = label_shares(source.predicted, self.classes)

    def values(self, target: Outputs) -> dict[str, float]:
        """By the name of the reference."""
        rows = self.scaling.probabilities(target.logits)
        likely = maximum_likelihood_shares(rows, self.true)
        published = self.published.score(target)
        matched = self._by_prediction(target, label_shares(target.predicted, self.classes))
        keeps = self.test.only_shares_changed(target).p_value >= ALPHA
        return {
            "published: true labels": published,
            "own labels, shares of the source": reweighted_distance(self.source, target, np.ones(len(self.source))),
            "matched to predicted classes": matched,
            "matched to mean probabilities": self._by_prediction(target, rows.mean(axis=0)),
            "matched to likeliest shares": self._by_class(target, likely),
            "matched where the test keeps class shares, else published": matched if keeps else published,
            "matched to true shares (needs labels)": self._by_class(
                target, label_shares(target.known_labels, self.classes)
            ),
        }

    def _by_prediction(self, target: Outputs, shares: NDArray[np.float64]) -> float:
        return reweighted_distance(self.source, target, share_ratios(shares, self.own)[self.source.predicted])

    def _by_class(self, target: Outputs, shares: NDArray[np.float64]) -> float:
        return reweighted_distance(self.source, target, share_ratios(shares, self.true)[self.source.known_labels])


def main(arguments: list[str]) -> None:
    """Score, print, save."""
    root, out, *name = arguments
    run = open_run(Path(root), *name)
    run = replace(run, context=for_workers(run.context))
    networks, rng = networks_of(run), np.random.default_rng(SEED)
    data = networks.data
    references = References(networks.outputs(data.validation))
    kinds, families, errors, rows = [], [], [], []
    for target in tracked(data.targets, description="references", total=len(data.targets)):
        outputs = networks.outputs(target.samples)
        own = label_shares(outputs.known_labels, outputs.classes)
        sets = [(AS_THEY_ARE, own)] * DRAWS
        sets += [(kind, draw(outputs.classes, rng)) for kind, draw in SHARES.items() for _ in range(DRAWS)]
        for kind, shares in sets:
            shifted = drawn(outputs, shares, rng)
            kinds.append(kind)
            families.append(target.family)
            errors.append(shifted.error)
            rows.append(references.values(shifted))
    values = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    probes = np.isin(families, (CLEAN, *PROBE_FAMILIES))
    values["regression on published and matched"] = _regression(
        [values["published: true labels"], values["matched to predicted classes"]], np.array(errors), probes
    )
    by_method = {name: _qualities(v, np.array(errors), np.array(kinds), ~probes) for name, v in values.items()}
    for name, row in by_method.items():
        print(f"{name:60s}", {kind: f"{value:.4f}" for kind, value in row.items()})
    result = {"run": run.name, "sets": len(errors), "rows": by_method}
    write_result(Path(out), "python -m benchmarks.matched_reference RECORDS OUT.json [RUN]", result)


def _regression(columns: list[NDArray[np.float64]], errors: NDArray[np.float64], fitted: NDArray[np.bool_]) -> NDArray:
    design = np.column_stack([*columns, np.ones(len(errors))])
    return design @ np.linalg.lstsq(design[fitted], errors[fitted], rcond=None)[0]


def _qualities(
    values: NDArray[np.float64], errors: NDArray[np.float64], kinds: NDArray[np.str_], reported: NDArray[np.bool_]
) -> dict[str, float]:
    """R^2 on the families that are no probes, for each kind of shares and for all; then the squared error."""
    parts = {kind: reported & (kinds == kind) for kind in (AS_THEY_ARE, *SHARES)} | {"all": reported}
    r_squared = {kind: fit_quality(values[part], errors[part]).r_squared for kind, part in parts.items()}
    known = kinds == AS_THEY_ARE
    predicted = Line.fitted(values[known], errors[known]).predict(values[~known])
    return r_squared | {"mean squared error, other shares": float(np.mean((predicted - errors[~known]) ** 2))}


if __name__ == "__main__":
    with one_thread("cpu"):
        main(sys.argv[1:])
