"""The file in which a person labels the samples of a batch that were chosen, and what it says once it is filled in."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from projnorm.core.errors import InputError
from projnorm.labels.counts import StratumCounts
from projnorm.labels.labelled import Labelled
from projnorm.labels.plan import LabelPlan
from projnorm.monitor.lines import ChosenSamples
from projnorm.outputs.outputs import Outputs

LOGGER = logging.getLogger("projnorm")


@dataclass(frozen=True, slots=True)
class LabelFile:
    """The file of one batch.

    >>> LabelFile.for_batch(Path("to_label"), "march 3").path.name
    'march_3-c17956.csv'

    Attributes:
        path: Where it is.
    """

    path: Path

    @classmethod
    def for_batch(cls, folder: Path, name: str) -> LabelFile:
        """The file of the batch of this name in a folder."""
        safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
        return cls(folder / f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:6]}.csv")

    def write(self, plan: LabelPlan, rows: Sequence[object]) -> None:
        """Write the chosen samples, unless there is a file already, which may be filled in."""
        if not self.path.exists():
            plan.write(self.path, rows=rows)

    def counts(self, chosen: ChosenSamples, source: Outputs) -> StratumCounts | None:
        """Samples, labels and mistakes of every stratum; None while a label is missing.

        Args:
            chosen: The samples that were chosen, which the file must have.
            source: Outputs with the classes of the model.

        Raises:
            InputError: If the file is damaged or of other samples.
        """
        if not self.path.exists():
            return None
        plan = LabelPlan.read(self.path)
        known = int(plan.is_labelled.sum())
        if known < len(plan):
            if known:
                LOGGER.info("%s: has %d of %d labels; they count once all are there.", self.path, known, len(plan))
            return None
        predicted = dict(zip(chosen.samples, chosen.predicted, strict=True))
        if set(plan.samples.tolist()) != set(predicted) or tuple(plan.sizes.tolist()) != chosen.sizes:
            raise InputError(
                f"{self.path}: does not have the samples that were chosen; fill in the column `label` alone."
            )
        try:
            labels = Labelled.from_input(plan).columns(source)
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from None
        predictions = np.array([predicted[sample] for sample in plan.samples.tolist()])
        return StratumCounts.from_samples(plan.strata, labels != predictions, plan.sizes)
