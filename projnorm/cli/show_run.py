"""`projnorm runs show`: the settings and facts of a run, or its table, figures, trajectory, residuals or ensembles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from projnorm.cli.options import FigureOptions, OutOption
from projnorm.cli.output import answer, say, say_json, say_paths, write_figures
from projnorm.core.config import Config, setting
from projnorm.core.errors import InputError
from projnorm.core.records import flat, load_record, match_run

if TYPE_CHECKING:
    from deep.comparison.runs import Run
    from figures.report import Report

_COMPARISONS = ("deep", "deep-text")
# Name of the table with a row for each target.
_TARGETS = "targets"
_RECORD, _TABLE, _FIGURES = "record", "table", "figures"
_OF_COMPARISONS = (_TRAJECTORY, _RESIDUALS, _ENSEMBLE) = ("trajectory", "residuals", "ensemble")


@dataclass(frozen=True)
class ShowOptions(Config):
    """Which run, and what of it."""

    name: str = setting("", "Name of a run, or its beginning; the only one there is by default.", positional=True)
    what: str = setting(
        _RECORD,
        "record: settings, environment, facts and arrays; table: the numbers of its figures; figures: draw them again. "
        "Of a run of `projnorm deep run` also trajectory: ProjNorm along its training; residuals: what its methods get "
        "wrong together; ensemble: several of its methods combined.",
        choices=(_RECORD, _TABLE, _FIGURES, *_OF_COMPARISONS),
    )
    format: str = setting("text", "Format of a table.", choices=("text", "markdown", "latex", "csv"))
    targets: bool = setting(False, "One row of the table for each target instead of one for each method.")
    methods: tuple[str, ...] = setting(
        (),
        "Methods that an ensemble combines, such as ProjNorm,ATC; every pair and all of them by default.",
        repeat=True,
    )

    def check(self) -> None:
        """Refuse options of another choice, which would be ignored."""
        for name, choices in (("format", (_TABLE, _ENSEMBLE)), ("targets", (_TABLE,)), ("methods", (_ENSEMBLE,))):
            if getattr(self, name) != getattr(type(self), name) and self.what not in choices:
                raise InputError(f"`{name}` is for `what` {' and '.join(choices)}; got {self.what}.")


def show(options: ShowOptions, out: OutOption, drawing: FigureOptions) -> None:
    """Show one run: its record, or its table, figures, trajectory, residuals or ensembles.

    The table and figures of a comparison can be shown before it is finished.
    """
    if options.what in _OF_COMPARISONS:
        _show_comparison(options.name, options, out, drawing)
        return
    name = match_run(out.root, options.name)
    if options.what == _RECORD:
        _show_record(name, out)
    elif name.rpartition("-")[0] in _COMPARISONS:
        _show_comparison(name, options, out, drawing)
    else:
        from projnorm.core.experiments import experiment, resolve

        record, folder = load_record(out.root, name), out.root / name
        _show_report(resolve(experiment(record.kind).show)(record, folder), name, options, out, drawing)


def _show_record(name: str, out: OutOption) -> None:
    """Configuration, environment, facts, and what the arrays hold."""
    record = load_record(out.root, name)
    shapes = {key: list(array.shape) for key, array in record.arrays.items()}
    if out.json:
        say_json({**record.to_dict(), "shapes": shapes})
        return
    say(f"{record.id}, finished {record.created} after {record.wall_seconds:.1f} s")
    for title, entries in (("Settings", record.config), ("Environment", record.environment), ("Facts", record.facts)):
        if entries:
            say(f"\n{title}")
            for key, value in flat(entries):
                say(f"  {key}: {value}")
    say("\nArrays")
    for key, shape in shapes.items():
        say(f"  {key} {tuple(shape)}: {record.meanings[key]}")


def _show_comparison(beginning: str, options: ShowOptions, out: OutOption, drawing: FigureOptions) -> None:
    """What the scores of a comparison say, finished or not."""
    from deep.comparison.runs import open_run
    from figures import comparison

    run = open_run(out.root, beginning)
    if options.what == _TRAJECTORY:
        report = comparison.show_trajectory(load_record(out.root, run.name), run.folder)
        say_paths(write_figures(report, run.folder, drawing), as_json=out.json)
    elif options.what == _RESIDUALS:
        _show_residuals(run, out, drawing)
    elif options.what == _ENSEMBLE:
        subsets = [tuple(method.strip() for method in text.split(",")) for text in options.methods]
        _show_report(comparison.show_ensembles(run.scores(), subsets or None), run.name, options, out, drawing)
    else:
        _show_report(comparison.show_scores(run.config.to_json(), run.scores()), run.name, options, out, drawing)


def _show_residuals(run: Run, out: OutOption, drawing: FigureOptions) -> None:
    from figures.comparison import show_residuals

    report = show_residuals(run.config.to_json(), run.scores())
    paths = write_figures(report, run.folder, drawing)
    answer(report, {"run": run.name, "figures": list(map(str, paths))}, as_json=out.json)
    if not out.json:
        say(f"\nFigures in {run.folder}")


def _show_report(report: Report, name: str, options: ShowOptions, out: OutOption, drawing: FigureOptions) -> None:
    """The figures of a report, or its tables in the format asked for."""
    from figures.table import FORMATS, Table

    if options.what == _FIGURES:
        if not report.figures:
            raise InputError(f"{name} has no figure; show its `what` record.")
        say_paths(write_figures(report, Path(out.root) / name, drawing), as_json=out.json)
        return
    tables = [block for block in report.blocks if isinstance(block, Table)]
    if options.targets:
        if _TARGETS not in report.tables:
            raise InputError(f"`targets` is for runs of `projnorm deep run`; {name} is none.")
        tables = [report.tables[_TARGETS]]
    if not tables:
        raise InputError(f"{name} has no table; show its `what` figures.")
    if options.format != "text" or options.what == _TABLE:
        report = replace(report, blocks=[FORMATS[options.format](table) for table in tables])
    answer(report, {"run": name}, as_json=out.json)
