"""Other mixtures of the same classes: the paper's five groups by difficulty, and priors drawn from a Dirichlet law."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deep.comparison.analysis_config import LabelShiftConfig, short_number
from deep.comparison.config import image_config
from deep.comparison.runs import Run
from deep.comparison.stress import run_to_calibrate_on, stress_record
from deep.comparison.trained_networks import networks_of
from projnorm.core.errors import InputError
from projnorm.core.records import Record, RunContext
from projnorm.data.class_draws import drawn_with_counts
from projnorm.data.datasets import load_splits
from projnorm.data.images import ImageSet

LABEL_SHIFT_KIND = "deep-label-shift"


def run_label_shift(config: LabelShiftConfig, context: RunContext) -> Record:
    """Mix the test images of a run anew, score each mixture, and predict the error on it.

    Raises:
        InputError: If the run is not finished, its inputs have changed, or there are too few classes.
        OSError: If something cannot be read or written.
    """
    run, config = run_to_calibrate_on(config, context)
    test = load_splits(image_config(run.config).data.data).test
    most = config.m or run.config.data.m
    rng = np.random.default_rng(config.seed)
    sets = difficulty_groups(test.labels, _class_errors(run, test), config.groups, most, rng) if config.groups else {}
    for concentration in config.concentrations:
        for draw in range(1, config.draws + 1):
            name = f"Dirichlet {short_number(concentration)}, draw {draw}"
            sets[name] = dirichlet_mixture(test.labels, concentration, most, rng)
    return stress_record(LABEL_SHIFT_KIND, config, run, items=sets, make=_images)


def difficulty_groups(
    labels: NDArray[np.int64], errors: NDArray[np.float64], groups: int, most: int, rng: np.random.Generator
) -> dict[str, NDArray[np.intp]]:
    """Indices of the images of each group of classes, ranked by error, the hardest first; at most `most` of each.

    `errors` has the error on each class, nan for one that has no image. The groups' numbers of classes differ by one at
    most; where a group has more images, `rng` draws them.
    """
    known = np.flatnonzero(np.isfinite(errors))
    if len(known) < groups:
        raise InputError(f"`groups` must be at most {len(known)}, the number of classes; got {groups}.")
    ranked = known[np.argsort(-errors[known], kind="stable")]
    groups_of_images = {}
    for number, classes in enumerate(np.array_split(ranked, groups), start=1):
        members = np.flatnonzero(np.isin(labels, classes))
        groups_of_images[f"group {number} of {groups}"] = np.sort(rng.permutation(members)[:most])
    return groups_of_images


def dirichlet_mixture(
    labels: NDArray[np.int64], concentration: float, most: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Indices of images whose classes have priors drawn from a Dirichlet law; no image twice.

    There are `most` of them, or as many as the images of each class allow at these priors; a class that the draw wants
    more of than there are gives all it has.
    """
    counts = np.bincount(labels)
    classes = np.flatnonzero(counts)
    priors = rng.dirichlet(np.full(len(classes), concentration))
    size = min(most, int(np.min(counts[classes][priors > 0] / priors[priors > 0])))
    counts_to_draw = np.zeros(len(counts), dtype=np.int64)
    counts_to_draw[classes] = rng.multinomial(size, priors)
    return drawn_with_counts(labels, counts_to_draw, rng)


def _class_errors(run: Run, test: ImageSet) -> NDArray[np.float64]:
    """The error on each class; nan for one that has no image."""
    networks = networks_of(run)
    classes = networks.data.classes
    counts = np.bincount(test.labels, minlength=classes)
    wrong = np.bincount(test.labels, networks.outputs(test).predicted != test.labels, classes)
    return np.where(counts > 0, wrong / np.maximum(counts, 1), np.nan)


def _images(run: Run, indices: NDArray[np.intp]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    chosen = load_splits(run.config.data.data).test.take(indices)
    return chosen.images, chosen.labels
