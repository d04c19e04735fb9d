"""The neural ProjNorm, the methods it is compared with, the comparison, and the error of your own model.

The class of every method is here too: `deep.COT`, `deep.ATC`, ...
"""

from typing import Any

from projnorm.lazy import attach

_get, _names = attach(
    __name__,
    {
        "DeepConfig": "deep.config",
        "ESTIMATORS": "deep.estimators",
        "ErrorEstimate": "deep.estimate",
        "Estimator": "deep.estimators",
        "METHODS": "deep.config",
        "Outputs": "deep.outputs",
        "PRESETS": "deep.presets",
        "Recipe": "deep.config",
        "Scores": "deep.scores",
        "TextConfig": "deep.config",
        "estimate_error": "deep.estimate",
        "estimate_errors": "deep.estimate",
        "estimator": "deep.estimators",
        "preset": "deep.presets",
        "qualities": "deep.calibration",
        "read_outputs": "deep.outputs",
        "run_comparison": "deep.experiments.comparison",
        "train": "deep.training",
        "train_reference": "deep.projnorm",
    },
)


def __getattr__(name: str) -> Any:
    if name in _names():
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
