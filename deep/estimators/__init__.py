"""Methods that predict the error of a model on unlabelled data; each is a file in this folder and needs nothing else.

`ESTIMATORS` has them by name; the package imports every module of its folder, so a new file registers itself.
"""

from deep.estimators.base import ESTIMATORS, LEARNT, Estimator, Resources, build, estimator, import_methods, register

__all__ = ["ESTIMATORS", "LEARNT", "Estimator", "Resources", "build", "estimator", "register"]

import_methods(__name__, __path__)
