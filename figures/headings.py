"""What was run, in the small print above a figure; read from the configuration of a record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from projnorm.records import flat

if TYPE_CHECKING:
    from deep.scores import Scores


def run_heading(config: Mapping[str, Any], scores: Scores) -> str:
    """Network, data and targets of a comparison."""
    settings = leaves(config)
    origins = sorted(set(scores.origins.tolist()) - {"clean"})
    return (
        f"{network(config)}\n{PurePath(settings['data']).name}, m = {settings['m']:,}, T = {_steps(config):,}, "
        f"{len(scores.targets)} targets, shifts {' and '.join(origins) or 'none'}"
    )


def kernel_heading(config: Mapping[str, Any], weights: str) -> str:
    """Network, data and kernel of an experiment on kernels; random weights are called random."""
    settings = leaves(config)
    kind = settings["kind"] if settings["kind"] == "exact" else f"{settings['kind']} ({settings['count']:,})"
    named = "random weights" if settings["weights"] == "random" else f"weights {weights}"
    return (
        f"{settings['architecture']}, {named}, {settings['size']} px\n{PurePath(settings['data']).name}, "
        f"n = {settings['n']:,}, m = {settings['m']:,}, {kind} kernel"
    )


def network(config: Mapping[str, Any]) -> str:
    """The network of a comparison, and how much it sees of a sample."""
    settings = leaves(config)
    if "model" in settings:
        return f"{network_name(config)}, {settings['length']} tokens"
    weights = settings["weights"]
    named = "random weights" if weights == "random" else f"weights {PurePath(weights).name}"
    return f"{network_name(config)}, {named}, {settings['size']} px"


def network_name(config: Mapping[str, Any]) -> str:
    """The architecture of a comparison on images, or the model of one on text."""
    settings = leaves(config)
    return PurePath(settings.get("model", "").partition("@")[0]).name or settings["architecture"]


def leaves(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their own names, without those of the groups they are in."""
    return {name.rpartition(".")[2]: value for name, value in flat(config)}


def _steps(config: Mapping[str, Any]) -> int:
    settings = dict(flat(config))
    return int(settings["projnorm.steps"] if "projnorm.steps" in settings else settings["steps"])
