"""The lines of a monitor's journal, one dataclass for each kind, and how they are written as JSON.

| kind | written when |
| --- | --- |
| settings | a folder is begun |
| batch | a batch is taken in |
| labels | the labels of a batch are there |
| reset | an alarm was dealt with |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from projnorm.labels.counts import StratumCounts

VERSION = 2


@dataclass(frozen=True, slots=True)
class SettingsLine:
    """What the numbers of a journal depend on besides the batches.

    Attributes:
        version: Version of the lines.
        estimator: Fingerprint of the estimator.
        threshold: Error above which there is an alarm.
        alpha: Largest probability of ever alarming while no error is above the threshold.
    """

    kind: ClassVar[str] = "settings"
    version: int
    estimator: str
    threshold: float
    alpha: float

    def to_json(self) -> dict[str, Any]:
        """The line as plain JSON values."""
        return _to_json(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The line that `to_json` gave."""
        return cls(**_arguments(cls, document))


@dataclass(frozen=True, slots=True)
class ChosenSamples:
    """The samples of a batch that are to be labelled.

    Attributes:
        samples: Row of each in the batch.
        strata: Stratum of each.
        sizes: Number of samples of the batch in each stratum.
        predicted: Predicted class of each.
    """

    samples: tuple[int, ...]
    strata: tuple[int, ...]
    sizes: tuple[int, ...]
    predicted: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine(SettingsLine):
    """The estimate for a batch, with the settings in case their own line was lost.

    Attributes:
        name: Name of the batch.
        time: Its time, which sorts as text; empty where it was not given.
        digest: Hash of its outputs.
        m: Number of samples.
        error: Estimated error, before labels of earlier batches correct it.
        low: Lower end of its interval.
        high: Upper end of its interval.
        noise: Standard deviation of the estimate from the draw of its samples.
        log_values: What the alarm from estimates takes of the batch, as `alarm.log_values` gives it.
        not_refuted: Hypotheses about the shift that were not refuted.
        warnings: Warnings of the estimate.
        plan: The samples to be labelled; None where there are none.
    """

    kind: ClassVar[str] = "batch"
    name: str
    time: str
    digest: str
    m: int
    error: float
    low: float
    high: float
    noise: float
    log_values: tuple[float, ...]
    not_refuted: tuple[str, ...]
    warnings: tuple[str, ...]
    plan: ChosenSamples | None = None

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The line that `to_json` gave."""
        arguments = _arguments(cls, document)
        if "plan" in document:
            arguments["plan"] = ChosenSamples(**_arguments(ChosenSamples, document["plan"]))
        return cls(**arguments)


@dataclass(frozen=True, slots=True)
class LabelsLine:
    """What the labels of a batch say.

    Attributes:
        name: Name of the batch.
        sizes: Number of samples in each stratum.
        labelled: Number of them that have a label.
        wrong: Number of these that the model got wrong.
        error: Error of the batch by its labels.
        low: Lower end of its interval.
        high: Upper end of its interval.
    """

    kind: ClassVar[str] = "labels"
    name: str
    sizes: tuple[int, ...]
    labelled: tuple[int, ...]
    wrong: tuple[int, ...]
    error: float
    low: float
    high: float

    @property
    def counts(self) -> StratumCounts:
        """The labels of every stratum."""
        return StratumCounts(*(np.array(numbers) for numbers in (self.sizes, self.labelled, self.wrong)))

    def to_json(self) -> dict[str, Any]:
        """The line as plain JSON values."""
        return _to_json(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The line that `to_json` gave."""
        return cls(**_arguments(cls, document))


@dataclass(frozen=True, slots=True)
class ResetLine:
    """Both alarms begin anew."""

    kind: ClassVar[str] = "reset"

    def to_json(self) -> dict[str, Any]:
        """The line as plain JSON values."""
        return _to_json(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:  # noqa: ARG003 - it has nothing but its kind
        """The line that `to_json` gave."""
        return cls()


Line = SettingsLine | BatchLine | LabelsLine | ResetLine
_KINDS: dict[str, type[Line]] = {cls.kind: cls for cls in (SettingsLine, BatchLine, LabelsLine, ResetLine)}


def line_from_json(document: Mapping[str, Any]) -> Line:
    """The line in a document of the journal.

    Raises:
        KeyError: If there is no such kind.
        TypeError: If a value is missing.
    """
    return _KINDS[document["kind"]].from_json(document)


def _to_json(line: Line) -> dict[str, Any]:
    return {"kind": line.kind, **{name: value for name, value in asdict(line).items() if value is not None}}


def _arguments(cls: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the fields that a document has; lists are tuples."""
    values = {field.name: document[field.name] for field in fields(cls) if field.name in document}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
