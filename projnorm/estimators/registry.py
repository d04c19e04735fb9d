"""Every method by name, imported when it is first used, and the one way to build one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from projnorm.core.errors import InputError
from projnorm.estimators.base import REGISTERED, Estimator, Resources
from projnorm.outputs.outputs import Outputs

# The module that registers each method; a new method is a file and a line here.
_MODULES = {
    "AC": "projnorm.estimators.doc",
    "AgreeScore": "deep.estimators.agree_score",
    "ALine-D": "projnorm.estimators.aline",
    "ALine-S": "projnorm.estimators.aline",
    "ATC": "projnorm.estimators.atc",
    "BBSE": "projnorm.estimators.bbse",
    "CBPE": "projnorm.estimators.cbpe",
    "ClassFeatureShift": "projnorm.estimators.class_feature_shift",
    "ConfScore": "projnorm.estimators.conf_score",
    "COT": "projnorm.estimators.cot",
    "COT-adapted": "projnorm.estimators.mlls",
    "COT-MLLS": "projnorm.estimators.mlls",
    "COTT": "projnorm.estimators.cot",
    "Dis2": "deep.estimators.dis2",
    "Dispersion": "projnorm.estimators.dispersion",
    "DoC": "projnorm.estimators.doc",
    "Entropy": "projnorm.estimators.entropy",
    "FeatureShift": "projnorm.estimators.feature_shift",
    "Frechet": "projnorm.estimators.frechet",
    "GDE": "projnorm.estimators.gde",
    "GdScore": "projnorm.estimators.gd_score",
    "IM": "projnorm.estimators.importance",
    "MaNo": "projnorm.estimators.mano",
    "MDE": "projnorm.estimators.mde",
    "MI": "projnorm.estimators.mutual_information",
    "MLLS": "projnorm.estimators.mlls",
    "NuclearNorm": "projnorm.estimators.nuclear_norm",
    "PAPE": "projnorm.estimators.pape",
    "ProjNorm": "deep.estimators.projnorm",
    "ProjNorm-matched": "deep.estimators.projnorm",
    "ProjNormLinear": "projnorm.estimators.projnorm_linear",
    "ProjNormLinear-matched": "projnorm.estimators.projnorm_linear",
    "RLLS": "projnorm.estimators.bbse",
    "Rotation": "deep.estimators.rotation",
}


class _Registry(Mapping[str, type[Estimator]]):
    """The classes of the methods by name, in alphabetical order, with those that a user registered."""

    def __getitem__(self, name: str) -> type[Estimator]:
        if name not in REGISTERED and name in _MODULES:
            import_module(_MODULES[name])
        return REGISTERED[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*_MODULES, *REGISTERED}, key=str.lower))

    def __len__(self) -> int:
        return len({*_MODULES, *REGISTERED})


ESTIMATORS: Mapping[str, type[Estimator]] = _Registry()


def estimator(name: str) -> type[Estimator]:
    """The class of a method, whatever the case of its name.

    Raises:
        InputError: If there is none of this name.
    """
    known = next((known for known in ESTIMATORS if known.lower() == name.lower()), None)
    if known is None:
        raise InputError(f"there is no method {name!r}; there are {', '.join(ESTIMATORS)}.")
    return ESTIMATORS[known]


def build(name: str, resources: Resources, source: Outputs) -> Estimator:
    """A method by name, fitted to labelled in-distribution samples."""
    method = estimator(name)
    if lack := method.lacking(source, resources):
        raise InputError(f"{method.name} needs {lack}.")
    return method.create(resources).fit(source)
