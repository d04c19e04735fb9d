"""Which tangent kernel to compute, and how; importing this loads no torch."""

from __future__ import annotations

from dataclasses import dataclass

from projnorm.core.config import Config, setting
from projnorm.core.errors import InputError

EXACT, COORDINATES, PROJECTION = KINDS = ("exact", "coordinates", "projection")
ACCUMULATE = ("float32", "float64")
ROUTES = ("best", "direct", "structured", "autograd")
MEAN, RANDOM_OUTPUT, FULL = OUTPUTS = ("mean", "random", "full")
# The paper's number of coordinates.
DEFAULT_COUNT = 500_000
# Features are numbered by integers of 32 bits.
_MOST_FEATURES = 2**31 - 1


@dataclass(frozen=True)
class KernelKind(Config):
    """Which kernel of a network."""

    kind: str = setting(
        EXACT,
        "Features behind the kernel: exact for all parameters, coordinates for a random subset of them, projection for "
        "a random projection.",
        choices=KINDS,
    )
    count: int = setting(
        DEFAULT_COUNT, "Number of coordinates, or width of the projection.", least=1, most=_MOST_FEATURES
    )
    accumulate: str = setting("float32", "Precision of the products; sums are in float64.", choices=ACCUMULATE)
    frozen: bool = setting(False, "Use parameters with requires_grad=False, too, which are left out by default.")
    outputs: str = setting(
        MEAN,
        "Kernel of a network with several outputs: the mean over them, a random combination of them, the number of "
        "one, counted from 0, or full, with a row for each output of each sample.",
    )

    def check(self) -> None:
        """An exact kernel samples nothing; `outputs` is a kind of kernel, or the number of an output."""
        if self.kind == EXACT and self.count != DEFAULT_COUNT:
            raise InputError(f"`count` is for the kinds {COORDINATES} and {PROJECTION}.")
        if self.outputs not in OUTPUTS and not self.outputs.isdecimal():
            raise InputError(
                f"`outputs` must be {', '.join(OUTPUTS)}, or the number of one output; got {self.outputs!r}."
            )


@dataclass(frozen=True)
class KernelConfig(KernelKind):
    """Which kernel to compute, and how.

    Example:
        >>> from ntk import KernelConfig
        >>> config = KernelConfig(kind="coordinates", count=1_000, accumulate="float64", outputs="0")
        >>> config.count, config.seed, config.route
        (1000, 0, 'best')
    """

    seed: int = setting(0, "Seed of the coordinates or of the projection.", least=0)
    layers: tuple[str, ...] = setting((), "Modules or parameters that are used; all where there is none.")
    route: str = setting(
        "best",
        "How a layer's share is computed: the best route of each layer, direct or structured wherever there is one, or "
        "autograd, with gradients of every sample by plain autograd; for coordinates, direct forms every gradient and "
        "indexes it.",
        choices=ROUTES,
    )
    memory: float = setting(4e9, "Largest number of bytes that the process may use; on a GPU, of its memory.", above=0)
    disk: str = setting(
        "auto",
        "Whether panels that do not fit into memory are written to disk: auto if that is faster than passing samples "
        "through the network again, always if there is room, or never.",
        choices=("auto", "always", "never"),
    )
    panel: int = setting(
        1024, "Number of samples in a panel, two of which make a tile; made smaller where `memory` asks.", least=1
    )
    batch: int = setting(
        64, "Number of samples in a forward and backward pass; fewer on a CPU where their tensors are large.", least=1
    )
    device: str = setting("auto", "Device that computes: auto, or one that torch knows.")
    self_check: bool = setting(True, "Compare every layer with plain autograd on three samples.")
