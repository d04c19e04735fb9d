"""The paper's empirical half: training, the four methods that train, and the comparison on trained networks.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from projnorm.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    from deep.comparison.adversarial import run_adversarial
    from deep.comparison.analysis_config import (
        AdversarialConfig,
        LabelShiftConfig,
        NtkPredictConfig,
        SweepConfig,
    )
    from deep.comparison.comparison import run_comparison
    from deep.comparison.config import (
        METHODS,
        DeepConfig,
        ImageData,
        ProjNormConfig,
        RotationConfig,
        TextConfig,
        TextData,
        TextNetwork,
    )
    from deep.comparison.kernels_of_run import run_ntk_predict
    from deep.comparison.label_shift import run_label_shift
    from deep.comparison.plan import plan_run
    from deep.comparison.presets import PRESETS, preset
    from deep.comparison.runs import open_run
    from deep.comparison.score_quality import Quality, qualities
    from deep.comparison.scores import Scores
    from deep.comparison.sweep import run_sweep
    from deep.estimators.agree_score import AgreeScore
    from deep.estimators.dis2 import Dis2
    from deep.estimators.projnorm import ProjNorm
    from deep.estimators.rotation import Rotation
    from deep.training.loop import train
    from deep.training.projnorm import train_reference
