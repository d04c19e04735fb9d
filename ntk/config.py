"""Settings of tangent kernels and of the experiments on them; importing them loads no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from projnorm.config import Config, setting, settings
from projnorm.errors import InputError
from projnorm.records import RunContext
from projnorm.vision.settings import LARGEST_SEED, PROBE_FAMILIES, ImageNetwork, ShiftedImages, families_setting

EXACT, COORDINATES, PROJECTION = KINDS = ("exact", "coordinates", "projection")
ACCUMULATE = ("float32", "float64")
ROUTES = ("best", "direct", "structured", "autograd")
MEAN, RANDOM_OUTPUT, FULL = OUTPUTS = ("mean", "random", "full")
# The paper's number of coordinates.
DEFAULT_COUNT = 500_000
DEFAULT_LENGTH = 64
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
    """Which kernel to compute, and how."""

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


@dataclass(frozen=True)
class NtkImages(ShiftedImages):
    """Samples that kernels are computed on."""

    data: str = setting(
        "digits",
        "Training and test samples: digits, cifar10, cifar100, an archive or folder of CIFAR, a folder with "
        "train/CLASS/* and test/CLASS/*, or an .npz file; texts in a .csv, .tsv, .jsonl or .npz file.",
    )
    targets: tuple[str, ...] = setting(
        (),
        "Further samples, with or without labels: .npz files, folders of images (CLASS/* where labelled), or files of "
        "texts.",
        distinct=True,
    )
    families: tuple[str, ...] = families_setting(PROBE_FAMILIES)
    n: int = setting(250, "Number of training samples.", least=1)
    m: int = setting(250, "Number of samples of each target.", least=1)


@dataclass(frozen=True)
class NtkNetwork(ImageNetwork):
    """Network whose gradients are the features."""

    model: str = setting(
        "",
        "Network of your own in place of an architecture: FILE.py:FUNCTION that builds it, or a folder with a network "
        "and its tokenizer that transformers saved.",
    )
    length: int | None = setting(
        None, f"Number of tokens of each text, for a folder of transformers; {DEFAULT_LENGTH} by default.", least=1
    )
    heads: int = setting(1, "Number of last layers drawn, over which the kernel is averaged.", least=1)
    layers: tuple[str, ...] = setting(
        (), "Modules whose parameters are used, such as layer4; all where there is none.", distinct=True
    )

    @property
    def is_file(self) -> bool:
        """Whether `model` is a function of a Python file."""
        return re.search(r"\.py(:|$)", self.model) is not None

    @property
    def is_text(self) -> bool:
        """Whether `model` is a folder of transformers."""
        return bool(self.model) and not self.is_file

    def check(self) -> None:
        """Refuse settings that would be ignored."""
        others = ("architecture", "size") if self.is_file else ("architecture", "size", "weights")
        for one in settings(ImageNetwork) if self.model else ():
            if one.name in others and getattr(self, one.name) != one.default:
                raise InputError(f"`{one.name}` is not for a `model` of your own; leave one out.")
        if self.is_file and self.heads != 1:
            raise InputError("`heads` is for last layers that are drawn; the network of a file keeps its own.")
        if self.length is not None and not self.is_text:
            raise InputError("`length` is for a `model` that is a folder of transformers.")


@dataclass(frozen=True)
class GramConfig(Config):
    """Kernels of one network on a training set and on shifted sets."""

    data: NtkImages = setting(NtkImages(), "Images.", flat=True)
    network: NtkNetwork = setting(NtkNetwork(), "Network.", flat=True)
    kernel: KernelKind = setting(KernelKind(), "Kernel.", flat=True)
    seed: int = setting(0, "Seed of samples, shifts, last layers and coordinates.", least=0, below=LARGEST_SEED)

    @property
    def gram(self) -> GramConfig:
        """The settings that the kernels depend on, and no others."""
        return GramConfig(self.data, self.network, self.kernel, self.seed)

    def kernel_config(self, context: RunContext, **others: Any) -> KernelConfig:
        """The kernel, within the memory and on the device of a run; `others` are further fields of `KernelConfig`."""
        own = {**self.kernel.to_json(), "seed": self.seed, "layers": self.network.layers}
        return KernelConfig(**{**own, "memory": context.memory, "device": context.device, **others})


@dataclass(frozen=True)
class NtkConfig(GramConfig):
    """Kernels, and the linear theory on every target."""

    ridge: float = setting(0.0, "Number added to the kernels' diagonals for ProjNormLinear and labels.", least=0.0)
    top: int = setting(300, "Number of eigenvectors in the alignment.", least=1)

    def require_one_row(self) -> None:
        """Refuse kernels with several rows per sample, which the theory is not about."""
        if self.kernel.outputs == FULL:
            raise InputError(f"`outputs` must not be {FULL}: what is analysed has one row per sample.")


@dataclass(frozen=True)
class SubsampleConfig(Config):
    """Sampled kernels that are compared with the exact one."""

    experiment: NtkConfig = setting(
        NtkConfig(replace(NtkImages(), severities=(5,))), "Images, network and exact kernel.", flat=True
    )
    counts: tuple[int, ...] = setting(
        (1_000, 3_000, 10_000, 30_000, 100_000, 500_000),
        "Numbers of coordinates, or widths of the projection.",
        least=1,
        nonempty=True,
        distinct=True,
    )
    kinds: tuple[str, ...] = setting(
        (COORDINATES, PROJECTION), "Kinds of sampled features.", choices=(COORDINATES, PROJECTION), nonempty=True
    )
    draws: int = setting(3, "Number of independent draws of each kind and count.", least=1)

    def check(self) -> None:
        """The kernel that samples are compared with is exact."""
        if self.experiment.kernel.kind != EXACT:
            raise InputError(f"`kind` must be {EXACT}, for the kernel that samples are compared with.")
