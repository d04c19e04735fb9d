"""What calibration sets taught of targets of some sizes, without the sets: small enough to keep in a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from projnorm.core.statistics import Floats
from projnorm.estimate.calibrated_mixture import CalibratedMixture


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationAtSize:
    """What draws of one size from the calibration sets taught.

    Attributes:
        names: Name of each set.
        families: Family of shifts of each set.
        errors: True error on the draw of each set with its own class shares.
        scores: Score of every method on these draws.
        mixture: The regressions from scores to the error; None where there were too few sets.
    """

    names: NDArray[np.str_]
    families: NDArray[np.str_]
    errors: Floats
    scores: Mapping[str, Floats]
    mixture: CalibratedMixture | None


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationBySize:
    """What calibration sets taught, by the number of samples drawn from them.

    Attributes:
        origin: Where the sets came from, in words.
        sizes: What was learnt for each number of samples.
    """

    origin: str
    sizes: Mapping[int, CalibrationAtSize]

    def size_for(self, count: int) -> int:
        """Size of the draws that a target of `count` samples is compared with: the one of the nearest ratio."""
        return min(self.sizes, key=lambda size: abs(math.log(size / count)))

    def part_size(self, count: int) -> int:
        """Number of samples of the parts in which a target is scored: all, up to twice the size of the draws."""
        size = self.size_for(count)
        return count if count < 2 * size else size
