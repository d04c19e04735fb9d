"""The paper's Section 5 and appendix D: errors under attack, predicted by lines fitted to corruptions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deep.attacks import PIXELS, pgd
from deep.domain import image_config
from deep.experiments.stress import opened, stress_record
from deep.samples import few_indices
from deep.stages import Workplace, network_of
from projnorm.runs import ONE_PROCESS, Backend, Record
from projnorm.vision import ImageSet

ADVERSARIAL_KIND = "deep-adversarial"
PAPER_EPS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.5, 8.0)


@dataclass(frozen=True, slots=True)
class AdversarialConfig:
    """Which attacks.

    Attributes:
        run: Name of the comparison whose network is attacked and whose targets calibrate.
        eps: Largest change of a pixel, in 255ths.
        m: Images of the clean set; 0 for all of the run.
        steps: Of the attack.
    """

    run: str
    eps: tuple[float, ...] = PAPER_EPS
    m: int = 0
    steps: int = 20

    def __post_init__(self) -> None:
        """Refuse what is no attack."""
        if (
            not self.eps
            or any(not 0 <= eps <= PIXELS for eps in self.eps)
            or len(set(map(_spoken, self.eps))) < len(self.eps)
        ):
            said = ", ".join(map(str, self.eps)) or "none"
            raise ValueError(f"`eps` must be different numbers from 0 to {PIXELS:g}; got {said}.")
        if self.m < 0 or self.m == 1 or self.steps < 1:
            raise ValueError(f"`m` must be 0 or at least 2 and `steps` at least 1; got {self.m} and {self.steps}.")


def run_adversarial(
    config: AdversarialConfig, *, root: Path, backend: Backend = ONE_PROCESS, device: str = "auto", fresh: bool = False
) -> Record:
    """Attack the clean images of a run at every size, score the attacked ones, and predict the error on them.

    Raises:
        ValueError: If the run is not finished, its inputs have changed, or it has fewer images than asked for.
        OSError: If something cannot be read or written.
    """
    run = opened(config.run, root=root, device=device)
    clean = _clean(config.m, run[0])
    return stress_record(
        ADVERSARIAL_KIND,
        asdict(config),
        run,
        items={f"eps = {_spoken(eps)}": eps for eps in config.eps},
        make=partial(_attacked, config),
        root=root,
        backend=backend,
        fresh=fresh,
        original=clean[0],
    )


def _spoken(eps: float) -> str:
    return f"{eps:.6g}"


def _clean(m: int, work: Workplace) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    image_config(work.config)
    images = work.data.targets[0].samples
    assert isinstance(images, ImageSet)
    if m > len(images):
        raise ValueError(f"`m` must be at most {len(images):,}, as in {work.folder.name}; got {m:,}.")
    images = images.take(few_indices(len(images), m or len(images), work.config.seed))
    return images.images, images.labels


def _attacked(config: AdversarialConfig, work: Workplace, eps: float) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    images, labels = _clean(config.m, work)
    network = network_of(work)
    return (
        pgd(network, images, labels, eps=eps, steps=config.steps, prepare=work.prepare, hardware=work.hardware),
        labels,
    )
