"""The neural ProjNorm, the methods it is compared with, the comparison, and the error of your own model.

Everything is imported when it is first used.
"""

import sys
from typing import TYPE_CHECKING, Any

from projnorm.lazy import attach

_get, __dir__, __all__ = attach(__name__, __file__)


def __getattr__(name: str) -> Any:
    """What the package imports; else the class of this name that a user registered as an estimator."""
    known = {} if name in __all__ else getattr(sys.modules.get("deep.estimators.base"), "ESTIMATORS", {})
    return next((one for one in known.values() if one.__name__ == name), None) or _get(name)


if TYPE_CHECKING:
    from deep.benchmark.experiment import BenchmarkConfig, run_benchmark
    from deep.benchmark.leaderboard import Standing, standings
    from deep.calibration import Quality, qualities
    from deep.config import (
        METHODS,
        DeepConfig,
        ImageData,
        ProjNormConfig,
        RotationConfig,
        TextConfig,
        TextData,
        TextNetwork,
    )
    from deep.costs import run_costs
    from deep.estimate import ErrorEstimate, estimate_error, estimate_errors
    from deep.estimate.fitted import ErrorEstimator
    from deep.estimators import ESTIMATORS, Estimator, estimator
    from deep.estimators.agree_score import AgreeScore
    from deep.estimators.aline import ALineD, ALineS
    from deep.estimators.atc import ATC
    from deep.estimators.bbse import BBSE, RLLS
    from deep.estimators.cbpe import CBPE
    from deep.estimators.class_feature_shift import ClassFeatureShift
    from deep.estimators.conf_score import ConfScore
    from deep.estimators.cot import COT, COTT
    from deep.estimators.dis2 import Dis2
    from deep.estimators.dispersion import Dispersion
    from deep.estimators.doc import AC, DoC
    from deep.estimators.entropy import Entropy
    from deep.estimators.feature_shift import FeatureShift
    from deep.estimators.frechet import Frechet
    from deep.estimators.gd_score import GdScore
    from deep.estimators.gde import GDE
    from deep.estimators.importance import ImportanceWeighting
    from deep.estimators.mano import MaNo
    from deep.estimators.mde import MDE
    from deep.estimators.mlls import COTMLLS, MLLS, COTAdapted
    from deep.estimators.mutual_information import MutualInformation
    from deep.estimators.nuclear_norm import NuclearNorm
    from deep.estimators.pape import PAPE
    from deep.estimators.projnorm import ProjNorm
    from deep.estimators.projnorm_linear import ProjNormLinear, ProjNormLinearMatched
    from deep.estimators.rotation import Rotation
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
    from deep.labels.choose import choose_labels
    from deep.labels.plan import LabelPlan
    from deep.monitor.alarm import Alarm
    from deep.monitor.batch_report import BatchReport
    from deep.monitor.monitor import Monitor
    from deep.outputs import Outputs, read_outputs
    from deep.presets import PRESETS, TEXT_PRESETS, preset, text_preset
    from deep.projnorm import train_reference
    from deep.recipe import Recipe
    from deep.runs import open_run
    from deep.scores import Scores
    from deep.training import train
    from projnorm.vision.settings import ImageNetwork
