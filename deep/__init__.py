"""The neural ProjNorm, the predictors it is compared with, and the comparison."""

from deep.calibration import Interval, Quality, qualities
from deep.config import METHODS, DeepConfig
from deep.estimators.agree_score import AgreeScore
from deep.estimators.atc import ATC
from deep.estimators.conf_score import ConfScore
from deep.estimators.entropy import Entropy
from deep.estimators.evidence import Estimator, Evidence
from deep.estimators.rotation import Rotation, train_rotation_head
from deep.experiments.comparison import run_comparison
from deep.ledger import Ledger, Row, Scores
from deep.outputs import Outputs, forward
from deep.presets import PRESETS, preset
from deep.projnorm import ProjNorm, ProjNormValue, train_reference
from deep.training import Hardware, Recipe, train

__all__ = [
    "ATC",
    "METHODS",
    "PRESETS",
    "AgreeScore",
    "ConfScore",
    "DeepConfig",
    "Entropy",
    "Estimator",
    "Evidence",
    "Hardware",
    "Interval",
    "Ledger",
    "Outputs",
    "ProjNorm",
    "ProjNormValue",
    "Quality",
    "Recipe",
    "Rotation",
    "Row",
    "Scores",
    "forward",
    "preset",
    "qualities",
    "run_comparison",
    "train",
    "train_reference",
    "train_rotation_head",
]
