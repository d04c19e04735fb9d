"""Sections of the report about networks: one or more for every record of `projnorm deep` in a folder."""

from __future__ import annotations

from pathlib import Path

from deep.config import IMAGE_KIND, TEXT_KIND
from figures import comparison
from figures.report import Section, section
from figures.show import Shown
from projnorm.errors import InputError
from projnorm.experiments import EXPERIMENTS, resolve
from projnorm.records import RECORD, load_record


def network_sections(root: Path) -> list[Section]:
    """A section or more for every record of a network under `root`; a damaged one is named.

    Figures are saved in the folder of their record, unless they are there already.
    """
    sections: list[Section] = []
    for experiment in EXPERIMENTS:
        if experiment.kind.partition("-")[0] != "deep":
            continue
        for file in sorted(root.glob(f"{experiment.kind}-{'[0-9a-f]' * 12}/{RECORD}.json")):
            folder = file.parent
            try:
                record = load_record(root, folder.name)
                sections.append(section(resolve(experiment.show)(record, folder), folder))
                if experiment.kind in (IMAGE_KIND, TEXT_KIND):
                    sections += [section(one, folder) for one in comparison.details(record, folder)]
            except (InputError, OSError) as problem:
                refusal = f"This record cannot be shown: {str(problem).rstrip('.')}."
                sections.append(section(Shown([refusal], title=folder.name)))
    return sections
