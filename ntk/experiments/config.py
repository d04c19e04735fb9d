"""Settings of tangent kernels and of the experiments on them; importing them loads no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from ntk.kernel_config import COORDINATES, EXACT, FULL, PROJECTION, KernelConfig, KernelKind
from projnorm.core.config import Config, setting, settings
from projnorm.core.errors import InputError
from projnorm.core.records import RunContext
from projnorm.data.image_settings import LARGEST_SEED, PROBE_FAMILIES, ImageNetwork, ShiftedImages, families_setting

DEFAULT_LENGTH = 64


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
        for option in settings(ImageNetwork) if self.model else ():
            if option.name in others and getattr(self, option.name) != option.default:
                raise InputError(f"`{option.name}` is not for a `model` of your own; leave one out.")
        if self.is_file and self.heads != 1:
            raise InputError("`heads` is for last layers that are drawn; the network of a file keeps its own.")
        if self.length is not None and not self.is_text:
            raise InputError("`length` is for a `model` that is a folder of transformers.")


@dataclass(frozen=True)
class GramConfig(Config):
    """Kernels of one network on a training set and on shifted sets.

    Example:
        >>> from ntk import GramConfig
        >>> config = GramConfig()
        >>> config.data.data, config.data.n, config.network.architecture, config.kernel.kind
        ('digits', 250, 'resnet18', 'exact')
    """

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
    """Kernels, and the linear theory on every target.

    Example:
        >>> from ntk import NtkConfig
        >>> NtkConfig(ridge=0.1).ridge, NtkConfig().top
        (0.1, 300)
    """

    ridge: float = setting(0.0, "Number added to the kernels' diagonals for ProjNormLinear and labels.", least=0.0)
    top: int = setting(300, "Number of eigenvectors in the alignment.", least=1)

    def require_one_row(self) -> None:
        """Refuse kernels with several rows per sample, which the theory is not about."""
        if self.kernel.outputs == FULL:
            raise InputError(f"`outputs` must not be {FULL}: what is analysed has one row per sample.")


@dataclass(frozen=True)
class SubsampleConfig(Config):
    """Sampled kernels that are compared with the exact one.

    Example:
        >>> from ntk import SubsampleConfig
        >>> SubsampleConfig(counts=(500, 5_000), draws=1).kinds
        ('coordinates', 'projection')
    """

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
