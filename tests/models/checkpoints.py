"""Checkpoints as `transformers` saves them, small and random."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PreTrainedModel,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaModel,
)

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "the", "a", "cat", "dog", "sleeps", "runs", "does", "not", "in", "house", "##s", "."]
SIZES = {"vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def save_bert(folder: Path, *, num_labels: int = 2, body_only: bool = False, seed: int = 5) -> Path:
    torch.manual_seed(seed)
    config = BertConfig(**SIZES, intermediate_size=16, max_position_embeddings=32, num_labels=num_labels)
    return _saved(BertModel(config) if body_only else BertForSequenceClassification(config), folder)


def save_roberta(folder: Path, *, body_only: bool = False, longest: int = 32) -> Path:
    config = RobertaConfig(**SIZES, intermediate_size=16, max_position_embeddings=40, type_vocab_size=1, pad_token_id=0)
    return _saved(RobertaModel(config) if body_only else RobertaForSequenceClassification(config), folder, longest)


def save_distilbert(folder: Path) -> Path:
    sizes = {"vocab_size": len(WORDS), "dim": 16, "hidden_dim": 16, "n_layers": 1, "n_heads": 2}
    config = DistilBertConfig(**sizes, max_position_embeddings=32)
    return _saved(DistilBertForSequenceClassification(config), folder)


def _saved(model: PreTrainedModel, folder: Path, longest: int = 32) -> Path:
    """With a tokenizer of a few words, which says how long a text it takes."""
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    BertTokenizer(vocab=str(folder / "vocab.txt"), model_max_length=longest).save_pretrained(folder)
    return folder
