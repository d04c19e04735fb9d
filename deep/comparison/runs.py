"""Runs in a folder of records: which there are, what they were begun with, and what they have scored so far. No torch.

A run's folder holds, besides its record, an entry ``run`` with its configuration and the hashes of its inputs, and an
entry below ``scores`` for every target and group of methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from deep.comparison.config import RUN_CONFIGS, RunConfig
from deep.comparison.scores import Scores, TargetScores
from projnorm.core.errors import InputError
from projnorm.core.records import Record, RunContext
from projnorm.core.store import LOGGER, Store

_BEGUN, _SCORES = "run", "target-scores"
# Name of the scores of tangent kernels, which come behind those of the run's own methods.
KERNELS = "tangent-kernels"


@dataclass(frozen=True, slots=True)
class Run:
    """A comparison with its context; it is sent to every worker.

    `name` is that of its record and folder. `session` names this use of it: what a process remembers of a run is
    forgotten with the next, as files change.
    """

    config: RunConfig
    context: RunContext
    name: str
    session: str = field(default_factory=lambda: uuid4().hex)

    @property
    def folder(self) -> Path:
        """Folder of the record."""
        return self.context.root / self.name

    @property
    def store(self) -> Store:
        """Entries of the run itself; what runs share is in stores beside its folder."""
        return Store(self.folder)

    def recorded_inputs(self) -> Mapping[str, Any] | None:
        """Hashes of the inputs that the run was begun with; None if it was not begun, or that entry is damaged."""
        facts = self.store.facts(_BEGUN)
        return None if facts is None else facts["inputs"]

    def begin(self, inputs: Mapping[str, Any]) -> None:
        """Write the hashes of the inputs, and remove scores that were computed from unknown inputs."""
        for key in self.store.keys(f"{_SCORES}/"):
            LOGGER.warning("%s: the inputs of the scores are not known; they are computed again.", self.folder)
            self.store.remove(key)
        self.store.put(_BEGUN, facts={"config": self.config.to_json(), "inputs": dict(inputs)})

    def forget(self) -> None:
        """Remove the scores and the hashes of the inputs."""
        for key in (_BEGUN, *self.store.keys(f"{_SCORES}/")):
            self.store.remove(key)

    def put_scores(self, group: str, parts: Iterable[TargetScores]) -> None:
        """Write the scores of a group of methods on a target, or on all, in the place of those there."""
        self.store.put(f"{_SCORES}/{group}", facts={"targets": [asdict(part) for part in parts]})

    def target_scores(self, group: str = "") -> list[TargetScores]:
        """The scores of a group of methods, or of all groups."""
        keys = [f"{_SCORES}/{group}"] if group else self.store.keys(f"{_SCORES}/")
        return [part for key in keys for part in _target_scores(self.store, key)]

    def scores(self) -> Scores:
        """The scores that are computed so far, with those of tangent kernels if there are any."""
        scores = Scores.from_targets(self.target_scores())
        if not len(scores.targets):
            raise InputError(f"{self.folder} has no target yet that every method has scored; run it again to go on.")
        own = [method for method in self.config.methods if method in scores.methods]
        return scores.only((*own, *(method for method in scores.methods if method not in own)))


def kernel_scores(folder: Path) -> list[TargetScores]:
    """The scores of tangent kernels in the folder of a run; none if they were never computed."""
    return _target_scores(Store(folder), f"{_SCORES}/{KERNELS}")


def run_scores(record: Record, folder: Path | None) -> Scores:
    """Scores of a finished run, with those of tangent kernels on the same targets if its folder holds them."""
    scores = Scores.from_arrays(record.arrays)
    by_target = {part.target: part.scores for part in ([] if folder is None else kernel_scores(folder))}
    for method in dict.fromkeys(method for scored in by_target.values() for method in scored):
        column = [by_target.get(target, {}).get(method) for target in scores.targets.tolist()]
        if None not in column:
            values = np.column_stack([scores.values, np.array(column, dtype=float)])
            scores = replace(scores, methods=(*scores.methods, method), values=values)
    return scores


def open_run(root: Path, name: str = "") -> Run:
    """The run of this name, which need not be finished.

    Args:
        root: Folder of the records.
        name: Name of the run or its beginning; the only one there is by default.

    Raises:
        InputError: If there is not exactly one run of this name.
        OSError: If it cannot be read.
    """
    names = []
    for kind in RUN_CONFIGS:
        folders = sorted(root.glob(f"{kind}-{'[0-9a-f]' * 12}"))
        names += [path.name for path in folders if _BEGUN in Store(path) and path.name.startswith(name)]
    if len(names) != 1:
        which = f"whose name begins with {name!r}" if name else "there"
        listed = (
            f"the runs {which} are {', '.join(names)}" if names else f"there is none {which}".removesuffix(" there")
        )
        raise InputError(f"`run` must name one run of `projnorm deep run` in {root}; {listed}.")
    facts = Store(root / names[0]).facts(_BEGUN)
    if facts is None:
        raise InputError(f"{root / names[0]}: what the run was begun with is damaged; run it again to mend it.")
    config = RUN_CONFIGS[names[0].rpartition("-")[0]].from_json(facts["config"])
    return Run(config, RunContext(root), names[0])


def _target_scores(store: Store, key: str) -> list[TargetScores]:
    return [TargetScores(**part) for part in (store.facts(key) or {"targets": []})["targets"]]
