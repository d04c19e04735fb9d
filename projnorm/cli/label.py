"""`projnorm label`: which samples to label, and whether there are labels enough."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from projnorm.cli.model_data import (
    EstimateFlags,
    EstimatorOption,
    ModelData,
    ModelOptions,
    SourceOptions,
    require_source,
)
from projnorm.cli.output import say, say_json
from projnorm.core.config import Config, setting
from projnorm.core.errors import InputError

_OUT = "to_label.csv"


@dataclass(frozen=True)
class LabelOptions(Config):
    """What is to be labelled."""

    target: str = setting(help="Unlabelled samples.")
    budget: int = setting(50, "Number of samples to label; with --more, of further ones.", least=1)
    out: str = setting(
        "", "CSV file whose column label is to be filled in, from the top; that of --more, or to_label.csv, by default."
    )
    more: str = setting("", "File of this command that is partly or wholly filled in: the new file continues it.")
    until_width: float | None = setting(
        None, "With --more: stop once the interval is narrower than this, such as 0.1.", above=0.0, below=1.0
    )
    until_side: float | None = setting(
        None, "With --more: stop once the interval is above or below this error, such as 0.2.", above=0.0, below=1.0
    )
    json: bool = setting(False, "Print machine-readable output only.")

    def check(self) -> None:
        """When to stop is decided by labels."""
        if not self.more and (self.until_width is not None or self.until_side is not None):
            raise InputError("`until_width` and `until_side` are for `more`.")


def label(
    data: SourceOptions,
    estimator: EstimatorOption,
    model: ModelOptions,
    settings: EstimateFlags,
    options: LabelOptions,
) -> int:
    """Choose which samples of a target to label, so that few labels say much about the error.

    The samples are written to a file; fill in its column `label` and pass it to `projnorm estimate --labelled`. To
    label until the error is known well enough, pass the file back with --more and say when to stop: the interval that
    is printed holds however often you look. The exit code is 0 when labelling may stop, or there is no such condition,
    and 1 when more samples were chosen.
    """
    require_source(data, estimator)
    files = filter(None, [data.source, estimator.estimator, options.target, options.more, *data.calibration])
    opened = ModelData(model, files, label_column=data.label_column, seed=settings.seed)
    target = opened.read(options.target)
    from projnorm.estimate.choose_labels import chosen_samples
    from projnorm.estimate.error_estimator import ErrorEstimator
    from projnorm.labels.plan import LabelPlan

    out = Path(options.out or options.more or _OUT)
    if out.exists() and not (options.more and out.samefile(options.more)):
        raise InputError(f"{out}: exists; continue it with `more`, or name another file as `out`.")
    more, has_goal = None, options.until_width is not None or options.until_side is not None
    if options.more:
        more = LabelPlan.read(options.more)
        if has_goal and not more.is_labelled.any():
            raise InputError(f"{options.more}: has no label yet; fill in the column label.")
    if estimator.estimator:
        fitted = opened.load(estimator.estimator)
    else:
        source = opened.labelled(data.source)
        estimate_options = opened.options(data.calibration, settings)
        fitted = ErrorEstimator.from_options(opened.model, source, estimate_options)
    outputs = fitted.outputs_of(target, "target").without_labels()
    estimate = None
    if more is not None and more.is_labelled.any():
        estimate = fitted.estimate(outputs, labelled=more, interval="anytime")
        is_enough = options.until_width is not None and estimate.high - estimate.low <= options.until_width
        side = options.until_side
        if is_enough or (side is not None and not estimate.low <= side <= estimate.high):
            _tell(
                options, {"stop": True, "written": None, "estimate": estimate.to_dict()}, [str(estimate), "Stop here."]
            )
            return 0
    plan = chosen_samples(fitted, outputs, options.budget, more=more)
    plan.write(out)
    chosen = len(plan) - (0 if more is None else len(more))
    lines = [] if estimate is None else [str(estimate)]
    lines.append(f"{out}: {chosen:,} samples to label, chosen from {len(outputs):,}; fill in the column label.")
    document = {"stop": False, "written": str(out), "estimate": None if estimate is None else estimate.to_dict()}
    _tell(options, document, lines)
    return int(has_goal)


def _tell(options: LabelOptions, document: dict[str, object], lines: list[str]) -> None:
    if options.json:
        say_json(document)
    else:
        say("\n".join(lines))
