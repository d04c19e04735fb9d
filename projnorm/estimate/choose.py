"""Which samples of a target are worth labelling."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats
from projnorm.estimate.error_estimator import ErrorEstimator
from projnorm.estimate.options import EstimateOptions, one_thread_for
from projnorm.labels.plan import LabelPlan
from projnorm.labels.strata import Strata, strata_count
from projnorm.outputs.outputs import Outputs, require_alike


def choose_labels(
    model: Any,
    source: Any,
    target: Any,
    budget: int,
    *,
    more: LabelPlan | None = None,
    **options: Unpack[EstimateOptions],
) -> LabelPlan:
    """Choose which samples of a target to label, so that few labels say much about the error.

    The target is divided by how likely each prediction is to be wrong, and samples are drawn at random within these
    strata, more where the outcome is uncertain. `LabelPlan.write` gives a file to fill in; `estimate_error` with
    `labelled` then gives an interval that holds whatever the shift is.

    Args:
        model: The model, as in `estimate_error`; or None, and then both sets are outputs.
        source: Labelled samples like those of training, as in `estimate_error`.
        target: Unlabelled samples.
        budget: Number of samples to label; with `more`, of further ones.
        more: Samples that were chosen before, from the same source and target and with the same seed, some or all of
            them labelled.
        options: As in `estimate_errors`; `seed` is that of the draws too.

    Raises:
        InputError: If something does not fit; the message says what.
    """
    estimator = ErrorEstimator.fit(source, model=model, **options)
    return chosen_samples(estimator, estimator.outputs_of(target, "target"), budget, more=more)


def chosen_samples(
    estimator: ErrorEstimator, outputs: Outputs, budget: int, *, more: LabelPlan | None = None
) -> LabelPlan:
    """As `choose_labels`, with an estimator that is fitted already."""
    if budget < 1:
        raise InputError(f"`budget` must be 1 or more; got {budget}.")
    require_alike(estimator.fitted.source, outputs)
    with one_thread_for(estimator.model, estimator.options):
        wrong = estimator.fitted.estimate_per_sample(outputs).wrong
    return chosen_by_error(wrong, budget, seed=estimator.fitted.seed, more=more)


def chosen_by_error(wrong: Floats, budget: int, *, seed: int, more: LabelPlan | None = None) -> LabelPlan:
    """As `choose_labels`, from the probability of each sample to be wrong, shape ``(m,)``."""
    count = strata_count(budget) if more is None else len(more.sizes)
    strata = Strata.by_error(wrong, min(count, len(wrong)))
    before = 0 if more is None else len(more)
    samples = strata.draws(before + budget, np.random.default_rng(seed))
    plan = LabelPlan(samples, strata.of[samples], strata.sizes, strata.expected, ("",) * len(samples))
    if more is None:
        return plan
    same = np.array_equal(plan.samples[:before], more.samples) and np.array_equal(plan.strata[:before], more.strata)
    if not same or not np.array_equal(plan.sizes, more.sizes):
        raise InputError("`more` was chosen from another source or target, or with another seed.")
    if len(samples) == before:
        raise InputError(f"`more` already has all {before:,} samples of the target.")
    labels, first = more.labels + plan.labels[before:], before if more.at_first is None else more.at_first
    return LabelPlan(samples, plan.strata, plan.sizes, plan.expected, labels, first)
