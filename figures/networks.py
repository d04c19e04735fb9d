"""Sections of the report about networks: one or more for every record of `projnorm deep` in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from deep.config import IMAGE_KIND, TEXT_KIND
from figures import comparison, ntk_variants, small_samples, stress, sweep
from figures.report import Section, section
from figures.show import Shown
from projnorm.errors import InputError
from projnorm.records import RECORD, Record, load_record

_SHOWS: dict[str, Callable[[Record, Path], Shown]] = {
    IMAGE_KIND: comparison.show,
    TEXT_KIND: comparison.show,
    "deep-ntk": ntk_variants.show,
    "deep-sweep": sweep.show,
    "deep-adversarial": stress.show,
    "deep-label-shift": stress.show,
    "deep-small-samples": small_samples.show,
}


def network_sections(root: Path) -> list[Section]:
    """A section or more for every record of a network under `root`; a damaged one is named.

    Figures are saved in the folder of their record, unless they are there already.
    """
    sections: list[Section] = []
    for kind, show in _SHOWS.items():
        for file in sorted(root.glob(f"{kind}-{'[0-9a-f]' * 12}/{RECORD}.json")):
            folder = file.parent
            try:
                record = load_record(root, folder.name)
                sections.append(section(show(record, folder), folder))
                if kind in (IMAGE_KIND, TEXT_KIND):
                    sections += [section(one, folder) for one in comparison.details(record, folder)]
            except (InputError, OSError) as problem:
                sections.append(Section(folder.name, f"This record cannot be shown: {str(problem).rstrip('.')}."))
    return sections
