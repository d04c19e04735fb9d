"""Settings of the experiments that are about a finished run. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deep.comparison.config import FINE_TUNED, REFERENCES, TRAINED, OnRunConfig, RunConfig, TextConfig
from ntk.kernel_config import FULL, KernelKind
from projnorm.core.config import seed_setting, setting
from projnorm.core.errors import InputError

PAPER_EPS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.5, 8.0)
_PIXELS = 255
_PAPER_SHARES = {"steps": (1.0, 0.5, 0.2), "samples": (0.5, 0.2, 0.1, 0.05, 0.01), "lr": (0.5, 0.1)}
# No setting of the paper's sweep trains on fewer.
_FEWEST_SAMPLES = 20


@dataclass(frozen=True)
class SweepConfig(OnRunConfig):
    """What to vary, one thing at a time; without any, the paper's settings scaled to the sizes of the run."""

    steps: tuple[int, ...] = setting((), "Numbers of steps, T in the paper.", least=1)
    samples: tuple[int, ...] = setting(
        (),
        "Numbers of samples of each target that ProjNorm sees; the steps are scaled with them, as in the paper, so "
        "that every sample is seen equally often.",
        least=2,
    )
    lr: tuple[float, ...] = setting((), "Learning rates.", above=0.0)
    reference: tuple[str, ...] = setting((), "References.", choices=REFERENCES)
    labels: tuple[str, ...] = setting((), "Labels to train on.", choices=("pseudo", "true"))
    batch_norm: tuple[str, ...] = setting((), "Statistics of batch norm.", choices=("batch", "frozen"))
    layers: tuple[str, ...] = setting(
        (), "Layers that are trained, joined by +, each choice a setting: the cheaper forms of ProjNorm."
    )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is varied."""
        return self == SweepConfig(self.run)

    @classmethod
    def like_the_paper(cls, run: str, base: RunConfig) -> SweepConfig:
        """The paper's settings, scaled to the sizes of the run, and its ablations."""
        projnorm = base.projnorm
        steps = {max(1, round(share * projnorm.steps)) for share in _PAPER_SHARES["steps"]}
        seen = projnorm.samples or base.data.m
        samples = {max(_FEWEST_SAMPLES, round(share * seen)) for share in _PAPER_SHARES["samples"]}
        return cls(
            run,
            steps=tuple(sorted(steps - {projnorm.steps}, reverse=True)),
            samples=tuple(sorted((count for count in samples if count < seen), reverse=True)),
            lr=tuple(share * projnorm.lr for share in _PAPER_SHARES["lr"]),
            reference=(FINE_TUNED,) if projnorm.reference == TRAINED else (TRAINED,),
            labels=_other_labels(base),
        )


@dataclass(frozen=True)
class AdversarialConfig(OnRunConfig):
    """Attacks on the network of a run, whose targets calibrate."""

    eps: tuple[float, ...] = setting(
        PAPER_EPS, "Largest changes of a pixel, in 255ths.", least=0.0, most=_PIXELS, nonempty=True
    )
    m: int = setting(0, "Number of images of the clean set that are attacked; 0 for all of the run.", least=0)
    steps: int = setting(20, "Number of steps of an attack.", least=1)

    def check(self) -> None:
        """Refuse sizes of attacks with equal names, and fewer than two images, which ProjNorm needs."""
        _require_different("eps", self.eps)
        if self.m == 1:
            raise InputError("`m` must be 0 for all, or at least 2; got 1.")


@dataclass(frozen=True)
class LabelShiftConfig(OnRunConfig):
    """Mixtures of the classes of a run, whose targets calibrate."""

    groups: int = setting(
        5, "Number of groups of classes by their error on the test set, the hardest first; 0 for none.", least=0
    )
    concentrations: tuple[float, ...] = setting(
        (10.0, 1.0, 0.1),
        "Concentrations of the Dirichlet law that class priors are drawn from: a large one makes all classes equally "
        "frequent, a small one leaves a class or two.",
        above=0.0,
    )
    draws: int = setting(3, "Number of priors drawn at each concentration.", least=1)
    m: int = setting(0, "Largest number of images of a set; 0 for as many as the targets of the run have.", least=0)
    seed: int = seed_setting()

    def check(self) -> None:
        """Refuse mixtures with equal names, and a configuration without any."""
        _require_different("concentrations", self.concentrations)
        for name in ("groups", "m"):
            if getattr(self, name) == 1:
                raise InputError(f"`{name}` must be 0, or at least 2; got 1.")
        if not self.groups and not self.concentrations:
            raise InputError("`groups` or `concentrations` must ask for something.")


@dataclass(frozen=True)
class NtkPredictConfig(OnRunConfig):
    """Tangent kernels on the targets of a run."""

    n: int = setting(0, "Number of training images; 0 for 1000, or all there are.", least=0)
    m: int = setting(0, "Number of images of each target; 0 for all.", least=0)
    body: str = setting(
        "initial",
        "Weights under the drawn scalar head: initial as in the paper, or fine-tuned.",
        choices=("initial", "fine-tuned"),
    )
    heads: int = setting(1, "Number of last layers drawn, over which the kernel is averaged.", least=1)
    layers: tuple[str, ...] = setting(
        (), "Modules whose parameters are used, such as layer4; all where there is none.", distinct=True
    )
    size: int = setting(
        0, "Height and width of the images as the kernel's network sees them; 0 as in the run.", least=0
    )
    subsets: tuple[int, ...] = setting(
        (),
        "Smaller numbers of samples, of the training set and of each target alike, at which ProjNormLinear is computed "
        "too, from the same kernels.",
        least=2,
        distinct=True,
    )
    top: int = setting(300, "Number of eigenvectors in the alignment.", least=1)
    kernel: KernelKind = setting(KernelKind(), "Kernel.", flat=True)

    def check(self) -> None:
        """Refuse kernels with several rows per sample, to which the theory does not apply."""
        if self.kernel.outputs == FULL:
            raise InputError(f"`outputs` must not be {FULL}: what is analysed has one row per sample.")


def short_number(number: float) -> str:
    """A number in the short form that names of sets have."""
    return f"{number:.6g}"


def _require_different(name: str, numbers: Sequence[float]) -> None:
    if len(set(map(short_number, numbers))) < len(numbers):
        raise InputError(f"`{name}` must be different numbers; got {', '.join(map(str, numbers))}.")


def _other_labels(base: RunConfig) -> tuple[str, ...]:
    """The labels that the run does not train on; not true ones of text, since sets with two classes lack them."""
    if base.projnorm.labels == "true":
        return ("pseudo",)
    return () if isinstance(base, TextConfig) else ("true",)
