"""Commands on the scores of a comparison, finished or not: tables, figures, residuals, ensembles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from projnorm.cli.options import FigureOptions, OutOption
from projnorm.cli.output import say, say_json
from projnorm.config import Config, setting
from projnorm.errors import InputError

if TYPE_CHECKING:
    from deep.runs import Run
    from matplotlib.figure import Figure

_RUN = "Name of a run, or its beginning; the only one there is by default."
_FORMATS = ("text", "markdown", "latex", "csv")


@dataclass(frozen=True)
class ScoresOptions(Config):
    """Which run."""

    run: str = setting("", _RUN, positional=True)


@dataclass(frozen=True)
class TableOptions(Config):
    """Which run, and how its table is written."""

    run: str = setting("", _RUN, positional=True)
    format: str = setting("text", "Format of the table.", choices=_FORMATS)
    targets: bool = setting(False, "Print one row for each target instead of one for each method.")


@dataclass(frozen=True)
class EnsembleOptions(Config):
    """Which run, and which of its methods are combined."""

    run: str = setting("", _RUN, positional=True)
    methods: tuple[str, ...] = setting(
        (), "Methods to combine, such as ProjNorm,ATC; every pair and all of them by default.", repeat=True
    )
    format: str = setting("text", "Format of the table.", choices=_FORMATS)


def table(options: TableOptions, out: OutOption) -> None:
    """Print the table of a run, finished or not."""
    from deep.calibration import qualities
    from figures import deep_table
    from figures.table import FORMATS

    scores = _opened(out, options.run).scores()
    if out.json:
        say_json({"rows": deep_table.values(qualities(scores))})
        return
    say(FORMATS[options.format](deep_table.targets(scores) if options.targets else deep_table.build(scores)))


def draw(options: ScoresOptions, out: OutOption, drawing: FigureOptions) -> None:
    """Draw the figures of a run, finished or not."""
    from figures import deep_scatter, severity

    run = _opened(out, options.run)
    scores = run.scores()
    heading = deep_scatter.heading(run.config, scores)
    _save({"scatter": deep_scatter.draw(scores, heading=heading)}, run.folder, drawing)
    if len(set(scores.severities.tolist())) > 1:
        _save({"severity": severity.draw(scores, heading=heading)}, run.folder, drawing)


def trajectory(options: ScoresOptions, out: OutOption, drawing: FigureOptions) -> None:
    """Draw ProjNorm of a finished run along its training."""
    from figures import deep_scatter, trajectory as figure
    from projnorm.records import load_record

    run = _opened(out, options.run)
    heading = deep_scatter.heading(run.config, run.scores())
    record = load_record(out.root, run.name)
    _save({"trajectory": figure.draw(record, heading=heading)}, run.folder, drawing)


def residuals(options: ScoresOptions, out: OutOption, drawing: FigureOptions) -> None:
    """Correlate what the estimators of a run get wrong: residuals of the error regressed on each score."""
    from deep.residuals import residual_correlations
    from figures import deep_scatter, residuals as figure

    run = _opened(out, options.run)
    scores = run.scores()
    if len(scores.methods) < 2:
        raise InputError(f"{run.name} has one method; residuals need two to compare.")
    found = residual_correlations(scores)
    if out.json:
        say_json({"run": run.name, **figure.values(found)})
    else:
        say(f"{figure.build(found).text()}\n\n{figure.CAPTION}\n")
    heading = deep_scatter.heading(run.config, scores)
    _save({"residuals": figure.draw(found, heading=heading)}, run.folder, drawing, quiet=out.json)


def ensemble(options: EnsembleOptions, out: OutOption) -> None:
    """Predict with several estimators of a run together: means of standardised scores, and stacking."""
    from deep.calibration import qualities
    from deep.ensemble import CAPTION, STACKED, ensembles
    from figures import deep_table
    from figures.table import FORMATS

    run = _opened(out, options.run)
    subsets = [tuple(name.strip() for name in text.split(",")) for text in options.methods]
    together = ensembles(run.scores(), subsets or None)
    if out.json:
        say_json({"run": run.name, "methods": deep_table.values(qualities(together, predicting=(STACKED,)))})
        return
    say(FORMATS[options.format](deep_table.build(together)))
    if options.format == "text":
        say(f"\n{deep_table.CAPTION} {CAPTION}")


def presets(out: OutOption) -> None:
    """List the configurations that have a name, for `projnorm deep run` and `projnorm deep text`."""
    from deep.presets import PRESETS, TEXT_PRESETS
    from figures.table import Table

    named = {**PRESETS, **TEXT_PRESETS}
    if out.json:
        say_json({name: config.to_json() for name, config in named.items()})
        return
    rows = [
        (
            name,
            "deep text" if name in TEXT_PRESETS else "deep run",
            Path(config.data.data).name,
            f"{config.data.m:,}",
            f"{config.projnorm.recipe.steps:,}",
            str(config.finetune.epochs),
        )
        for name, config in named.items()
    ]
    say(Table(("preset", "command", "data", "m", "T", "epochs"), rows).text())


def gallery(out: OutOption, drawing: FigureOptions) -> None:
    """Draw one picture under every corruption."""
    from figures import corruption_gallery

    _save({"corruptions": corruption_gallery.draw()}, Path(out.out) / "figures", drawing)


def _opened(out: OutOption, name: str) -> Run:
    from deep.runs import open_run

    return open_run(out.root, name)


def _save(figures: dict[str, Figure], folder: Path, options: FigureOptions, *, quiet: bool = False) -> None:
    from figures.style import save

    for name, figure in figures.items():
        for path in save(figure, folder, name, formats=options.formats, width=options.width or None):
            if not quiet:
                say(path)
