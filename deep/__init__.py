"""The neural ProjNorm, the methods it is compared with, the comparison, and the error of your own model.

Everything is imported when it is first used. The class of every method is here too: `deep.COT`, `deep.ATC`, ...
"""

from typing import TYPE_CHECKING, Any

from projnorm.lazy import attach

_NAMES = {
    "ESTIMATORS": "deep.estimators",
    "METHODS": "deep.config",
    "PRESETS": "deep.presets",
    "TEXT_PRESETS": "deep.presets",
    "AdversarialConfig": "deep.experiments.config",
    "DeepConfig": "deep.config",
    "ErrorEstimate": "deep.estimate",
    "Estimator": "deep.estimators",
    "ImageData": "deep.config",
    "ImageNetwork": "projnorm.vision.settings",
    "LabelShiftConfig": "deep.experiments.config",
    "NtkPredictConfig": "deep.experiments.config",
    "Outputs": "deep.outputs",
    "ProjNormConfig": "deep.config",
    "Quality": "deep.calibration",
    "Recipe": "deep.config",
    "RotationConfig": "deep.config",
    "Scores": "deep.scores",
    "SmallSamplesConfig": "deep.experiments.config",
    "SweepConfig": "deep.experiments.config",
    "TextConfig": "deep.config",
    "TextData": "deep.config",
    "TextNetwork": "deep.config",
    "estimate_error": "deep.estimate",
    "estimate_errors": "deep.estimate",
    "estimator": "deep.estimators",
    "forward": "deep.forward",
    "open_run": "deep.runs",
    "preset": "deep.presets",
    "qualities": "deep.calibration",
    "read_outputs": "deep.outputs",
    "run_adversarial": "deep.experiments.adversarial",
    "run_comparison": "deep.experiments.comparison",
    "run_costs": "deep.costs",
    "run_label_shift": "deep.experiments.label_shift",
    "run_ntk_predict": "deep.experiments.ntk_predict",
    "run_small_samples": "deep.experiments.small_samples",
    "run_sweep": "deep.experiments.sweep",
    "text_preset": "deep.presets",
    "train": "deep.training",
    "train_reference": "deep.projnorm",
}
_get, _names = attach(__name__, _NAMES)
__all__ = [*_NAMES]

if TYPE_CHECKING:
    from deep.calibration import Quality, qualities
    from deep.config import (
        METHODS,
        DeepConfig,
        ImageData,
        ProjNormConfig,
        Recipe,
        RotationConfig,
        TextConfig,
        TextData,
        TextNetwork,
    )
    from deep.costs import run_costs
    from deep.estimate import ErrorEstimate, estimate_error, estimate_errors
    from deep.estimators import ESTIMATORS, Estimator, estimator
    from deep.estimators.atc import ATC
    from deep.estimators.cot import COT, COTT
    from deep.estimators.doc import AC, DoC
    from deep.estimators.projnorm import ProjNorm
    from deep.experiments.adversarial import run_adversarial
    from deep.experiments.comparison import run_comparison
    from deep.experiments.config import (
        AdversarialConfig,
        LabelShiftConfig,
        NtkPredictConfig,
        SmallSamplesConfig,
        SweepConfig,
    )
    from deep.experiments.label_shift import run_label_shift
    from deep.experiments.ntk_predict import run_ntk_predict
    from deep.experiments.small_samples import run_small_samples
    from deep.experiments.sweep import run_sweep
    from deep.forward import forward
    from deep.outputs import Outputs, read_outputs
    from deep.presets import PRESETS, TEXT_PRESETS, preset, text_preset
    from deep.projnorm import train_reference
    from deep.runs import open_run
    from deep.scores import Scores
    from deep.training import train
    from projnorm.vision.settings import ImageNetwork


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return _get(name)
    if name[:1].isupper() and name in (classes := _estimators()):
        return classes[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_names(), *_estimators()])


def _estimators() -> dict[str, Any]:
    """The classes of the methods by their names."""
    from deep.estimators import ESTIMATORS

    return {one.__name__: one for one in ESTIMATORS.values()}
