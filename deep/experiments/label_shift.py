"""Other mixtures of the same classes: the paper's five groups by difficulty, and priors drawn from a Dirichlet law."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deep.domain import image_config
from deep.experiments.stress import opened, stress_record
from deep.stages import Workplace, outputs_of
from projnorm.runs import ONE_PROCESS, Backend, Record
from projnorm.vision import ImageSet, load_splits

LABEL_SHIFT_KIND = "deep-label-shift"


@dataclass(frozen=True, slots=True)
class LabelShiftConfig:
    """Which mixtures.

    Attributes:
        run: Name of the comparison whose network is evaluated and whose targets calibrate.
        groups: Groups of classes by their error on the test set, the hardest first.
        concentrations: Dials of the Dirichlet law that class priors are drawn from: large is even, small is a class or
            two.
        draws: Priors drawn at each dial.
        m: Images of each set at most; 0 for as many as the targets of the run have.
        seed: Of what is drawn.
    """

    run: str
    groups: int = 5
    concentrations: tuple[float, ...] = (10.0, 1.0, 0.1)
    draws: int = 3
    m: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no mixture."""
        if self.groups < 0 or self.groups == 1:
            raise ValueError(f"`groups` must be 0 for none, or at least 2; got {self.groups}.")
        dials = self.concentrations
        if any(not 0 < dial < math.inf for dial in dials) or len(set(map(_spoken, dials))) < len(dials):
            raise ValueError(f"`concentrations` must be different positive numbers; got {', '.join(map(str, dials))}.")
        if not self.groups and not dials:
            raise ValueError("`groups` or `concentrations` must ask for something.")
        if self.draws < 1 or self.m < 0 or self.m == 1 or self.seed < 0:
            raise ValueError(
                f"`draws` must be at least 1, `m` 0 or at least 2, `seed` at least 0; got {self.draws}, {self.m} and "
                f"{self.seed}."
            )


def run_label_shift(
    config: LabelShiftConfig, *, root: Path, backend: Backend = ONE_PROCESS, device: str = "auto", fresh: bool = False
) -> Record:
    """Mix the test images of a run anew, score each mixture, and predict the error on it.

    Raises:
        ValueError: If the run is not finished, its inputs have changed, or there are too few classes.
        OSError: If something cannot be read or written.
    """
    run = opened(config.run, root=root, device=device)
    work = run[0]
    test = load_splits(image_config(work.config).data).test
    most = config.m or work.config.m
    rng = np.random.default_rng(config.seed)
    sets = difficulty_groups(test.labels, _class_errors(work, test), config.groups, most, rng) if config.groups else {}
    for dial in config.concentrations:
        for draw in range(1, config.draws + 1):
            sets[f"Dirichlet {_spoken(dial)}, draw {draw}"] = dirichlet_mixture(test.labels, dial, most, rng)
    return stress_record(
        LABEL_SHIFT_KIND, asdict(config), run, items=sets, make=_images, root=root, backend=backend, fresh=fresh
    )


def difficulty_groups(
    labels: NDArray[np.int64], errors: NDArray[np.float64], groups: int, most: int, rng: np.random.Generator
) -> dict[str, NDArray[np.intp]]:
    """Indices of the images of each group of classes, ranked by error, the hardest first; at most `most` of each.

    Args:
        labels: Of all images.
        errors: Of each class; nan for one that has no image.
        groups: How many; their numbers of classes differ by one at most.
        most: Images of a group; drawn where there are more.
        rng: For that.

    Raises:
        ValueError: If there are fewer classes than groups.
    """
    known = np.flatnonzero(np.isfinite(errors))
    if len(known) < groups:
        raise ValueError(f"`groups` must be at most {len(known)}, the number of classes; got {groups}.")
    ranked = known[np.argsort(-errors[known], kind="stable")]
    found = {}
    for number, classes in enumerate(np.array_split(ranked, groups), start=1):
        members = np.flatnonzero(np.isin(labels, classes))
        found[f"group {number} of {groups}"] = np.sort(rng.permutation(members)[:most])
    return found


def dirichlet_mixture(
    labels: NDArray[np.int64], concentration: float, most: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Indices of images whose classes have priors drawn from a Dirichlet law; no image twice.

    There are `most` of them, or as many as the images of each class allow at these priors; a class that the draw wants
    more of than there are gives all it has.
    """
    classes, counts = np.unique(labels, return_counts=True)
    priors = rng.dirichlet(np.full(len(classes), concentration))
    size = min(most, int(np.min(counts[priors > 0] / priors[priors > 0])))
    drawn = rng.multinomial(size, priors)
    taken = [
        rng.choice(np.flatnonzero(labels == label), size=min(wanted, count), replace=False)
        for label, count, wanted in zip(classes, counts, drawn, strict=True)
    ]
    return np.sort(np.concatenate(taken))


def _spoken(dial: float) -> str:
    return f"{dial:.6g}"


def _class_errors(work: Workplace, test: ImageSet) -> NDArray[np.float64]:
    wrong = outputs_of(work, test).predicted != test.labels
    counts = np.bincount(test.labels, minlength=work.data.classes)
    wrongs = np.bincount(test.labels, wrong, work.data.classes)
    return np.where(counts > 0, wrongs / np.maximum(counts, 1), np.nan)


def _images(work: Workplace, indices: NDArray[np.intp]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    chosen = load_splits(work.config.data).test.take(indices)
    return chosen.images, chosen.labels
