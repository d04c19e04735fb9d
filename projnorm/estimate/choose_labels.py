"""Which samples of a target are worth labelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats
from projnorm.estimate.error_estimator import ErrorEstimator
from projnorm.estimate.options import EstimateOptions
from projnorm.estimate.target_estimate import estimate_per_sample
from projnorm.labels.plan import LabelPlan
from projnorm.labels.strata import Strata, strata_count
from projnorm.models.batches import Collate
from projnorm.outputs.outputs import Outputs, require_alike

if TYPE_CHECKING:
    from torch import nn

    from projnorm.models.preparation import Prepare
    from projnorm.models.recipe import Recipe


def choose_labels(
    model: Any,
    source: Any,
    target: Any,
    budget: int,
    *,
    more: LabelPlan | None = None,
    shift: str = EstimateOptions.shift,
    class_shares: Sequence[float] | Mapping[Any, float] | None = EstimateOptions.class_shares,
    methods: str | Sequence[str] = EstimateOptions.methods,
    calibration: str | Mapping[str, Any] = EstimateOptions.calibration,
    level: float = EstimateOptions.level,
    seed: int = EstimateOptions.seed,
    device: str = EstimateOptions.device,
    prepare: Prepare | None = EstimateOptions.prepare,
    init: nn.Module | tuple[nn.Module, Recipe] | None = EstimateOptions.init,
    others: Sequence[Any] = EstimateOptions.others,
    collate: Collate | None = EstimateOptions.collate,
) -> LabelPlan:
    """Choose which samples of a target to label, so that few labels say much about the error.

    The target is divided by how likely each prediction is to be wrong, and samples are drawn at random within these
    strata, more where the outcome is uncertain. `LabelPlan.write` gives a file to fill in; `estimate_error` with
    `labelled` then gives an interval that holds whatever the shift is.

    >>> import numpy as np
    >>> import projnorm as pn
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 3, 600)
    >>> logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(600, 3))
    >>> source, target = {"logits": logits[:400], "labels": labels[:400]}, {"logits": logits[400:]}
    >>> plan = pn.choose_labels(None, source, target, budget=10)
    >>> len(plan), bool(plan.samples.max() < 200)
    (10, True)

    Args:
        model: The model, as in `estimate_error`; or None, and then both sets are outputs.
        source: Labelled samples like those of training, as in `estimate_error`.
        target: Unlabelled samples.
        budget: Number of samples to label; with `more`, of further ones.
        more: Samples that were chosen before, from the same source and target and with the same seed, some or all of
            them labelled.
        shift: As in `estimate_error`, like all that follow.
        class_shares: Known class shares of the targets.
        methods: Methods to run besides the default.
        calibration: Labelled shifted sets, or whether to make some.
        level: Level of the intervals.
        seed: Seed of everything that is drawn, the samples to label included.
        device: Device of networks of torch.
        prepare: Function from a batch of inputs to what a network takes.
        init: The network with its initial weights.
        others: More models of the same classes.
        collate: Function from a list of samples to a batch.

    Returns:
        The samples to label, in the order in which to label them.

    Raises:
        InputError: If something does not fit; the message says what.
    """
    options = EstimateOptions(
        shift=shift,
        class_shares=class_shares,
        methods=methods,
        calibration=calibration,
        level=level,
        seed=seed,
        device=device,
        prepare=prepare,
        init=init,
        others=others,
        collate=collate,
    )
    estimator = ErrorEstimator.from_options(model, source, options)
    return chosen_samples(estimator, estimator.outputs_of(target, "target"), budget, more=more)


def chosen_samples(
    estimator: ErrorEstimator, outputs: Outputs, budget: int, *, more: LabelPlan | None = None
) -> LabelPlan:
    """As `choose_labels`, with an estimator that is fitted already."""
    if budget < 1:
        raise InputError(f"`budget` must be 1 or more; got {budget}.")
    require_alike(estimator.fitted.source, outputs)
    with estimator.one_thread():
        wrong = estimate_per_sample(estimator.fitted, outputs).wrong
    return chosen_by_error(wrong, budget, seed=estimator.fitted.seed, more=more)


def chosen_by_error(wrong: Floats, budget: int, *, seed: int, more: LabelPlan | None = None) -> LabelPlan:
    """As `choose_labels`, from the probability of each sample to be wrong, shape ``(m,)``."""
    count = strata_count(budget) if more is None else len(more.sizes)
    strata = Strata.by_error(wrong, min(count, len(wrong)))
    before = 0 if more is None else len(more)
    samples = strata.draws(before + budget, np.random.default_rng(seed))
    plan = LabelPlan(samples, strata.stratum_of_sample[samples], strata.sizes, strata.expected, ("",) * len(samples))
    if more is None:
        return plan
    same = np.array_equal(plan.samples[:before], more.samples) and np.array_equal(plan.strata[:before], more.strata)
    if not same or not np.array_equal(plan.sizes, more.sizes):
        raise InputError("`more` was chosen from another source or target, or with another seed.")
    if len(samples) == before:
        raise InputError(f"`more` already has all {before:,} samples of the target.")
    labels, first = more.labels + plan.labels[before:], before if more.at_first is None else more.at_first
    return LabelPlan(samples, plan.strata, plan.sizes, plan.expected, labels, first)
