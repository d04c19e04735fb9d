"""A trained model of the benchmark, of any kind: samples in, outputs out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.shifts.problems import GivenOutputs, LabelledSet, Problem
from projnorm.outputs.outputs import Outputs, log_probabilities


@dataclass(frozen=True, slots=True, eq=False)
class FittedModel:
    """A trained model.

    Attributes:
        model: An estimator of scikit-learn, or a network of torch.
        classes: Number of classes.
        prepare: Function from a batch of inputs to what a network takes; None for other models.
        last: Name of a network's last layer; empty for other models.
    """

    model: Any
    classes: int
    prepare: Callable[..., Any] | None = None
    last: str = ""

    def outputs(self, samples: LabelledSet) -> Outputs:
        """What it says of samples: logits and, of a network, features; with the labels, and inputs that are numbers."""
        if self.last:
            from projnorm.models.forward import forward

            outputs = forward(self.model, self.last, samples.inputs, prepare=self.prepare)
        else:
            rows = np.zeros((len(samples), self.classes))
            rows[:, self.model.classes_] = self.model.predict_proba(samples.inputs)
            outputs = Outputs(log_probabilities(rows, samples.name))
        inputs = samples.inputs if samples.inputs.dtype.kind in "fu" else None
        return Outputs(outputs.logits, outputs.features, samples.labels, inputs=inputs, name=samples.name)

    def outputs_on(self, problem: Problem) -> GivenOutputs:
        """What it says of the source and the targets of a problem."""
        source, *targets = (self.outputs(samples) for samples in (problem.source, *problem.targets))
        return GivenOutputs(source, tuple(targets), tuple(target.kind for target in problem.targets))
