"""Whole runs on pairs of sentences: a tiny BERT, five methods, sets in their published forms, and what is refused."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

from deep.comparison.adversarial import run_adversarial
from deep.comparison.analysis_config import AdversarialConfig, LabelShiftConfig, NtkPredictConfig, SweepConfig
from deep.comparison.comparison import run_comparison
from deep.comparison.config import TEXT_KIND, TEXT_METHODS, TextConfig, TextData, TextNetwork
from deep.comparison.kernels_of_run import run_ntk_predict
from deep.comparison.label_shift import run_label_shift
from deep.comparison.presets import TEXT_PRESETS, preset
from deep.comparison.runs import open_run
from deep.comparison.sweep import run_sweep
from deep.comparison.text_targets import load_text_data
from projnorm.core.errors import InputError
from projnorm.core.records import RunContext
from projnorm.data.nli import LABELS
from projnorm.data.templates import made_pairs

SMALL = TextConfig(
    TextData(
        targets=("templates-words-3", "templates-filler-3", "templates-negation-3"), n=400, n_validation=100, m=60
    ),
    TextNetwork(length=32),
).updated(
    {"finetune": {"epochs": 6, "lr": 2e-3}, "projnorm": {"steps": 6, "lr": 2e-3, "batch": 20, "trajectory": (2, 6)}}
)


def with_data(base: TextConfig = SMALL, **changes) -> TextConfig:
    return base.updated({"data": changes})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    context = RunContext(tmp_path_factory.mktemp("text"), device="cpu")
    return context, run_comparison(SMALL, context)


def test_a_run_on_text_scores_every_target_with_five_methods(finished):
    context, record = finished
    assert record.id.startswith(f"{TEXT_KIND}-")
    run = open_run(context.root)
    assert run.config == SMALL
    scores = run.scores()
    assert scores.methods == TEXT_METHODS
    assert len(TEXT_METHODS) == 5
    assert scores.targets.tolist() == ["held out", *SMALL.data.targets]
    assert scores.families.tolist() == ["clean", "words", "filler", "negation"]
    assert scores.severities.tolist() == [0, 3, 3, 3]
    assert np.isfinite(scores.values).all()
    # What was learnt holds in distribution, and fails where negation means something else.
    assert scores.errors[0] < 0.4
    assert scores.errors[3] > scores.errors[0] + 0.1
    assert "random" in record.facts["weights"]


def test_a_sweep_works_on_text_and_what_is_for_images_does_not(finished):
    context, record = finished
    assert SweepConfig.like_the_paper(record.id, SMALL).labels == ()
    sweep = run_sweep(SweepConfig(record.id, steps=(3,), reference=("fine-tuned",), labels=("true",)), context)
    assert sweep.arrays["settings"].tolist() == ["as in the run", "T = 3", "reference = fine-tuned", "labels = true"]
    assert sweep.arrays["scores"].shape == (4, 4)
    assert len(np.unique(sweep.arrays["scores"][1])) == 4
    for refused in (
        lambda: run_sweep(SweepConfig(record.id, batch_norm=("frozen",)), context),
        lambda: run_adversarial(AdversarialConfig(record.id), context),
        lambda: run_label_shift(LabelShiftConfig(record.id), context),
        lambda: run_ntk_predict(NtkPredictConfig(record.id), context),
    ):
        with pytest.raises(InputError, match="this works on images; the run is one on text"):
            refused()


def write_pairs(path, count: int, labels=LABELS, **facts: str) -> str:
    made = made_pairs("templates")
    lines = [
        json.dumps({"sentence1": one, "sentence2": other, "gold_label": labels[i % len(labels)], **facts})
        for i, (one, other) in enumerate(zip(made.premises[:count], made.hypotheses[:count], strict=True))
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_predictions_are_merged_where_a_set_has_two_labels(tmp_path):
    two_way = write_pairs(tmp_path / "hans.jsonl", 40, ("entailment", "non-entailment"))
    config = with_data(targets=(f"HANS={two_way}",), m=40)
    data = load_text_data(config)
    target = data.targets[1]
    assert (target.name, target.merge, data.targets[0].merge) == ("HANS", (0, 1, 1), ())
    truth = target.samples.labels
    assert [target.error(predicted) for predicted in (truth, 2 * truth, 1 - truth)] == [0.0, 0.0, 1.0]
    assert data.facts["two_way_targets"] == ["HANS"]
    assert "count as non-entailment" in str(data.facts["merged"])
    # The same pairs with three labels are other data: their errors are others.
    three_way = write_pairs(tmp_path / "hans.jsonl", 40, ("entailment", "neutral"))
    assert load_text_data(config).targets[1].samples.sha256 == target.samples.sha256
    assert load_text_data(config).sha256 != data.sha256
    assert write_pairs(tmp_path / "hans.jsonl", 40, ("entailment", "non-entailment")) == three_way
    with pytest.raises(InputError, match="`labels` true needs targets with three labels to train on; HANS has two"):
        load_text_data(config.updated({"projnorm": {"labels": "true"}}))
    with pytest.raises(InputError, match="training pairs must have three labels"):
        load_text_data(with_data(config, data=two_way))


def test_parts_of_sets_are_targets_and_small_ones_are_named(tmp_path):
    colours = write_pairs(tmp_path / "colours.jsonl", 50, category="colours")
    places = write_pairs(tmp_path / "places.jsonl", 20, category="places")
    config = with_data(targets=(f"Both={colours}+{places}",), subsets=("category",), m=30)
    data = load_text_data(config)
    found = [(target.name, target.family, target.origin, len(target.samples)) for target in data.targets]
    assert found[0] == ("held out", "clean", "clean", 30)
    assert found[1:] == [("Both", "Both", "given", 30), ("Both, colours", "Both", "part", 30)]
    assert data.facts["parts_left_out_for_fewer_than_m_pairs"] == ["Both, places"]
    larger = load_text_data(with_data(config, m=100))
    assert larger.facts["sets_of_fewer_than_m_pairs"] == ["Both"]
    # Whole sets are drawn from all over: files may be sorted.
    few = load_text_data(with_data(config, m=10)).targets[1].samples
    assert sum(row.tolist() in larger.targets[1].samples.inputs[:10].tolist() for row in few.inputs) < 10


def write_reviews(path, count: int, words: str = "fine") -> str:
    """Reviews of two classes in turns: 1 says the word, 0 denies it."""
    lines = [f"{i % 2}\t{'' if i % 2 else 'not '}{words} number {i}" for i in range(count)]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return str(path)


def test_single_texts_are_pairs_without_a_second_sentence_and_drawn_with_other_class_shares(tmp_path):
    books, films = write_reviews(tmp_path / "books.gz", 130), write_reviews(tmp_path / "films.gz", 80, "good")
    config = with_data(data=books, targets=(f"films={films}",), shares=(0.2, 0.75), n=50, n_validation=20, m=20)
    data = load_text_data(config)
    assert data.classes == 2
    found = {target.name: (target.family, target.origin, target.samples.labels.mean()) for target in data.targets}
    assert list(found) == [
        *("held out", "held out, 20% 1", "held out, 75% 1"),
        *("films", "films, 20% 1", "films, 75% 1"),
    ]
    assert found["films, 20% 1"] == ("films", "part", 0.2)
    assert found["films, 75% 1"] == ("films", "part", 0.75)
    # No set has enough of a class for 70 texts with a fifth of the other.
    larger = load_text_data(with_data(config, m=70))
    assert "films, 20% 1" in larger.facts["parts_left_out_for_fewer_than_m_pairs"]
    record = run_comparison(
        config.updated({"methods": ("ConfScore", "ProjNorm", "ProjNorm-matched")}), RunContext(tmp_path, device="cpu")
    )
    assert np.isfinite(record.arrays["scores"]).all()
    with pytest.raises(InputError, match=r"pairs: must have the classes of books.gz, 0, 1; it has entailment, neutral"):
        load_text_data(with_data(config, targets=(f"pairs={write_pairs(tmp_path / 'pairs.jsonl', 30)}",)))
    (tmp_path / "bare.csv").write_text("text\nno label\n", encoding="utf-8")
    with pytest.raises(InputError, match="its texts must have a `label`"):
        load_text_data(with_data(config, data=str(tmp_path / "bare.csv")))


def test_no_pair_is_both_learnt_and_predicted_on(tmp_path):
    own = with_data(targets=(), n=5000, n_validation=500, m=500)
    data = load_text_data(own)
    sets = [data.train, data.validation, data.targets[0].samples]
    assert [len(samples) for samples in sets] == [5000, 500, 500]
    assert len({row.tobytes() for samples in sets for row in samples.inputs}) == 6000
    assert data.facts["pairs_that_were_trained_on"] == {}
    again = load_text_data(with_data(own, targets=("again=templates",)))
    assert again.facts["pairs_that_were_trained_on"]["again"] > 300
    apart = load_text_data(with_data(own, test=f"apart={write_pairs(tmp_path / 'test.jsonl', 30)}", n=0))
    assert (apart.targets[0].name, apart.targets[0].family, len(apart.train)) == ("apart", "clean", 5500)
    with pytest.raises(InputError, match="no pair is left to predict on in distribution"):
        load_text_data(with_data(own, n=0))


def test_presets_on_text_are_the_papers():
    bert, roberta = TEXT_PRESETS["paper-mnli-bert"], TEXT_PRESETS["paper-mnli-roberta"]
    assert (bert.finetune.epochs, bert.finetune.lr, bert.projnorm.steps, bert.projnorm.lr) == (4, 2e-5, 1000, 2e-5)
    assert len(bert.data.targets) == 11
    assert sum("STRESS-TEST" in target for target in bert.data.targets) == 5
    assert replace(bert, network=roberta.network) == roberta
    with pytest.raises(InputError, match=r"`preset` must be one of .*templates; got 'digit'"):
        preset("digit")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": {"model": "none"}}, "`model` none: no checkpoint could be read there"),
        ({"network": {"length": 500}}, "`length` must be at most 128 for tiny; got 500"),
        ({"data": {"targets": ("",)}}, "a target must be FILE or NAME=FILE.FILE; got ''"),
        ({"data": {"targets": ("x=+",)}}, "a target must be FILE or NAME=FILE.FILE"),
        ({"data": {"targets": ("templates-words-9",)}}, "'templates-words-9' is not a set of templates"),
        ({"data": {"targets": ("bad.tsv",)}}, "bad.tsv, line 3: 'maybe' is not a label"),
        ({"data": {"targets": ("good.jsonl", "good=good.jsonl")}}, "no two targets may be called 'good'"),
        *(
            ({"data": {"targets": (f"{name}=good.jsonl",)}}, "a target must have a name of 1 to 80")
            for name in ("", "clean", "x" * 81, "a\x07b")
        ),
        ({"data": {"data": ""}}, "pairs must come from a file; got ''"),
        ({"data": {"n": 6000}}, "must leave 2 samples or more of the 6,000 of templates"),
        ({"projnorm": {"layers": ("nope",)}}, "`projnorm.layers` must be of body, or within them; got nope"),
    ],
)
def test_bad_text_is_refused_before_anything_is_written(tmp_path, monkeypatch, change, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.tsv").write_text("premise\thypothesis\tlabel\na\tb\t0\nc\td\tmaybe\n", encoding="utf-8")
    write_pairs(tmp_path / "good.jsonl", 10)
    with pytest.raises((InputError, OSError), match=message):
        run_comparison(SMALL.updated(change), RunContext(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()
