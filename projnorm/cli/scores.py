"""Commands on the scores of a comparison, finished or not: tables, figures, residuals, ensembles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from projnorm.cli.options import FigureOptions, OutOption
from projnorm.cli.output import answer, say, say_json, say_paths, write_figures
from projnorm.core.config import Config, setting

if TYPE_CHECKING:
    from deep.comparison.config import RunConfig
    from deep.comparison.runs import Run

_FORMATS = ("text", "markdown", "latex", "csv")


@dataclass(frozen=True)
class ScoresOptions(Config):
    """Which run."""

    run: str = setting("", "Name of a run, or its beginning; the only one there is by default.", positional=True)


@dataclass(frozen=True)
class TableOptions(ScoresOptions):
    """Which run, and how its table is written."""

    format: str = setting("text", "Format of the table.", choices=_FORMATS)
    targets: bool = setting(False, "Print one row for each target instead of one for each method.")


@dataclass(frozen=True)
class EnsembleOptions(ScoresOptions):
    """Which run, and which of its methods are combined."""

    methods: tuple[str, ...] = setting(
        (), "Methods to combine, such as ProjNorm,ATC; every pair and all of them by default.", repeat=True
    )
    format: str = setting("text", "Format of the table.", choices=_FORMATS)


def table(options: TableOptions, out: OutOption) -> None:
    """Print the table of a run, finished or not."""
    from figures.comparison import show_scores
    from figures.table import FORMATS

    run = _opened(out, options.run)
    report = show_scores(run.config.to_json(), run.scores())
    rows = report.tables["targets" if options.targets else "table"]
    answer(replace(report, blocks=[FORMATS[options.format](rows)]), {"run": run.name}, as_json=out.json)


def draw(options: ScoresOptions, out: OutOption, drawing: FigureOptions) -> None:
    """Draw the figures of a run, finished or not."""
    from figures.comparison import show_scores

    run = _opened(out, options.run)
    paths = write_figures(show_scores(run.config.to_json(), run.scores()), run.folder, drawing)
    say_paths(paths, as_json=out.json)


def trajectory(options: ScoresOptions, out: OutOption, drawing: FigureOptions) -> None:
    """Draw ProjNorm of a finished run along its training."""
    from figures.comparison import show_trajectory
    from projnorm.core.records import load_record

    run = _opened(out, options.run)
    report = show_trajectory(load_record(out.root, run.name), run.folder)
    say_paths(write_figures(report, run.folder, drawing), as_json=out.json)


def residuals(options: ScoresOptions, out: OutOption, drawing: FigureOptions) -> None:
    """Correlate what the estimators of a run get wrong: residuals of the error regressed on each score."""
    from figures.comparison import show_residuals

    run = _opened(out, options.run)
    report = show_residuals(run.config.to_json(), run.scores())
    paths = write_figures(report, run.folder, drawing)
    answer(report, {"run": run.name, "figures": list(map(str, paths))}, as_json=out.json)
    if not out.json:
        say(f"\nFigures in {run.folder}")


def ensemble(options: EnsembleOptions, out: OutOption) -> None:
    """Predict with several estimators of a run together: means of standardised scores, and stacking."""
    from figures.comparison import show_ensembles
    from figures.table import FORMATS

    run = _opened(out, options.run)
    subsets = [tuple(name.strip() for name in text.split(",")) for text in options.methods]
    report = show_ensembles(run.scores(), subsets or None)
    if options.format != "text":
        report = replace(report, blocks=[FORMATS[options.format](report.tables["ensembles"])])
    answer(report, {"run": run.name}, as_json=out.json)


def presets(out: OutOption) -> None:
    """List the configurations that have a name, for `projnorm deep run` and `projnorm deep text`."""
    from deep.comparison.presets import PRESETS, TEXT_PRESETS
    from figures.table import Table

    named: dict[str, RunConfig] = {**PRESETS, **TEXT_PRESETS}
    if out.json:
        say_json({name: config.to_json() for name, config in named.items()})
        return
    rows = [
        (
            name,
            "deep text" if name in TEXT_PRESETS else "deep run",
            Path(config.data.data).name,
            f"{config.data.m:,}",
            f"{config.projnorm.steps:,}",
            str(config.finetune.epochs),
        )
        for name, config in named.items()
    ]
    say(Table(("preset", "command", "data", "m", "T", "epochs"), rows).text())


def gallery(out: OutOption, drawing: FigureOptions) -> None:
    """Draw one picture under every corruption."""
    from figures.corruption_gallery import draw as draw_gallery
    from figures.style import save

    paths = save(draw_gallery(), out.figures, "corruptions", formats=drawing.formats, width=drawing.width or None)
    say_paths(paths, as_json=out.json)


def _opened(out: OutOption, name: str) -> Run:
    from deep.comparison.runs import open_run

    return open_run(out.root, name)
