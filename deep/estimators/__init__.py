"""Methods that predict the error of a model on unlabelled data; each is a file in this folder and needs nothing else.

`ESTIMATORS` has them by name; the package imports every module of its folder, so a new file registers itself.
"""

from importlib import import_module
from pkgutil import iter_modules

from deep.estimators.base import ESTIMATORS, LEARNT, Estimator, Resources, build, estimator, register

__all__ = ["ESTIMATORS", "LEARNT", "Estimator", "Resources", "build", "estimator", "register"]

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
