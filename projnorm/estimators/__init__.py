"""Methods that predict the error of a model from its outputs on unlabelled data, one file each.

`ESTIMATORS` has every method by name, the four of `deep` that train too, and imports one when it is used.
"""

from typing import TYPE_CHECKING

from projnorm.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    from projnorm.estimators.aline import ALineD, ALineS
    from projnorm.estimators.atc import ATC
    from projnorm.estimators.base import LEARNT, Estimator, Resources, SupervisedEstimator, register
    from projnorm.estimators.bbse import BBSE, RLLS
    from projnorm.estimators.cbpe import CBPE
    from projnorm.estimators.class_feature_shift import ClassFeatureShift
    from projnorm.estimators.conf_score import ConfScore
    from projnorm.estimators.cot import COT, COTT
    from projnorm.estimators.dispersion import Dispersion
    from projnorm.estimators.doc import AC, DoC
    from projnorm.estimators.entropy import Entropy
    from projnorm.estimators.feature_shift import FeatureShift
    from projnorm.estimators.frechet import Frechet
    from projnorm.estimators.gd_score import GdScore
    from projnorm.estimators.gde import GDE
    from projnorm.estimators.importance import ImportanceWeighting
    from projnorm.estimators.mano import MaNo
    from projnorm.estimators.mde import MDE
    from projnorm.estimators.mlls import COTMLLS, MLLS, COTAdapted
    from projnorm.estimators.mutual_information import MutualInformation
    from projnorm.estimators.nuclear_norm import NuclearNorm
    from projnorm.estimators.pape import PAPE
    from projnorm.estimators.projnorm_linear import ProjNormLinearEstimator, ProjNormLinearMatched
    from projnorm.estimators.registry import ESTIMATORS, build, estimator
