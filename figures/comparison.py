"""What a comparison of methods on a network says, on images or on text, and the report's sections on networks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deep.comparison.config import IMAGE_KIND, TEXT_KIND
from deep.comparison.ensemble import CAPTION as ENSEMBLE_CAPTION, STACKED, ensembles, residual_correlations
from deep.comparison.runs import run_scores
from deep.comparison.score_quality import qualities
from deep.comparison.scores import Scores, not_rising
from figures import deep_table, deep_targets, residuals
from figures.headings import data_name, network_name, run_heading
from figures.page import Section, section
from figures.report import Report, of_figure
from figures.table import Table
from projnorm.core.errors import InputError
from projnorm.core.experiments import EXPERIMENTS, resolve
from projnorm.core.records import RECORD, Record, load_record


def show(record: Record, folder: Path | None) -> Report:
    """The table of a finished run, with the rows on tangent kernels that its folder holds."""
    return show_scores(record.config, run_scores(record, folder), record=record)


def show_scores(config: Mapping[str, Any], scores: Scores, *, record: Record | None = None) -> Report:
    """The table of a run with these settings and scores so far, or with its record if it is finished."""
    heading, by_method, falling = run_heading(config, scores), qualities(scores), not_rising(scores)
    table = deep_table.of_qualities(by_method)
    blocks: list[str | Table] = [heading, table, deep_table.caption(by_method), *_remarks(record)]
    if falling:
        blocks.append(f"The error does not rise with every severity of {', '.join(falling)}.")
    figures = {"scatter": deep_targets.draw_scatter.later(scores, heading)}
    if len(set(scores.severities.tolist())) > 1:
        figures["severity"] = deep_targets.draw_severity.later(scores, heading)
    where = f"{network_name(config)} on {data_name(config)}"
    best = max(by_method, key=lambda quality: -1.0 if math.isnan(quality.r_squared.value) else quality.r_squared.value)
    return Report(
        blocks,
        figures,
        {"rows": deep_table.values(by_method), "not_rising": falling},
        title=f"Predicting the error of {where}",
        verdict=f"Of {len(by_method)} methods, {best.method} follows the error of {where} best: R^2 = "
        f"{best.r_squared.value:.3f} over {best.targets} targets.",
        tables={"table": table, "targets": deep_table.targets(scores)},
        record=record,
    )


def show_trajectory(record: Record, folder: Path) -> Report:
    """ProjNorm along its training; refused for a run that kept no trajectory."""
    if len(record.arrays["trajectory_steps"]) < 2:
        raise InputError(f"{record.id} kept no trajectory; run it with `trajectory` such as 1, 2, 5, 10.")
    heading = run_heading(record.config, run_scores(record, folder))
    return of_figure(record, "trajectory", deep_targets.draw_trajectory.later(record, heading))


def show_residuals(config: Mapping[str, Any], scores: Scores) -> Report:
    """What the methods of a run get wrong together; there must be two or more."""
    if len(scores.methods) < 2:
        raise InputError(f"residuals are compared between two methods or more; the run has {scores.methods[0]} only.")
    correlations = residual_correlations(scores)
    drawing, values = residuals.draw.later(correlations, run_heading(config, scores)), residuals.values(correlations)
    return of_figure(None, "residuals", drawing, residuals.build(correlations), values=values)


def show_ensembles(scores: Scores, subsets: Iterable[Sequence[str]] | None = None) -> Report:
    """Methods together: the mean of standardised scores, and stacking."""
    by_method = qualities(ensembles(scores, subsets), predicting=(STACKED,))
    table = deep_table.of_qualities(by_method)
    return Report(
        [table, f"{deep_table.caption(by_method)} {ENSEMBLE_CAPTION}"],
        values={"methods": deep_table.values(by_method)},
        title="Methods together",
        tables={"ensembles": table},
    )


def details(record: Record, folder: Path) -> list[Report]:
    """What the report shows of a run besides: its trajectory, residuals and ensembles, where it has them."""
    scores = run_scores(record, folder)
    reports = [show_trajectory(record, folder)] if len(record.arrays["trajectory_steps"]) > 1 else []
    if len(scores.methods) > 1:
        reports.append(show_residuals(record.config, scores))
        if len(set(scores.families.tolist())) > 1:
            reports.append(show_ensembles(scores))
    return reports


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
                    sections += [section(report, folder) for report in details(record, folder)]
            except (InputError, OSError) as problem:
                refusal = f"This record cannot be shown: {str(problem).rstrip('.')}."
                sections.append(section(Report([refusal], title=folder.name)))
    return sections


def _remarks(record: Record | None) -> list[str]:
    """What a reader of the table must know of the data and the network."""
    if record is None:
        return []
    facts = record.facts
    remarks = [f"Weights: {facts['weights']}."]
    if two_way := facts.get("two_way_targets"):
        remarks.append(f"Of {', '.join(two_way)}: {facts['merged']}.")
    if small := facts.get("sets_of_fewer_than_m_pairs"):
        remarks.append(f"Fewer than m pairs: {', '.join(small)}; ProjNorm depends on m.")
    if known := facts.get("pairs_that_were_trained_on"):
        remarks.append(f"Pairs that were trained on: {', '.join(f'{n} of {name}' for name, n in known.items())}.")
    return remarks
