"""The paper's Section 5 and appendix D: errors under attack, predicted by lines fitted to corruptions."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from deep.comparison.analysis_config import AdversarialConfig, short_number
from deep.comparison.config import image_config
from deep.comparison.runs import Run
from deep.comparison.stress import run_to_calibrate_on, stress_record
from deep.comparison.trained_networks import networks_of
from projnorm.core.errors import InputError
from projnorm.core.records import Record, RunContext
from projnorm.core.statistics import subsample_indices
from projnorm.data.images import ImageSet
from projnorm.models.forward import in_eval_mode
from projnorm.models.preparation import Prepare, placed

ADVERSARIAL_KIND = "deep-adversarial"
_PIXELS = 255.0
# Steps may cross the cube this often.
_CROSSINGS = 2.5
_BATCH = 250


def run_adversarial(config: AdversarialConfig, context: RunContext) -> Record:
    """Attack the clean images of a run at every size, score the attacked ones, and predict the error on them.

    Raises:
        InputError: If the run is not finished, its inputs have changed, or it has fewer images than asked for.
        OSError: If something cannot be read or written.
    """
    run, config = run_to_calibrate_on(config, context)
    return stress_record(
        ADVERSARIAL_KIND,
        config,
        run,
        items={f"eps = {short_number(eps)}": eps for eps in config.eps},
        make=partial(_attacked, config),
        original=_clean(config.m, run).images,
    )


def pgd(
    model: nn.Module,
    images: NDArray[np.generic],
    labels: NDArray[np.int64],
    *,
    eps: float,
    steps: int = 20,
    start: int | None = None,
    prepare: Prepare | None = None,
    device: str = "cpu",
) -> NDArray[np.float32]:
    """Images that the network gets wrong more often, no pixel farther than `eps` 255ths from that of the original.

    Projected gradient ascent on the loss, untargeted: each step, of size ``2.5 eps / steps``, goes along the sign of
    the gradient of the cross-entropy with the true label, then back into the cube and into 0 to 255. It begins at the
    images, or at a point of the cube that the seed `start` draws uniformly. `prepare` is applied to every batch before
    the network and must let gradients through. The mode and weights of the network are as before afterwards.
    """
    if not eps >= 0.0 or steps < 1:
        raise InputError(f"`eps` must not be negative and `steps` must be at least 1; got {eps} and {steps}.")
    target = torch.device(device)
    placed(model, target, images=images.ndim == 4)
    draws = None if start is None else np.random.default_rng(start)
    results = []
    with in_eval_mode(model):
        for first in range(0, len(images), _BATCH):
            x = torch.from_numpy(np.asarray(images[first : first + _BATCH], dtype=np.float32))
            y = torch.from_numpy(labels[first : first + _BATCH]).to(target)
            shift = (
                torch.zeros_like(x) if draws is None else torch.from_numpy(draws.uniform(-eps, eps, x.shape)).float()
            )
            low, high = (x - eps).clamp(0.0, _PIXELS).to(target), (x + eps).clamp(0.0, _PIXELS).to(target)
            attacked = torch.clamp(x.to(target) + shift.to(target), low, high)
            for _ in range(steps):
                attacked.requires_grad_(True)
                seen = attacked if prepare is None else prepare(attacked)
                (slope,) = torch.autograd.grad(_log_odds(model(seen), y).sum(), attacked)
                attacked = torch.clamp(attacked.detach() + _CROSSINGS * eps / steps * slope.sign(), low, high)
            results.append(attacked.cpu().numpy())
    return np.concatenate(results)


def _clean(m: int, run: Run) -> ImageSet:
    image_config(run.config)
    images = networks_of(run).data.targets[0].samples
    assert isinstance(images, ImageSet)
    if m > len(images):
        raise InputError(f"`m` must be at most {len(images):,}, as in {run.name}; got {m:,}.")
    return images.take(subsample_indices(len(images), m or len(images), run.config.seed))


def _attacked(config: AdversarialConfig, run: Run, eps: float) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    clean, networks = _clean(config.m, run), networks_of(run)
    prepare = networks.modality.prepare
    attacked = pgd(
        networks.network(),
        clean.images,
        clean.labels,
        eps=eps,
        steps=config.steps,
        prepare=prepare,
        device=run.context.device,
    )
    return attacked, clean.labels


def _log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """Log odds of the wrong classes: the gradient has the signs of that of the cross-entropy, but never vanishes."""
    right = functional.one_hot(labels, logits.shape[1]).bool()
    return logits.masked_fill(right, float("-inf")).logsumexp(dim=1) - logits[right]
