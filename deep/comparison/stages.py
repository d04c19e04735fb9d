"""What a run trains before it looks at any target: the stages of a configuration, and their sizes. No torch."""

from __future__ import annotations

from deep.comparison.config import PROJNORM, TRAINED, DeepConfig, RunConfig

NETWORK, SECOND, REFERENCE, ROTATION = "network", "second", "reference", "rotation"
# Names of the stages in messages and tables.
STAGE_NAMES = {
    NETWORK: "fine-tuned network",
    SECOND: "second network",
    REFERENCE: "reference of ProjNorm",
    ROTATION: "rotation head",
}


def stages_of(config: RunConfig) -> tuple[str, ...]:
    """Names of the stages, which are trained first and independently of each other.

    Examples:
        >>> from deep.comparison.presets import preset
        >>> stages_of(preset("digits"))
        ('network', 'second', 'reference')
    """
    stages = [NETWORK]
    if "AgreeScore" in config.methods:
        stages.append(SECOND)
    if PROJNORM in config.methods and config.projnorm.reference == TRAINED:
        stages.append(REFERENCE)
    return tuple(stages)


def is_joint(config: RunConfig, stage: str = NETWORK) -> bool:
    """Whether a stage learns rotations beside its classes."""
    return isinstance(config, DeepConfig) and config.rotation.head == "joint" and stage == NETWORK


def projnorm_samples(config: RunConfig) -> int:
    """Number of samples of a target that ProjNorm trains on."""
    return config.projnorm.samples or config.data.m


def reference_samples(config: RunConfig, count: int) -> int:
    """How many of the `count` training samples a trained reference sees: all, or as many as ProjNorm of a target."""
    return count if config.projnorm.reference_samples == "all" else min(projnorm_samples(config), count)


def stage_samples(config: RunConfig, stage: str, count: int) -> int:
    """Number of samples that pass through the training of a stage on `count` samples, each as often as it is seen."""
    if stage == REFERENCE:
        return config.projnorm.count_steps(reference_samples(config, count)) * config.projnorm.batch
    return config.finetune.count_steps(count) * config.finetune.batch
