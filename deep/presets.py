"""Configurations by name. The six of the paper are for a GPU; the others run on two cores.

Run one with ``projnorm deep run NAME``; every field can be overridden.

- ``paper-cifar10-resnet18`` and its siblings: Section 3 and appendix A of the paper. 224 px, 20 epochs on CIFAR-10 and
  50 on CIFAR-100 at learning rate 1e-3, m = 10,000, T = 1,000, 18 families at 5 severities. Expected on CIFAR-10 with
  ResNet18: R^2 .962 for ProjNorm, .556 to .872 for the others. Never run here for want of a GPU.
- ``cpu-cifar10-resnet18``: the same at 32 px with fewer images and steps, ProjNorm with frozen batch norm statistics;
  about half an hour on two cores. Expected: the table in README.md.
- ``digits``: scikit-learn's digits and a small network of random weights, no download; 1.5 minutes on two cores.
"""

from __future__ import annotations

from dataclasses import replace

from deep.config import DeepConfig

_PAPER = DeepConfig(
    data="cifar10",
    n_validation=5_000,
    m=10_000,
    weights="imagenet",
    size=224,
    epochs=20,
    lr=1e-3,
    batch=128,
    steps=1_000,
    projnorm_lr=1e-3,
    projnorm_batch=128,
    rotation_samples=10_000,
)
_EPOCHS = {"cifar10": 20, "cifar100": 50}

PRESETS: dict[str, DeepConfig] = {
    f"paper-{data}-{architecture}": replace(_PAPER, data=data, architecture=architecture, epochs=epochs)
    for data, epochs in _EPOCHS.items()
    for architecture in ("resnet18", "resnet50", "vgg11")
} | {
    "cpu-cifar10-resnet18": DeepConfig(
        data="cifar10",
        n_train=18_000,
        n_validation=2_000,
        m=1_000,
        weights="imagenet",
        epochs=4,
        lr=1e-2,
        batch=128,
        steps=20,
        projnorm_lr=1e-3,
        projnorm_batch=100,
        projnorm_batch_norm="frozen",
        trajectory=(1, 2, 3, 5, 10, 15, 20),
        rotation_samples=2_000,
    ),
    "digits": DeepConfig(
        architecture="small-cnn",
        severities=(1, 3, 5),
        n_validation=200,
        m=400,
        epochs=20,
        lr=0.05,
        batch=64,
        steps=60,
        projnorm_lr=0.05,
        projnorm_batch=64,
        trajectory=(1, 2, 5, 10, 20, 40, 60),
        rotation_samples=400,
    ),
}


def preset(name: str) -> DeepConfig:
    """The configuration of this name.

    Raises:
        ValueError: If there is none.
    """
    if name not in PRESETS:
        raise ValueError(f"`preset` must be one of {', '.join(PRESETS)}; got {name!r}.")
    return PRESETS[name]
