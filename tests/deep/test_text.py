"""Whole runs on pairs of sentences: a tiny BERT, five methods, sets in their published forms, and what is refused."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from deep.checkpoints import load_checkpoint, save_checkpoint
from deep.ledger import Scores
from torch import nn

from deep.config import TEXT_METHODS, TextConfig
from deep.domain import TEXT_KIND
from deep.estimators.projnorm import ProjNorm
from deep.experiments.adversarial import AdversarialConfig, run_adversarial
from deep.experiments.comparison import open_run, run_comparison
from deep.experiments.label_shift import LabelShiftConfig, run_label_shift
from deep.experiments.ntk_predict import NtkPredictConfig, run_ntk_predict
from deep.experiments.sweep import SweepConfig, run_sweep
from deep.presets import TEXT_PRESETS
from deep.projnorm import train_reference
from deep.stages import Workplace, network_of, outputs_of
from deep.text import Text, load_text_data
from deep.training import Hardware, Recipe, batch_indices
from figures.networks import network_sections
from projnorm.backends import Backend
from projnorm.text import LABELS, made_pairs
from tests.deep.test_cli import one_line
from tests.text.checkpoints import save_bert

SMALL = TextConfig(
    targets=("templates-words-3", "templates-filler-3", "templates-negation-3"),
    n_train=400,
    n_validation=100,
    m=60,
    length=32,
    epochs=6,
    lr=2e-3,
    steps=6,
    projnorm_lr=2e-3,
    projnorm_batch=20,
    trajectory=(2, 6),
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("text")
    return root, run_comparison(SMALL, root=root)


def test_a_run_on_text_scores_every_target_with_five_methods(finished):
    root, record = finished
    assert record.id.startswith(f"{TEXT_KIND}-")
    config, ledger = open_run(root / record.id)
    assert config == SMALL
    scores = Scores.of(ledger.rows)
    assert scores.methods == TEXT_METHODS
    assert len(TEXT_METHODS) == 5
    assert scores.targets.tolist() == ["held out", *SMALL.targets]
    assert scores.families.tolist() == ["clean", "words", "filler", "negation"]
    assert scores.severities.tolist() == [0, 3, 3, 3]
    assert np.isfinite(scores.values).all()
    # What was learnt holds in distribution, and fails where negation means something else.
    assert scores.errors[0] < 0.4
    assert scores.errors[3] > scores.errors[0] + 0.1
    assert "random" in record.facts["weights"]


def test_projnorm_on_text_is_algorithm_1_with_adamw_in_plain_torch(finished):
    root, record = finished
    work = Workplace(SMALL, root / record.id, Hardware())
    train, target = work.data.train, work.data.targets[2].samples
    pseudo = network_of(work)(torch.from_numpy(target.inputs)).argmax(dim=1).numpy()
    initial = work.initial().model
    for module in initial.modules():  # what it drops is drawn; here nothing is
        if isinstance(module, nn.Dropout):
            module.p = 0.0

    def trained(inputs: np.ndarray, labels: np.ndarray) -> list[torch.Tensor]:
        model = copy.deepcopy(initial).train()
        optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
        for step in range(6):
            rows = batch_indices(len(labels), 20, step, SMALL.seed)
            for group in optimiser.param_groups:
                group["lr"] = 2e-3 * (1 - step / 6)
            optimiser.zero_grad()
            logits = model(torch.from_numpy(inputs[rows]))
            nn.functional.cross_entropy(logits, torch.from_numpy(labels[rows])).backward()
            optimiser.step()
        return [parameter.detach().double() for parameter in model.parameters()]

    ends = zip(trained(train.inputs[:60], train.labels[:60]), trained(target.inputs, pseudo), strict=True)
    expected = np.sqrt(sum(float(((a - b) ** 2).sum()) for a, b in ends))
    recipe = work.projnorm_recipe
    reference = train_reference(initial, train.inputs[:60], train.labels[:60], recipe, seed=SMALL.seed)
    estimator = ProjNorm(initial, reference, recipe, SMALL.seed)
    found = estimator.score(outputs_of(work, target))
    assert found == pytest.approx(expected, rel=1e-4)
    # The run itself drops out, with the same draws for target and reference.
    assert record.arrays["scores"][2, TEXT_METHODS.index("ProjNorm")] == pytest.approx(expected, rel=0.2)


def test_a_run_on_text_does_not_depend_on_the_workers(finished, tmp_path):
    root, record = finished
    other = run_comparison(SMALL, root=tmp_path, backend=Backend(2))
    name = f"{record.id}/ledger.jsonl"
    assert (tmp_path / name).read_bytes() == (root / name).read_bytes()
    assert other.id == record.id


def test_a_sweep_works_on_text_and_what_is_for_images_does_not(finished):
    root, record = finished
    assert SweepConfig.like_the_paper(record.id, SMALL).labels == ()
    sweep = run_sweep(SweepConfig(record.id, steps=(3,), references=("fine-tuned",), labels=("true",)), root=root)
    assert sweep.arrays["settings"].tolist() == ["as in the run", "T = 3", "reference = fine-tuned", "labels = true"]
    assert sweep.arrays["scores"].shape == (4, 4)
    assert len(np.unique(sweep.arrays["scores"][1])) == 4
    for refused in (
        lambda: run_sweep(SweepConfig(record.id, batch_norms=("frozen",)), root=root),
        lambda: run_adversarial(AdversarialConfig(record.id), root=root),
        lambda: run_label_shift(LabelShiftConfig(record.id), root=root),
        lambda: run_ntk_predict(NtkPredictConfig(record.id), root=root),
    ):
        with pytest.raises(ValueError, match="this works on images; the run is one on text"):
            refused()
    titles = [section.title for section in network_sections(root)]
    assert titles[0] == "Predicting the error of tiny on templates"
    assert "ProjNorm along its training" in titles
    assert "Methods together" in titles


def write_pairs(path, count: int, labels=LABELS, **facts: str) -> str:
    made = made_pairs("templates")
    lines = [
        json.dumps({"sentence1": one, "sentence2": other, "gold_label": labels[i % len(labels)], **facts})
        for i, (one, other) in enumerate(zip(made.premises[:count], made.hypotheses[:count], strict=True))
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_a_file_may_have_any_name(tmp_path):
    odd = write_pairs(tmp_path / "a=b+c.jsonl", 10)
    assert load_text_data(replace(SMALL, targets=(odd,))).targets[1].name == "a=b+c"


def test_predictions_are_merged_where_a_set_has_two_labels(tmp_path):
    two_way = write_pairs(tmp_path / "hans.jsonl", 40, ("entailment", "non-entailment"))
    config = replace(SMALL, targets=(f"HANS={two_way}",), m=40)
    data = load_text_data(config)
    target = data.targets[1]
    assert target.name == "HANS"
    assert target.merge == (0, 1, 1)
    truth = target.samples.labels
    assert target.error(truth) == 0.0
    assert target.error(2 * truth) == 0.0
    assert target.error(1 - truth) == 1.0
    assert data.targets[0].merge == ()
    assert data.facts["two_way_targets"] == ["HANS"]
    assert "count as non-entailment" in str(data.facts["merged"])
    # The same pairs with three labels are other data: their errors are others.
    three_way = write_pairs(tmp_path / "hans.jsonl", 40, ("entailment", "neutral"))
    assert load_text_data(config).targets[1].samples.sha256 == target.samples.sha256
    assert load_text_data(config).sha256 != data.sha256
    assert write_pairs(tmp_path / "hans.jsonl", 40, ("entailment", "non-entailment")) == three_way
    with pytest.raises(ValueError, match="`labels` true needs targets with three labels to train on; HANS has two"):
        load_text_data(replace(config, labels="true"))
    with pytest.raises(ValueError, match="training pairs must have three labels"):
        load_text_data(replace(config, data=two_way))


def test_parts_of_sets_are_targets_and_small_ones_are_named(tmp_path):
    colours = write_pairs(tmp_path / "colours.jsonl", 50, category="colours")
    places = write_pairs(tmp_path / "places.jsonl", 20, category="places")
    config = replace(SMALL, targets=(f"Both={colours}+{places}",), subsets=("category",), m=30)
    data = load_text_data(config)
    assert [target.name for target in data.targets] == ["held out", "Both", "Both, colours"]
    assert [target.family for target in data.targets] == ["clean", "Both", "Both"]
    assert [target.origin for target in data.targets] == ["clean", "given", "part"]
    assert [len(target.samples) for target in data.targets] == [30, 30, 30]
    assert data.facts["parts_left_out_for_fewer_than_m_pairs"] == ["Both, places"]
    larger = load_text_data(replace(config, m=100))
    assert larger.facts["sets_of_fewer_than_m_pairs"] == ["Both"]
    # Whole sets are drawn from all over: files may be sorted.
    few = load_text_data(replace(config, m=10, targets=(f"Both={colours}+{places}",))).targets[1].samples
    assert sum(row.tolist() in larger.targets[1].samples.inputs[:10].tolist() for row in few.inputs) < 10


def test_no_pair_is_both_learnt_and_predicted_on(tmp_path):
    own = replace(SMALL, targets=(), n_train=5000, n_validation=500, m=500)
    data = load_text_data(own)
    sets = [data.train, data.validation, data.targets[0].samples]
    assert [len(samples) for samples in sets] == [5000, 500, 500]
    assert len({row.tobytes() for samples in sets for row in samples.inputs}) == 6000
    assert data.facts["pairs_that_were_trained_on"] == {}
    again = load_text_data(replace(own, targets=("again=templates",)))
    assert again.facts["pairs_that_were_trained_on"]["again"] > 300
    apart = load_text_data(replace(own, test=f"apart={write_pairs(tmp_path / 'test.jsonl', 30)}", n_train=0))
    assert apart.targets[0].name == "apart"
    assert apart.targets[0].family == "clean"
    assert len(apart.train) == 5500
    with pytest.raises(ValueError, match="no pair is left to predict on in distribution"):
        load_text_data(replace(own, n_train=0))


def test_every_training_on_text_is_adamw_along_a_line():
    domain = Text(SMALL)
    assert domain.finetuning(70) == Recipe(70, 2e-3, 32, optimiser="adamw", decay="linear")
    assert domain.projnorm() == Recipe(6, 2e-3, 20, optimiser="adamw", decay="linear")


def test_another_checkpoint_of_the_same_name_is_another_stage(tmp_path):
    def stage() -> str:
        config = replace(SMALL, model=str(tmp_path / "model"), targets=())
        return Workplace(config, tmp_path / "run", Hardware()).stage("network").name

    save_bert(tmp_path / "model", seed=1)
    first = stage()
    assert stage() == first
    save_bert(tmp_path / "model", seed=2)
    assert stage() != first


def test_names_of_targets_reach_no_file(tmp_path, monkeypatch):
    good = write_pairs(tmp_path / "good.jsonl", 30)
    victim = tmp_path / "victim.txt"
    victim.write_text("precious", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = ("../../../victim.txt", "../ledger.jsonl", "a/b")
    assert (tmp_path / "runs" / "run" / "progress" / names[0]).resolve() == victim
    config = replace(SMALL, targets=tuple(f"{name}={good}" for name in names), methods=("ProjNorm",), epochs=1, m=20)
    record = run_comparison(config, root=tmp_path / "runs")
    assert record.arrays["targets"].tolist() == ["held out", *names]
    assert victim.read_text(encoding="utf-8") == "precious"
    assert run_comparison(config, root=tmp_path / "runs").created == record.created


def test_networks_that_share_tensors_are_kept(tmp_path):
    tied = torch.ones(3)
    save_checkpoint(tmp_path / "x.json", {"one": tied, "other": tied}, {})
    assert load_checkpoint(tmp_path / "x.json").tensors["other"].tolist() == [1.0, 1.0, 1.0]


def test_presets_on_text_are_the_papers():
    bert, roberta = TEXT_PRESETS["paper-mnli-bert"], TEXT_PRESETS["paper-mnli-roberta"]
    assert (bert.epochs, bert.lr, bert.steps, bert.projnorm_lr) == (4, 2e-5, 1000, 2e-5)
    assert len(bert.targets) == 11
    assert sum("STRESS-TEST" in target for target in bert.targets) == 5
    assert replace(bert, model=roberta.model) == roberta


QUICK = ("--n-train", "100", "--n-validation", "50", "--m", "30", "--epochs", "1", "--T", "2", "--workers", "1")


def test_text_on_the_command_line(projnorm, tmp_path):
    code, out, err = projnorm("deep", "text", "templates", *QUICK)
    assert (code, err) == (0, "")
    assert "tiny, 128 tokens" in out
    assert "ProjNorm" in out
    folder = next((tmp_path / "projnorm-out" / "runs").glob("deep-text-*"))
    assert (folder / "scatter.png").exists()
    document = json.loads(projnorm("deep", "text", "templates", *QUICK, "--json")[1])
    assert [row["method"] for row in document["rows"]] == list(TEXT_METHODS)
    assert document["config"]["model"] == "tiny"
    for command in ("table", "trajectory", "residuals", "ensemble"):
        assert projnorm("deep", command)[0] == 0, command
    assert "deep text" in projnorm("deep", "presets")[1]


def test_bad_text_is_one_line_and_loses_nothing(projnorm, tmp_path):
    run = ("deep", "text", "templates", *QUICK)
    one_line(projnorm("deep", "text", "digits"), "`preset` must be one of", "templates", "got 'digits'")
    one_line(projnorm(*run, "--methods", "Rotation"), "`methods` must be of ConfScore", "got 'Rotation'")
    one_line(projnorm(*run, "--subsets", "length"), "`subsets` must be of overlap, negation, category")
    one_line(projnorm(*run, "--target", "none.tsv"), "No such file or directory: none.tsv")
    one_line(projnorm(*run, "--model", "none"), "`model` none: no checkpoint could be read there")
    one_line(projnorm(*run, "--length", "500"), "`length` must be at most 128 for tiny; got 500")
    one_line(projnorm(*run, "--length", "4"), "`length` must be at least 5")
    for spec in ("", "a=", "x=+", "="):
        one_line(projnorm(*run, "--target", spec), "a target must be FILE or NAME=FILE+FILE", repr(spec))
    one_line(projnorm(*run, "--target", "templates-words-9"), "'templates-words-9' is not a set of templates")
    one_line(projnorm(*run, "--download"), "--download needs --model to be a name on the hub; got 'tiny'")
    (tmp_path / "bad.tsv").write_text("premise\thypothesis\tlabel\na\tb\t0\nc\td\tmaybe\n", encoding="utf-8")
    one_line(projnorm(*run, "--target", "bad.tsv"), "bad.tsv, line 3: 'maybe' is not a label")
    good = write_pairs(tmp_path / "good.jsonl", 10)
    one_line(projnorm(*run, "--target", good, "--target", f"good={good}"), "no two targets may be called 'good'")
    for name in ("", "clean", "words", "x" * 81, "a\x07b"):
        one_line(projnorm(*run, "--target", f"{name}={good}"), "a target must have a name of 1 to 80")
    one_line(projnorm(*run, "--data", ""), "pairs must come from a file; got ''")
    one_line(projnorm(*run, "--data", str(tmp_path)), "pairs must come from a file")
    one_line(projnorm(*run, "--n-train", "6000"), "must leave 2 samples or more of the 6,000 of templates")
    assert not list((tmp_path / "projnorm-out").rglob("run.json"))
