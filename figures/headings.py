"""What was run, in the small print above a figure; read from a record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from projnorm.core.records import Record

if TYPE_CHECKING:
    from deep.comparison.scores import Scores


def run_heading(config: Mapping[str, Any], scores: Scores) -> str:
    """Network, data and targets of a comparison."""
    origins = sorted(set(scores.origins.tolist()) - {"clean"})
    return (
        f"{network(config)}\n{data_name(config)}, m = {config['data']['m']:,}, T = {config['projnorm']['steps']:,}, "
        f"{len(scores.targets)} targets, shifts {' and '.join(origins) or 'none'}"
    )


def about_run(record: Record) -> str:
    """The run that a record is about."""
    config = record.facts["run_config"]
    return f"{network(config)}\n{data_name(config)}, {record.config['run']}"


def kernel_heading(record: Record) -> str:
    """Network, data and kernel of an experiment on kernels."""
    config = record.facts.get("run_config", record.config)
    kernel = record.config.get("kernel", {"kind": "exact"})
    kind = kernel["kind"] if kernel["kind"] == "exact" else f"{kernel['kind']} ({kernel['count']:,})"
    n, m = train_images(record), int(record.arrays["sizes"].max())
    return f"{network(config, record.config.get('size', 0))}\n{data_name(config)}, n = {n:,}, m = {m:,}, {kind} kernel"


def train_images(record: Record) -> int:
    """Number of training samples of an experiment on kernels, which may be more than there are eigenvalues."""
    return int(record.facts["settings"]["data"]["n"])


def network(config: Mapping[str, Any], size: int = 0) -> str:
    """The network, its weights and how much it sees of a sample: `size` pixels, or as many as are configured."""
    settings = config["network"]
    if settings.get("model"):
        return network_name(config) + (f", {settings['length']} tokens" if settings["length"] else "")
    weights = "random weights" if settings["weights"] == "random" else f"weights {PurePath(settings['weights']).name}"
    return f"{network_name(config)}, {weights}, {size or settings['size']} px"


def network_name(config: Mapping[str, Any]) -> str:
    """The architecture of a network on images, or the name of a model: of one on text, or of a user's own."""
    settings = config["network"]
    model = settings.get("model")
    return PurePath(model.partition("@")[0]).name if model else settings["architecture"]


def data_name(config: Mapping[str, Any]) -> str:
    """The data that a network is fine-tuned on, or that kernels are computed on."""
    return PurePath(config["data"]["data"]).name
