"""Classifiers of pairs from checkpoints: what is kept, what is drawn, what is refused."""

from __future__ import annotations

import io
import json
from functools import partial

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from projnorm.data.encoding import IDS, MASK, TYPES
from projnorm.models.text_networks import download_checkpoint, load_encode, load_pair_classifier
from tests.models.checkpoints import save_bert, save_distilbert, save_roberta

load_classifier = partial(load_pair_classifier, num_outputs=3, seed=0)
PREMISES = ["the cat sleeps in the house .", "a dog runs"]
HYPOTHESES = ["the cat does not run", "a dog runs in the house"]


@pytest.mark.parametrize(
    ("save", "last"),
    [(save_bert, "body.classifier"), (save_roberta, "body.classifier.out_proj"), (save_distilbert, "body.classifier")],
)
def test_a_checkpoint_says_what_transformers_says_of_the_same_pairs(save, last, tmp_path):
    folder = str(save(tmp_path / "checkpoint"))
    loaded = load_pair_classifier(folder, num_outputs=3, seed=1)
    assert loaded.last == last
    assert loaded.weights == folder
    assert not loaded.is_random
    assert not loaded.model.training
    inputs = load_encode(folder, 32)(PREMISES, HYPOTHESES, 32)
    assert inputs.shape[1] == 3
    with torch.no_grad():
        found = loaded.model(torch.from_numpy(inputs))
        plain = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3, ignore_mismatched_sizes=True)
        plain.load_state_dict({name.removeprefix("body."): t for name, t in loaded.model.state_dict().items()})
        tokens = AutoTokenizer.from_pretrained(folder)(PREMISES, HYPOTHESES, padding=True, return_tensors="pt")
        names = ("input_ids", "attention_mask") + (("token_type_ids",) if save is save_bert else ())
        expected = plain.eval()(**{name: tokens[name] for name in names}).logits
    torch.testing.assert_close(found, expected)


def test_the_body_is_the_checkpoints_and_the_head_is_drawn_from_the_seed(tmp_path):
    folder = str(save_bert(tmp_path / "checkpoint", num_labels=3))
    one, again, other = (load_pair_classifier(folder, num_outputs=3, seed=seed) for seed in (0, 0, 1))
    kept = AutoModelForSequenceClassification.from_pretrained(folder).state_dict()
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])
        drawn = name == "body.classifier.weight"
        assert torch.equal(tensor, other.model.state_dict()[name]) != drawn
        assert torch.equal(tensor, kept[name.removeprefix("body.")]) != drawn or name.endswith("classifier.bias")
    assert one.sha256 == other.sha256
    body = save_bert(tmp_path / "body", body_only=True)
    assert load_classifier(str(body)).sha256 == one.sha256
    changed = save_bert(tmp_path / "changed", num_labels=3, seed=6)
    assert load_classifier(str(changed)).sha256 != one.sha256


def test_empty_places_change_nothing_but_rounding():
    loaded = load_classifier("tiny")
    inputs = load_encode("tiny", 64)(PREMISES, HYPOTHESES, 64)
    padded = np.concatenate([inputs, np.zeros((2, 3, 9), np.int32)], axis=2)
    with torch.no_grad():
        together = loaded.model(torch.from_numpy(inputs))
        torch.testing.assert_close(loaded.model(torch.from_numpy(padded)), together)
        alone = torch.cat([loaded.model(torch.from_numpy(inputs[i : i + 1])) for i in range(2)])
        torch.testing.assert_close(alone, together)
    assert inputs[:, MASK].sum() == (inputs[:, IDS] > 0).sum()
    assert inputs[0, TYPES].sum() == 1 + 5  # the hypothesis and what ends it


def test_loading_leaves_random_numbers_and_the_log_of_transformers_alone(tmp_path):
    folder = str(save_bert(tmp_path / "checkpoint"))
    verbosity = logging.get_verbosity()
    before = torch.get_rng_state()
    load_pair_classifier(folder, num_outputs=3, seed=9)
    assert torch.equal(torch.get_rng_state(), before)
    assert logging.get_verbosity() == verbosity


def edit_config(folder, **changes) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize(
    ("load", "change", "message"),
    [
        (load_classifier, {"num_hidden_layers": 2}, r"its weights lack 16 of the network's, such as bert\.enc"),
        (load_classifier, {"hidden_size": 32}, r"the shape of its bert\..* differs from its configuration"),
        (partial(load_encode, length=8), {"vocab_size": 10}, "its tokenizer has 17 tokens and its network 10"),
    ],
)
def test_a_checkpoint_whose_parts_do_not_fit_is_refused(tmp_path, load, change, message):
    folder = save_bert(tmp_path / "checkpoint")
    edit_config(folder, **change)
    with pytest.raises(ValueError, match=message):
        load(str(folder))


def test_what_is_no_checkpoint_is_said_in_a_line_and_only_names_on_the_hub_are_downloaded(tmp_path, monkeypatch):
    for model in ("tiny", str(tmp_path)):
        with pytest.raises(ValueError, match="`model` must be a name on the hub to be downloaded"):
            download_checkpoint(model)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    empty, damaged = tmp_path / "empty", save_bert(tmp_path / "damaged")
    empty.mkdir()
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    for folder in (empty, damaged):
        with pytest.raises(ValueError, match=f"`model` {folder}: no checkpoint could be read there") as found:
            load_classifier(str(folder))
        assert "\n" not in str(found.value)
    for load in (load_classifier, partial(load_encode, length=16)):
        with pytest.raises(ValueError, match=r"`model` nobody/nothing: .* fetch a name on the hub with download_check"):
            load("nobody/nothing")


def test_no_code_of_a_checkpoint_is_run_even_if_asked(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    folder = save_bert(tmp_path / "checkpoint")
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    edit_config(folder, model_type="evil", auto_map={"AutoConfig": "evil.Config", "AutoModel": "evil.Model"})
    for load in (load_classifier, partial(load_encode, length=8)):
        with pytest.raises(ValueError, match="no checkpoint could be read there"):
            load(str(folder))
    assert not (tmp_path / "ran").exists()


def test_the_hash_is_of_the_configuration_too_and_of_nothing_drawn(tmp_path):
    folder = save_bert(tmp_path / "checkpoint")
    before = load_classifier(str(folder)).sha256
    edit_config(folder, hidden_act="relu")
    assert load_classifier(str(folder)).sha256 != before
    # A body alone: the dense layer of the head is drawn as well.
    body = save_roberta(tmp_path / "body", body_only=True)
    assert len({load_pair_classifier(str(body), num_outputs=3, seed=seed).sha256 for seed in (0, 1)}) == 1


def test_pairs_longer_than_the_network_takes_are_refused(tmp_path):
    folder = str(save_bert(tmp_path / "checkpoint"))
    assert load_encode(folder, 8)(["the cat " * 20], ["a dog " * 20], 8).shape == (1, 3, 8)
    # A tokenizer may not know; the network does, and of RoBERTa's 40 places two are not for tokens.
    roberta = str(save_roberta(tmp_path / "roberta", longest=10**9))
    for model, most in ((folder, 32), ("tiny", 128), (roberta, 38)):
        with pytest.raises(ValueError, match=f"`length` must be at most {most} for {model}; got {most + 1}"):
            load_encode(model, most + 1)
