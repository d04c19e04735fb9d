"""The registry of experiments: for each its command, configuration, run function, and what shows its record.

Everything is named by text, ``module:name``, and imported when it is used, so that looking at the registry is free.
A new experiment is one entry here; its command with all flags and ``projnorm runs verify`` follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from projnorm import __version__
from projnorm.core.errors import ChangedInputError, InputError
from projnorm.core.lazy import load

if TYPE_CHECKING:
    from projnorm.core.config import Config
    from projnorm.core.records import Record, RunContext


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run will compute, worked out before anything is computed; `--dry-run` prints it.

    Attributes:
        rows: Each quantity of the whole run with its value, as text to read.
        parts: One row of a table, by its columns, for each part of the work.
        notes: Sentences on what the numbers do not show.
        values: The quantities as plain numbers, for JSON.
    """

    rows: tuple[tuple[str, str], ...]
    parts: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment."""

    kind: str  # of its records
    command: str  # empty where another command, or the report, runs it
    summary: str  # one line for the list of commands
    config: str  # class of its configuration
    run: str  # function of a configuration and a `RunContext` that gives the record
    show: str  # function of a record and its folder that gives a `figures.report.Report`
    presets: str = ""  # named configurations, one of which the command takes by position
    analyse: str = ""  # as `show`, for --analyse: what else the record says
    replay: str = ""  # function of a file that a run saved, for --replay: a `figures.report.Report` about it
    plan: str = ""  # function of a configuration and a `RunContext` that gives a `RunPlan`
    download: str = ""  # function of a configuration that fetches its data or weights
    device: bool = False  # whether it computes on the device of the context
    memory: bool = False  # whether it keeps to the memory of the context
    module: str = ""  # where it is no command of ``projnorm``, the module that Python runs

    @property
    def program(self) -> str:
        """The command that runs the experiment in a shell."""
        return f"python -m {self.module}" if self.module else f"projnorm {self.command}"

    @property
    def config_class(self) -> type[Config]:
        """The configuration class."""
        return resolve(self.config)

    def compute(self, config: Config, context: RunContext) -> Record:
        """Run the experiment, or find its record."""
        return resolve(self.run)(config, context)


EXPERIMENTS = (
    Experiment(
        "toy",
        "toy",
        "Run the Gaussian toy experiment of the paper, or a sibling.",
        "simulations.toy:ToyConfig",
        "simulations.toy:run_toy",
        "figures.toy:show",
    ),
    Experiment(
        "bound",
        "bound",
        "Verify the intervals for the test loss on many designs.",
        "simulations.bound_check:BoundConfig",
        "simulations.bound_check:run_bound_check",
        "figures.bound:show",
        replay="figures.bound:show_instance",
    ),
    Experiment(
        "intervals",
        "intervals",
        "Compare how wide and how right the intervals are.",
        "simulations.interval_widths:IntervalWidthsConfig",
        "simulations.interval_widths:run_interval_widths",
        "figures.interval_widths:show",
    ),
    Experiment(
        "counterexample",
        "",
        "Tails that meet in zero without being orthogonal.",
        "simulations.counterexample:CounterexampleConfig",
        "simulations.counterexample:run_counterexample",
        "figures.theory_figures:show_counterexample",
    ),
    Experiment(
        "tail-angle",
        "",
        "The three intervals against the angle between the tails.",
        "simulations.tail_angle:TailAngleConfig",
        "simulations.tail_angle:run_tail_angle",
        "figures.theory_figures:show_tail_angle",
    ),
    Experiment(
        "spectra",
        "",
        "Eigenvalue decay and alignment on a design of known structure.",
        "simulations.spectra_example:SpectraConfig",
        "simulations.spectra_example:run_spectra_example",
        "figures.theory_figures:show_spectra",
    ),
    Experiment(
        "ntk",
        "ntk predict",
        "Compare ProjNormLinear on tangent kernels with the error.",
        "ntk.experiments.config:NtkConfig",
        "ntk.experiments.experiment:run_analysis",
        "figures.ntk_experiment:show_predictions",
        analyse="figures.ntk_experiment:show_analysis",
        plan="ntk.experiments.plan:plan_kernels",
        device=True,
        memory=True,
    ),
    Experiment(
        "ntk-gram",
        "ntk gram",
        "Compute exact tangent kernels, tile by tile.",
        "ntk.experiments.config:GramConfig",
        "ntk.experiments.experiment:run_gram",
        "figures.ntk_experiment:show_gram",
        plan="ntk.experiments.plan:plan_kernels",
        device=True,
        memory=True,
    ),
    Experiment(
        "ntk-subsample",
        "ntk subsample",
        "Compare sampled and projected kernels with the exact one.",
        "ntk.experiments.config:SubsampleConfig",
        "ntk.experiments.subsample:run_subsample",
        "figures.ntk_subsample:show",
        device=True,
        memory=True,
    ),
    Experiment(
        "deep",
        "deep run",
        "Fine-tune a network and compare estimators on shifted data.",
        "deep.comparison.config:DeepConfig",
        "deep.comparison.comparison:run_comparison",
        "figures.comparison:show",
        presets="deep.comparison.presets:PRESETS",
        plan="deep.comparison.plan:plan_run",
        download="deep.comparison.modality:download",
        device=True,
    ),
    Experiment(
        "deep-text",
        "",
        "The same comparison on texts.",
        "deep.comparison.config:TextConfig",
        "deep.comparison.comparison:run_comparison",
        "figures.comparison:show",
        device=True,
    ),
    Experiment(
        "deep-sweep",
        "deep analyse sweep",
        "ProjNorm of a run under other settings, one changed at a time.",
        "deep.comparison.analysis_config:SweepConfig",
        "deep.comparison.sweep:run_sweep",
        "figures.sweep:show",
        device=True,
    ),
    Experiment(
        "deep-ntk",
        "deep analyse ntk",
        "Compare ProjNormLinear on tangent kernels with the error of a run's network.",
        "deep.comparison.analysis_config:NtkPredictConfig",
        "deep.comparison.kernels_of_run:run_ntk_predict",
        "figures.ntk_variants:show",
        device=True,
        memory=True,
    ),
    Experiment(
        "deep-adversarial",
        "deep analyse adversarial",
        "Estimate the error of a run's network under attack.",
        "deep.comparison.analysis_config:AdversarialConfig",
        "deep.comparison.adversarial:run_adversarial",
        "figures.stress:show",
        device=True,
    ),
    Experiment(
        "deep-label-shift",
        "deep analyse label-shift",
        "Estimate the error of a run's network on other mixtures of the classes.",
        "deep.comparison.analysis_config:LabelShiftConfig",
        "deep.comparison.label_shift:run_label_shift",
        "figures.stress:show",
        device=True,
    ),
)


def experiment(kind: str) -> Experiment:
    """The experiment whose records are of this kind."""
    for entry in EXPERIMENTS:
        if entry.kind == kind:
            return entry
    kinds = ", ".join(dict.fromkeys(entry.kind for entry in EXPERIMENTS))
    raise InputError(f"there is no experiment of the kind {kind!r}; there are {kinds}.")


def resolve(name: str) -> Any:
    """The object called ``module:name``, whose module is imported."""
    module, _, attribute = name.partition(":")
    return getattr(load(module), attribute)


def recompute(
    record: Record, context: RunContext, *, beside: Path, announce: Callable[[str], None] = lambda _: None
) -> Record:
    """Compute a record again from its configuration alone; with the device "auto", on that of the record.

    The run that the record is about, if there is one, is described `beside` it, in the folder that holds them. Nothing
    is written there. `announce` is called with a line before each step of several.
    """
    from projnorm.core.records import load_record
    from projnorm.core.verification import changed_inputs, flat_facts

    if (version := record.environment.get("projnorm")) != __version__:
        raise InputError(f"{record.id} was made by projnorm {version}; numbers of {__version__} may differ.")
    if program := record.facts.get("made_by"):
        raise InputError(
            f"{record.id} was made by `{program}`, which is not installed; `{program} --fresh` makes it again."
        )
    chosen = experiment(record.kind)
    config = chosen.config_class.from_json(record.config)
    if context.device == "auto":
        context = replace(context, device=str(flat_facts(record.facts).get("device", "auto")))
    if run := getattr(config, "run", ""):
        announce(f"{run}, which the record is about, is computed again first")
        recompute(load_record(beside, run), context, beside=beside)
    again = chosen.compute(config, context)
    if changed := changed_inputs(record.facts, again.facts):
        raise ChangedInputError(f"{', '.join(changed)} of {record.id} are not what they were: their hashes differ.")
    return again
