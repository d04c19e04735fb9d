"""What was found on networks, as sections of the report: every record of `projnorm deep` in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from matplotlib.figure import Figure

from deep.domain import config_of, domain_of
from deep.ensemble import CAPTION as ENSEMBLE_CAPTION
from deep.ensemble import ensembles
from deep.ledger import Scores
from deep.residuals import residual_correlations
from figures import (
    deep_scatter,
    deep_table,
    ntk_panels,
    ntk_variants,
    residuals,
    severity,
    small_samples,
    stress,
    sweep,
    trajectory,
)
from figures.report import Section
from projnorm.runs import DamagedRecordError, Record, folders_of, load

# The paper's figure shows these.
_PAPER_ALIGNED = "snow-1"
_PAPER_DECAYS = ("clean", "snow-1", "pixelate-1", "motion_blur-1", "gaussian_noise-1")


def network_sections(root: Path) -> list[Section]:
    """A section or more for every record under `root`; a damaged one is named."""
    found: list[Section] = []
    for kind, sections in _SECTIONS.items():
        for folder in folders_of(root, kind):
            try:
                found += sections(load(folder))
            except FileNotFoundError:  # not finished
                continue
            except (DamagedRecordError, OSError) as problem:
                found.append(Section(folder.name, f"This record cannot be shown: {problem}."))
    return found


def paper_panels(record: Record) -> Figure:
    """The three panels on kernels with the targets that the paper shows, where they are there."""
    known = record.arrays["targets"].tolist()
    decays = [name for name in _PAPER_DECAYS if name in known]
    return ntk_panels.draw(
        record, aligned=_PAPER_ALIGNED if _PAPER_ALIGNED in known else None, decays=decays if decays[1:] else None
    )


def _comparison(record: Record) -> Iterator[Section]:
    config, scores = config_of(record.kind).from_json(record.config), Scores.of_arrays(record.arrays)
    heading = deep_scatter.heading(config, scores)
    yield Section(
        f"Predicting the error of {domain_of(config).network} on {Path(config.data).name}",
        deep_scatter.CAPTION,
        deep_scatter.draw(scores, heading=heading),
        deep_table.build(scores),
        " ".join([deep_table.CAPTION, *_merging(record)]),
        _configuration(record),
    )
    if len(set(scores.severities.tolist())) > 1:
        yield Section(severity.TITLE, severity.CAPTION, severity.draw(scores, heading=heading))
    if len(record.arrays["trajectory_steps"]) > 1:
        yield Section(trajectory.TITLE, trajectory.CAPTION, trajectory.draw(record, heading=heading))
    if len(scores.methods) > 1:
        found = residual_correlations(scores)
        yield Section(residuals.TITLE, residuals.CAPTION, residuals.draw(found, heading=heading))
        if len(set(scores.families.tolist())) > 1:
            yield Section("Methods together", ENSEMBLE_CAPTION, table=deep_table.build(ensembles(scores)))


def _kernels(record: Record) -> Iterator[Section]:
    yield Section(
        ntk_panels.TITLE,
        ntk_panels.CAPTION,
        paper_panels(record),
        ntk_variants.build(record),
        ntk_variants.CAPTION,
        _configuration(record),
    )


def _sweep(record: Record) -> Iterator[Section]:
    yield Section(
        sweep.TITLE,
        sweep.CAPTION,
        sweep.draw(record),
        sweep.build(record),
        deep_table.CAPTION,
        _configuration(record),
    )


def _stress(title: str) -> Callable[[Record], Iterator[Section]]:
    def sections(record: Record) -> Iterator[Section]:
        yield Section(
            title,
            stress.CAPTION,
            stress.draw(record, heading=record.facts["run"]),
            stress.build(record),
            configuration=_configuration(record),
        )

    return sections


def _small_samples(record: Record) -> Iterator[Section]:
    found = small_samples.measured(record)
    yield Section(
        small_samples.TITLE,
        small_samples.CAPTION,
        small_samples.draw(found, heading=record.facts["run"]),
        small_samples.build(found),
        configuration=_configuration(record),
    )
    yield Section(
        "The default against the others",
        "Differences on the same draws and families, with 95 % intervals from a paired bootstrap.",
        table=small_samples.differences(found),
    )


def _merging(record: Record) -> list[str]:
    """How predictions were merged, where a set of the run has fewer labels than the network."""
    two_way = record.facts.get("two_way_targets")
    return [f"Of {', '.join(two_way)}: {record.facts['merged']}."] if two_way else []


def _configuration(record: Record) -> dict[str, object]:
    return {"record": record.id, **record.config}


_SECTIONS: dict[str, Callable[[Record], Iterator[Section]]] = {
    "deep": _comparison,
    "deep-text": _comparison,
    "deep-ntk": _kernels,
    "deep-sweep": _sweep,
    "deep-adversarial": _stress(stress.ADVERSARIAL),
    "deep-label-shift": _stress(stress.LABEL_SHIFT),
    "deep-small-samples": _small_samples,
}
