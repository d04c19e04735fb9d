"""Every predictor that is made of outputs alone, by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from deep.estimators.aline import ALineD, ALineS, SourceLine
from deep.estimators.atc import ATC
from deep.estimators.bbse import BBSE
from deep.estimators.cbpe import CBPE
from deep.estimators.conf_score import ConfScore
from deep.estimators.cot import COT, COTT
from deep.estimators.dis2 import Dis2
from deep.estimators.dispersion import Dispersion
from deep.estimators.doc import AC, DoC
from deep.estimators.entropy import Entropy
from deep.estimators.evidence import Estimator
from deep.estimators.feature_shift import FeatureShift
from deep.estimators.frechet import Frechet
from deep.estimators.gd_score import GdScore
from deep.estimators.gde import GDE
from deep.estimators.importance import ImportanceWeighting
from deep.estimators.mano import MaNo
from deep.estimators.mde import MDE
from deep.estimators.mutual_information import MutualInformation
from deep.estimators.nuclear_norm import NuclearNorm
from deep.estimators.projnorm_linear import ProjNormLinear
from deep.outputs import Outputs

Build = Callable[[Outputs, NDArray[np.int64], int], Estimator]

# Names are those of the classes; each is built from outputs on labelled samples, their labels and a seed.
FROM_OUTPUTS: dict[str, Build] = {
    ConfScore.name: lambda _, __, ___: ConfScore(),
    Entropy.name: lambda _, __, ___: Entropy(),
    ATC.name: lambda outputs, labels, _: ATC.of(outputs.logits, labels),
    AC.name: lambda outputs, labels, _: AC.of(outputs.logits, labels),
    DoC.name: lambda outputs, labels, _: DoC.of(outputs.logits, labels),
    ImportanceWeighting.name: lambda outputs, labels, _: ImportanceWeighting.of(outputs.logits, labels),
    COT.name: lambda outputs, labels, _: COT.of(outputs.logits, labels),
    COTT.name: lambda outputs, labels, _: COTT.of(outputs.logits, labels),
    NuclearNorm.name: lambda _, __, ___: NuclearNorm(),
    MutualInformation.name: lambda _, __, ___: MutualInformation(),
    MaNo.name: lambda _, __, ___: MaNo(),
    Dispersion.name: lambda _, __, ___: Dispersion(),
    MDE.name: lambda _, __, ___: MDE(),
    GdScore.name: lambda _, __, seed: GdScore(seed),
    Frechet.name: lambda outputs, _, __: Frechet.of(outputs.features),
    FeatureShift.name: lambda outputs, _, __: FeatureShift.of(outputs.features),
    CBPE.name: lambda outputs, labels, _: CBPE.of(outputs.logits, labels),
    BBSE.name: lambda outputs, labels, _: BBSE.of(outputs.logits, labels),
    ProjNormLinear.name: lambda outputs, labels, _: ProjNormLinear.of(outputs, labels),
    Dis2.name: lambda outputs, labels, seed: Dis2.of(outputs, labels, seed=seed),
    GDE.name: lambda _, __, ___: GDE(),
    ALineS.name: lambda outputs, labels, _: ALineS(SourceLine.of(outputs, labels)),
    ALineD.name: lambda outputs, labels, _: ALineD(SourceLine.of(outputs, labels)),
}
# Methods whose scores fall as the error rises.
FALLING = frozenset(one.name for one in (NuclearNorm, MutualInformation, MaNo, Dispersion, MDE))
# What a method needs besides logits of the target and labelled outputs.
NEEDS_FEATURES = frozenset(one.name for one in (Dispersion, GdScore, Frechet, FeatureShift, ProjNormLinear, Dis2))
NEEDS_SECOND = frozenset({GDE.name})
NEEDS_THREE = frozenset(one.name for one in (ALineS, ALineD))
