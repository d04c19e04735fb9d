"""The neural ProjNorm, the methods it is compared with, the comparison, and the error of your own model.

Everything is imported when it is first used.
"""

from typing import TYPE_CHECKING

from projnorm.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    from deep.calibration import Quality as Quality, qualities as qualities
    from deep.config import (
        METHODS as METHODS,
        DeepConfig as DeepConfig,
        ImageData as ImageData,
        ProjNormConfig as ProjNormConfig,
        RotationConfig as RotationConfig,
        TextConfig as TextConfig,
        TextData as TextData,
        TextNetwork as TextNetwork,
    )
    from deep.costs import run_costs as run_costs
    from deep.estimate import (
        ErrorEstimate as ErrorEstimate,
        estimate_error as estimate_error,
        estimate_errors as estimate_errors,
    )
    from deep.estimators import ESTIMATORS as ESTIMATORS, Estimator as Estimator, estimator as estimator
    from deep.estimators.agree_score import AgreeScore as AgreeScore
    from deep.estimators.aline import ALineD as ALineD, ALineS as ALineS
    from deep.estimators.atc import ATC as ATC
    from deep.estimators.bbse import BBSE as BBSE
    from deep.estimators.cbpe import CBPE as CBPE
    from deep.estimators.conf_score import ConfScore as ConfScore
    from deep.estimators.cot import COT as COT, COTT as COTT
    from deep.estimators.dis2 import Dis2 as Dis2
    from deep.estimators.dispersion import Dispersion as Dispersion
    from deep.estimators.doc import AC as AC, DoC as DoC
    from deep.estimators.entropy import Entropy as Entropy
    from deep.estimators.feature_shift import FeatureShift as FeatureShift
    from deep.estimators.frechet import Frechet as Frechet
    from deep.estimators.gd_score import GdScore as GdScore
    from deep.estimators.gde import GDE as GDE
    from deep.estimators.importance import ImportanceWeighting as ImportanceWeighting
    from deep.estimators.mano import MaNo as MaNo
    from deep.estimators.mde import MDE as MDE
    from deep.estimators.mutual_information import MutualInformation as MutualInformation
    from deep.estimators.nuclear_norm import NuclearNorm as NuclearNorm
    from deep.estimators.projnorm import ProjNorm as ProjNorm
    from deep.estimators.projnorm_linear import ProjNormLinear as ProjNormLinear
    from deep.estimators.rotation import Rotation as Rotation
    from deep.experiments.adversarial import run_adversarial as run_adversarial
    from deep.experiments.comparison import run_comparison as run_comparison
    from deep.experiments.config import (
        AdversarialConfig as AdversarialConfig,
        LabelShiftConfig as LabelShiftConfig,
        NtkPredictConfig as NtkPredictConfig,
        SmallSamplesConfig as SmallSamplesConfig,
        SweepConfig as SweepConfig,
    )
    from deep.experiments.label_shift import run_label_shift as run_label_shift
    from deep.experiments.ntk_predict import run_ntk_predict as run_ntk_predict
    from deep.experiments.small_samples import run_small_samples as run_small_samples
    from deep.experiments.sweep import run_sweep as run_sweep
    from deep.outputs import Outputs as Outputs, read_outputs as read_outputs
    from deep.presets import (
        PRESETS as PRESETS,
        TEXT_PRESETS as TEXT_PRESETS,
        preset as preset,
        text_preset as text_preset,
    )
    from deep.projnorm import train_reference as train_reference
    from deep.recipe import Recipe as Recipe
    from deep.runs import open_run as open_run
    from deep.scores import Scores as Scores
    from deep.training import train as train
    from projnorm.vision.settings import ImageNetwork as ImageNetwork
