"""Kernels of a user's own networks, on own samples of any shape, with and without labels; texts."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import ntk.experiments.experiment
import projnorm as pn
from figures import ntk_experiment
from ntk.experiments.config import NtkConfig, NtkImages, NtkNetwork
from ntk.experiments.experiment import run_analysis, run_gram
from ntk.experiments.networks import Networks
from ntk.experiments.samples import DrawnSamples
from projnorm.core.backends import Backend
from projnorm.core.errors import ChangedInputError, InputError
from projnorm.core.records import RunContext
from projnorm.data.texts import read_texts
from projnorm.models.model_files import build_model
from projnorm.models.text_networks import load_text_encode
from tests.commands import assert_refused, run_cli
from tests.models.checkpoints import save_bert, save_roberta

RNG = np.random.default_rng(0)
TABLE, TABLE_LABELS = RNG.standard_normal((40, 5)), np.arange(40) % 3
IMAGES = RNG.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
FUNCTIONS = ("images", "halved")
# A class that its annotations, which are text, make look itself up, as dataclasses do.
SOURCE = """
from __future__ import annotations
from dataclasses import dataclass
import torch
from torch import nn

@dataclass
class Sizes:
    width: int = 4

class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, Sizes().width), nn.Linear(Sizes().width, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))

def table():
    return Perceptron()

def images():
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 1))

def halved():
    return images(), lambda x: x.movedim(3, 1).float() / 510.0

def nothing():
    return None

def words():
    return "words"

def fails():
    raise RuntimeError("no weights here")
"""


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    """A network, a table and images, as a user would bring them."""
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(SOURCE, encoding="utf-8")
    np.savez("table.npz", inputs=TABLE, labels=TABLE_LABELS)
    np.savez("images.npz", images=IMAGES, labels=TABLE_LABELS)
    np.savez("new.npz", inputs=TABLE[:9] + 1.0)
    np.savez("labelled.npz", inputs=TABLE[:9] - 1.0, labels=TABLE_LABELS[:9])


@pytest.fixture
def context(tmp_path) -> RunContext:
    return RunContext(tmp_path / "runs", device="cpu")


def own(function: str = "table", data: str = "table.npz", **changes) -> NtkConfig:
    return NtkConfig(NtkImages(n=8, m=6, data=data, severities=(5,), **changes), NtkNetwork(model=f"net.py:{function}"))


def test_the_kernel_of_an_own_network_is_that_of_gram(context):
    config = own(targets=("new.npz",))
    record, samples = run_gram(config, context), DrawnSamples.load(config)
    network = build_model("net.py:table", None, seed=0).model.eval()
    sets = {target.name: target.samples.inputs.astype(np.float32) for target in samples.targets()}
    kernels = pn.gram(network, samples.train.inputs.astype(np.float32), sets)
    expected = [np.trace(kernels.train), *(np.trace(kernels.ood(name)) for name in sets)]
    assert record.arrays["sets"].tolist() == ["train", "clean", "new"]
    np.testing.assert_allclose(record.arrays["trace"], expected, rtol=1e-6)
    assert record.facts["weights"] == "as net.py:table built them"
    assert record.facts["head_norms"] == []


def test_processes_are_sent_the_code_of_an_own_network(context):
    here = run_gram(own(), context)
    there = run_gram(own(), RunContext(context.root / "there", Backend(2), device="cpu"))
    np.testing.assert_array_equal(here.arrays["trace"], there.arrays["trace"])


def test_bytes_are_scaled_to_one_with_colours_first_unless_the_function_prepares_them_itself(context):
    train = DrawnSamples.load(own("images", "images.npz")).train.inputs
    unit, half = (
        Networks.from_config(own(name).network, seed=0).prepare(torch.from_numpy(train)) for name in FUNCTIONS
    )
    np.testing.assert_allclose(unit.numpy(), train.transpose(0, 3, 1, 2) / 255.0, rtol=1e-6)
    torch.testing.assert_close(unit, 2 * half)
    record = run_analysis(own("images", "images.npz", families=("contrast",)), context)
    assert record.arrays["targets"].tolist() == ["clean", "contrast-5"]


def test_own_weights_are_loaded_into_an_own_network():
    network = build_model("net.py:table", None, seed=3).model
    torch.save(network.state_dict(), "net.pth")
    networks = Networks.from_config(NtkNetwork(model="net.py:table", weights="net.pth"), seed=0)
    assert networks.weights == "net.pth"
    assert len(networks.sha256) == 64
    assert not networks.models[0].training
    torch.testing.assert_close(networks.models[0].first.weight, network.first.weight)


def test_a_changed_file_is_another_input(context):
    first = run_analysis(own(), context)
    assert set(first.facts["inputs"]) == {"data_sha256", "model_sha256", "weights_sha256", "labels_sha256"}
    assert run_analysis(own(), context).created == first.created
    Path("net.py").write_text(SOURCE.replace("width: int = 4", "width: int = 3"), encoding="utf-8")
    for run in (run_analysis, run_gram):
        with pytest.raises(ChangedInputError, match="computed from other inputs"):
            run(own(), context)
    again = run_analysis(own(), replace(context, fresh=True))
    assert again.facts["inputs"]["model_sha256"] != first.facts["inputs"]["model_sha256"]


def test_targets_with_and_without_labels_stand_side_by_side(context, tmp_path):
    record = run_analysis(own(targets=("new.npz", "labelled.npz")), context)
    arrays = record.arrays
    assert arrays["targets"].tolist() == ["clean", "new", "labelled"]
    for name in ("error", "rho", "eta", "test_loss"):
        assert np.isnan(arrays[name]).tolist() == [False, True, False]
    for name in ("generalised", "joint"):
        assert np.isnan(arrays[name][:, 0]).tolist() == [False, True, False]
    for name in ("projnorm", "overlap", "proposition", "spherical", "eigenvalues"):
        assert np.isfinite(arrays[name]).all()
    row = ntk_experiment.target_rows(record)[1]
    assert {row[f"{name}_holds"] for name in ("proposition", "generalised", "sharp", "joint", "spherical")} == {None}
    report = ntk_experiment.show_predictions(record, tmp_path)
    assert "too few targets for R^2 (2; at least 3 are needed)" in report.verdict
    assert any("Without labels" in str(block) and "new" in str(block) for block in report.blocks)


def test_no_labels_at_all_leave_all_that_needs_none():
    np.savez("blind.npz", train_inputs=TABLE, train_labels=TABLE_LABELS, test_inputs=TABLE + 1.0)
    command = ("--model", "net.py:table", "--data", "blind.npz", "--targets", "new.npz", "--n", "8", "--m", "6")
    said = run_cli("ntk", "predict", *command, "--workers", "1", "--out", "out", pictures=True)
    assert (said.code, said.err) == (0, "")
    assert "no R^2, because no target has labels" in said.out
    document = json.loads(
        run_cli("ntk", "predict", "--analyse", *command, "--workers", "1", "--json", "--out", "out").out
    )
    assert [(row["target"], row["error"], row["rho"]) for row in document["rows"]] == [
        ("clean", None, None),
        ("new", None, None),
    ]
    assert {Path(path).stem for path in document["figures"]} == {"ntk_panels", "ntk_decay_grid", "ntk_intervals"}
    assert run_cli("ntk", "gram", *command, "--workers", "1", "--out", "out").code == 0


def test_images_in_one_folder_are_an_unlabelled_target_and_class_folders_are_numbered_as_in_training(context):
    for number, (part, name) in enumerate([("train", "ant"), ("train", "bee"), ("test", "ant"), ("test", "bee")]):
        for row in range(5):
            save_image(Path("data", part, name, f"{row}.png"), IMAGES[5 * number + row])
    save_image(Path("flat", "0.png"), IMAGES[0])
    save_image(Path("bees", "bee", "0.png"), IMAGES[1])
    save_image(Path("wasps", "wasp", "0.png"), IMAGES[2])
    config = NtkConfig(
        NtkImages(n=8, m=6, data="data", families=(), targets=("flat", "bees")), NtkNetwork("small-cnn", size=8)
    )
    targets = {target.name: target.samples for target in DrawnSamples.load(config).targets()}
    assert targets["flat"].known_labels is None
    assert targets["bees"].labels.tolist() == [1]
    assert np.isnan(run_analysis(config, context).arrays["error"]).tolist() == [False, True, False]
    with pytest.raises(InputError, match="has the class 'wasp', which the training samples lack"):
        DrawnSamples.load(replace(config, data=replace(config.data, targets=("wasps",))))


def save_image(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--model", "nowhere.py:table"), ("--model must be FILE.py:FUNCTION", "there is no file nowhere.py")),
        (("--model", "net.py"), ("--model must be FILE.py:FUNCTION; got 'net.py'",)),
        (("--model", "net.py:nope"), ("net.py: has no function 'nope'",)),
        (("--model", "net.py:nothing"), ("net.py:nothing returned None",)),
        (("--model", "net.py:words"), ("net.py:words must return a torch network; it returned a str",)),
        (("--model", "net.py:fails"), ("net.py:fails failed: RuntimeError: no weights here",)),
        (("--model", "."), ("a folder that transformers saved, with a config.json",)),
        (("--data", "images.npz"), ("--model fails on a sample of train, uint8 of shape (1, 8, 8, 3)",)),
        (("--data", "new.npz"), ("the training half of new.npz: has no labels",)),
        (("--data", "narrow.npz"), ("narrow.npz: has no array 'images' or 'inputs'; it has rows",)),
        (("--targets", "wide.npz"), ("--model fails on a sample of wide, float32 of shape (1, 6)",)),
        (("--targets", "empty.npz"), ("empty.npz: inputs must be numbers, one sample per row; got float64",)),
        (("--targets", "infinite.npz"), ("infinite.npz: inputs must be finite",)),
        (("--targets", "unknown.npz"), ("unknown.npz: has class 3; the training samples have 0 to 2",)),
        (("--targets", "floats.npz"), ("floats.npz: labels must be 40 integers; got float64",)),
        (("--targets", "table.npz,table.npz"), ("--targets",)),
        (("--weights", "nowhere.pth"), ("there are no weights at nowhere.pth",)),
        (("--size", "64"), ("--size is not for a --model of your own",)),
        (("--architecture", "vgg11"), ("--architecture is not for a --model of your own",)),
        (("--heads", "2"), ("--heads is for last layers that are drawn",)),
        (("--length", "9"), ("--length is for a --model that is a folder of transformers",)),
    ],
)
def test_what_does_not_fit_is_one_line_and_nothing_is_written(options, words):
    np.savez("narrow.npz", rows=TABLE)
    np.savez("wide.npz", inputs=np.zeros((4, 6)))
    np.savez("empty.npz", inputs=np.zeros((0, 5)))
    np.savez("infinite.npz", inputs=np.full((4, 5), np.inf))
    np.savez("unknown.npz", inputs=TABLE, labels=TABLE_LABELS + 1)
    np.savez("floats.npz", inputs=TABLE, labels=TABLE_LABELS.astype(float))
    given = ("--model", "net.py:table", "--data", "table.npz", "--n", "8", "--m", "6", "--workers", "1")
    assert_refused(run_cli("ntk", "gram", *given, *options, "--out", "out"), *words)
    assert not Path("out").exists()


def test_the_kernels_of_an_own_network_are_planned_without_a_run():
    given = ("--model", "net.py:table", "--data", "table.npz", "--targets", "new.npz", "--n", "8", "--m", "12")
    planned = json.loads(run_cli("ntk", "gram", *given, "--dry-run", "--json", "--out", "out").out)
    assert planned["sets"] == {"train": 8, "clean": 12, "new": 9}
    assert not Path("out").exists()


TEXTS = ["the cat sleeps", "a dog runs .", 'the "dog", not\tthe cat']
WRITTEN = {
    "texts.csv": 'label,text\ngood,the cat sleeps\nbad,a dog runs .\ngood,"the ""dog"", not\tthe cat"\n',
    "texts.tsv": 'text\tlabel\nthe cat sleeps\tgood\na dog runs .\tbad\n"the ""dog"", not\tthe cat"\tgood\n',
    "texts.jsonl": "\n".join(
        json.dumps({"text": text, "label": label}) for text, label in zip(TEXTS, ("good", "bad", "good"), strict=True)
    ),
}


@pytest.mark.parametrize("name", [*WRITTEN, "texts.gz", "texts.npz"])
def test_texts_are_read_from_every_format_and_encoded_to_one_length(name, tmp_path):
    encode = load_text_encode(str(save_bert(tmp_path / "bert")), 7)
    if name in WRITTEN:
        Path(name).write_text(WRITTEN[name], encoding="utf-8")
    elif name == "texts.gz":
        rows = zip(("good", "bad", "good"), TEXTS, strict=True)
        Path(name).write_bytes(gzip.compress("".join(f"{label}\t{text}\n" for label, text in rows).encode()))
    else:
        np.savez(name, text=TEXTS, label=["good", "bad", "good"])
    found = read_texts(Path(name), encode)
    assert (found.labels.tolist(), found.class_names) == ([1, 0, 1], ("bad", "good"))
    assert found.inputs.shape == (3, 3, 7)
    np.testing.assert_array_equal(found.inputs, encode(TEXTS))
    assert found.inputs[:, 1].sum(axis=1).tolist() == [5, 6, 7]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("texts.csv", "words,label\na,b\n", "has no column `text`; it has words, label"),
        ("texts.csv", "text,label\nthe cat,good\na dog,\n", "must have a `label` in every row, or in none; 1 of 2"),
        ("texts.csv", "text,label\n ,good\n", "line 2: needs a `text` that is not empty"),
        ("texts.csv", "text,label\n", "holds no text"),
        ("texts.csv", "", "has no column `text`; it has none"),
        ("texts.csv", 'text\n"the cat\n', r"line \d+: cannot be read"),
        ("texts.jsonl", '{"text": "a"}\n[1]\n', "line 2: is not a JSON object"),
        ("texts.jsonl", '{"text": 3}\n', "line 1: needs a `text`"),
        ("texts.txt", "the cat", "texts must be in a .csv, .tsv, .jsonl, .gz or .npz file"),
        ("texts.gz", "the cat", "not a whole gzip file"),
        ("texts.gz", gzip.compress(b"1\tfine\nno tab\n", mtime=0), "line 2: must be a label, a tab and a text"),
        ("texts.npz", None, "`text` must be texts, one per sample; got int64"),
    ],
)
def test_files_that_hold_no_texts_are_refused(name, content, words):
    if content is None:
        np.savez(name, text=np.arange(3))
    else:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=words):
        read_texts(Path(name), lambda texts: np.zeros((len(texts), 3, 2), np.int32))


@pytest.mark.parametrize("save", [save_bert, save_roberta])
def test_texts_reach_the_kernel_as_a_tokenizer_names_them(save, tmp_path, monkeypatch, context):
    """The engine is replaced: what it is given is the claim."""
    folder = save(tmp_path / "checkpoint")
    rows = [f"{text},{label}" for text, label in zip(["the cat", "a dog runs"] * 10, ["good", "bad"] * 10, strict=True)]
    Path("texts.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    Path("new.csv").write_text("text\nthe house\na cat\n", encoding="utf-8")
    given = {}

    class Stop(Exception):  # noqa: N818
        pass

    def task(models, sets, config, prepare):  # noqa: ARG001
        given.update(models=models, sets=sets, prepare=prepare)
        raise Stop

    monkeypatch.setattr(ntk.experiments.experiment, "named_samples", dict)
    monkeypatch.setattr(ntk.experiments.experiment, "GramTask", task)
    data = NtkImages(n=8, m=6, data="texts.csv", targets=("new.csv",))
    network = NtkNetwork(model=str(folder), length=9, heads=2)
    with pytest.raises(Stop):
        run_analysis(NtkConfig(data, network), context)
    names = {"input_ids", "attention_mask"} | ({"token_type_ids"} if save is save_bert else set())
    assert {name: set(x) for name, x in given["sets"].items()} == dict.fromkeys(("train", "clean", "new"), names)
    assert given["sets"]["train"]["input_ids"].shape == (8, 9)
    assert given["sets"]["new"]["input_ids"].dtype == torch.int64
    assert (len(given["models"]), given["prepare"]) == (2, None)
    assert given["models"][0](**given["sets"]["new"]).shape == (2, 1)
    samples = DrawnSamples.load(NtkConfig(data, network))
    assert samples.further[0].samples.known_labels is None
    assert set(samples.inputs) == {"data_sha256", "model_sha256"}
    with pytest.raises(InputError, match="`length` must be at most"):
        DrawnSamples.load(NtkConfig(data, NtkNetwork(model=str(folder), length=99)))
