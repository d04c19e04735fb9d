"""Every experiment as a command: its settings become flags, its record is found or computed, and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from projnorm.cli.options import (
    AnalyseOption,
    DeviceOption,
    DownloadOption,
    FigureOptions,
    MemoryOption,
    OutOption,
    Parser,
    PlanOption,
    ReplayOption,
    RunOptions,
    make_parser,
    parse,
)
from projnorm.cli.output import answer, say, write_figures
from projnorm.core.backends import Backend
from projnorm.core.config import Config, read_toml
from projnorm.core.environment import available_cores
from projnorm.core.errors import InputError
from projnorm.core.experiments import Experiment, resolve
from projnorm.core.files import physical_memory
from projnorm.core.records import RunContext, flat

_CONFIG = "--config"
# Options that only some experiments have, by the field of `Experiment` that says so.
_OPTIONAL = {
    "device": DeviceOption,
    "memory": MemoryOption,
    "analyse": AnalyseOption,
    "download": DownloadOption,
    "plan": PlanOption,
    "replay": ReplayOption,
}


def run_experiment(experiment: Experiment, argv: Sequence[str]) -> int:
    """Run an experiment with the options of a command line; returns the exit code."""
    preset, file, rest = _sources(experiment, argv)
    presets = resolve(experiment.presets) if experiment.presets else {}
    if preset and preset not in presets:
        raise InputError(f"PRESET must be one of {', '.join(presets)}; got {preset!r}.")
    base: Config | None = presets.get(preset)
    document = read_toml(file) if file is not None else {}
    own = _config_class(experiment, presets, base, document)
    classes = command_classes(experiment, own)
    parser = experiment_parser(experiment, base, own)
    settings, *documents = parse(parser, rest, classes)
    options: dict[type[Config], Any] = {c: c.from_json(d) for c, d in zip(classes[1:], documents, strict=True)}
    if presets and not (preset or file):
        raise InputError(f"PRESET must be one of {', '.join(presets)}; or give {_CONFIG} FILE.")
    if file is not None:
        base = own.from_json(document, base)
    config = own.from_json(settings, base)
    out = options[OutOption]
    context = run_context(out, options[RunOptions], options.get(DeviceOption), options.get(MemoryOption))
    if experiment.replay and (saved := options[ReplayOption].replay):
        return answer(resolve(experiment.replay)(Path(saved)), as_json=out.json)
    if experiment.plan and options[PlanOption].dry_run:
        from figures.run_plan import show as show_plan

        return answer(show_plan(resolve(experiment.plan)(config, context)), as_json=out.json)
    if experiment.download and options[DownloadOption].download:
        resolve(experiment.download)(config)
    from figures.report import save_tables

    record = experiment.compute(config, context)
    folder = context.root / record.id
    analysed = experiment.analyse and options[AnalyseOption].analyse
    report = resolve(experiment.analyse if analysed else experiment.show)(record, folder)
    paths = write_figures(report, folder, options[FigureOptions])
    save_tables(report, folder)
    files = {"record": str(folder), "figures": [str(path) for path in paths]}
    code = answer(report, {**record.to_dict(), **files}, as_json=out.json)
    if not out.json:
        say(f"\nRecord and figures in {folder}")
    return code


def experiment_parser(experiment: Experiment, base: Config | None = None, own: type[Config] | None = None) -> Parser:
    """The parser of an experiment's command; `base` has the defaults, and `own` is the class of the settings."""
    description = f"{experiment.summary} A run is computed task by task, and resumes where it was interrupted."
    parser = make_parser(experiment.program, description, command_classes(experiment, own), base)
    if experiment.presets:
        names = ", ".join(resolve(experiment.presets))
        parser.add_argument(
            "PRESET",
            nargs="?",
            help=f"Named configuration: {names}. PRESET --help shows its options and defaults.",
        )
    parser.add_argument(_CONFIG, metavar="FILE", help="TOML file with settings, such as the config.toml of a run.")
    return parser


def command_classes(experiment: Experiment, own: type[Config] | None = None) -> list[type[Config]]:
    """The configuration classes of an experiment's command, that of its settings first: by default its first one."""
    optional = [options for field, options in _OPTIONAL.items() if getattr(experiment, field)]
    return [own or experiment.config_class, OutOption, FigureOptions, RunOptions, *optional]


def _config_class(
    experiment: Experiment, presets: Mapping[str, Config], base: Config | None, document: Mapping[str, Any]
) -> type[Config]:
    """The class of the settings: that of the preset, or the one of those of all presets that fits a file best."""
    classes = [experiment.config_class, *map(type, presets.values())]
    if base is not None or len(set(classes)) == 1:
        return experiment.config_class if base is None else type(base)
    names = {name for name, _ in flat(document)}
    return max(dict.fromkeys(classes), key=lambda cls: len(names & {name for name, _ in flat(cls().to_json())}))


def run_context(
    out: OutOption, run: RunOptions, device: DeviceOption | None = None, memory: MemoryOption | None = None
) -> RunContext:
    """The context that the options of a command describe: by default a worker for each core, and memory for them."""
    workers = run.workers or available_cores()
    if memory is not None and not run.workers:
        workers = max(1, min(workers, int(physical_memory() / 1e9 // memory.memory)))
    context = RunContext(out.root, Backend(workers, run.scheduler), (device or DeviceOption()).device, fresh=run.fresh)
    return context if memory is None else replace(context, memory=memory.memory * 1e9)


def _sources(experiment: Experiment, argv: Sequence[str]) -> tuple[str, Path | None, list[str]]:
    """The preset and the file that settings start from, and the other words."""
    rest, preset = list(argv), ""
    if experiment.presets and rest and not rest[0].startswith("-"):
        preset = rest.pop(0)
    parser = Parser(prog=experiment.program, add_help=False)
    parser.add_argument(_CONFIG, type=Path)
    known, others = parser.parse_known_args(rest)
    return preset, known.config, others
