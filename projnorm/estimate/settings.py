"""The plain settings of an estimate, which are flags of the command line too."""

from __future__ import annotations

from dataclasses import dataclass

from projnorm.core.config import Config, seed_setting, setting

ANY, CLASSES, INPUTS = SHIFTS = ("any", "classes", "inputs")
# The field's words for two of them.
_SYNONYMS = {"label": CLASSES, "covariate": INPUTS}


@dataclass(frozen=True, kw_only=True)
class EstimateSettings(Config):
    """How the error is estimated."""

    shift: str = setting(
        ANY,
        "What is known of the shift: any, nothing; classes (or label), only class shares have changed; inputs (or "
        "covariate), class shares are those of the source.",
        choices=(*SHIFTS, *_SYNONYMS),
    )
    level: float = setting(0.9, "Level of the interval.", above=0.0, below=1.0)
    seed: int = seed_setting()

    def check(self) -> None:
        """Give a shift the word that results use."""
        object.__setattr__(self, "shift", _SYNONYMS.get(self.shift, self.shift))
