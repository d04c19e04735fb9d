"""`projnorm estimate` as a user meets it: two files and a number, and one line for everything that is wrong."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from deep.training.loop import train
from projnorm.core.arrays import read_arrays, to_npz
from projnorm.models.recipe import Recipe
from tests.small import world

world = partial(world, classes=3, noise=0.6)
MODEL = """
import sys
from torch import nn

build = lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
broken = lambda: {}["luck"]
strange = lambda: 7
leaves = lambda: sys.exit("no licence")
nothing_built = lambda: None
odd = lambda: nn.Flatten(0)
"""
PIPELINE = """
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

def build():
    columns = ColumnTransformer([("pay", SimpleImputer(), ["pay"]), ("city", OneHotEncoder(), ["city"])])
    table = pd.DataFrame({"city": ["Rome", "Bonn"] * 50, "pay": 0.0})
    return make_pipeline(columns, LogisticRegression()).fit(table, ["yes", "no"] * 50)
"""
OUTPUTS = ("--source", "val.npz", "--target", "new.npz")
INPUTS = ("--source", "val-inputs.npz", "--target", "new-inputs.npz")
BUILT = ("--model", "model.py:build")

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def folder(tmp_path):
    """Outputs and inputs of a small network, and the file that builds it."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    torch.save(network.state_dict(), tmp_path / "w0.pth")
    train(network, *world(500, 0.0, 0), Recipe(200, lr=0.3, batch=500, momentum=0.0), seed=0)
    torch.save(network.state_dict(), tmp_path / "w.pth")
    (tmp_path / "model.py").write_text(MODEL)
    for name, shift, seed in (("val", 0.0, 1), ("new", 0.3, 2), *((f"f{i}-1", 0.08 * i, 3 + i) for i in range(10))):
        points, labels = world(200, shift, seed)
        with torch.no_grad():
            logits = network(torch.from_numpy(points)).numpy()
        known = {} if name == "new" else {"labels": labels}
        (tmp_path / f"{name}.npz").write_bytes(to_npz({"logits": logits, **known}))
        (tmp_path / f"{name}-inputs.npz").write_bytes(to_npz({"inputs": points, **known}))
    return tmp_path


@pytest.fixture
def predict(projnorm):
    """The estimates that `projnorm estimate --json` prints, and its exit code."""

    def run(*arguments: str, warned: bool = False) -> tuple[list[dict], int]:
        code, out, err = projnorm("estimate", *arguments, "--json")
        assert (err != "") == warned
        return json.loads(out)["estimates"], code

    return run


def write(table, path):
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow")
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)


def test_two_files_give_an_error_with_an_interval_and_what_it_covers(projnorm):
    code, out, err = projnorm("estimate", *OUTPUTS)
    assert (code, err) == (0, "")
    assert out.startswith("new: Estimated error")
    assert "90 % range" in out
    assert "The range covers sampling noise, the hypotheses that were not refuted, and an allowance" in out
    assert "not run: needs features" in projnorm("estimate", *OUTPUTS, "--all-methods")[1]


def test_json_has_everything_and_a_threshold_its_probability(predict):
    (found,), code = predict(*OUTPUTS, "--fail-above", "0.9")
    assert code == 0
    assert found["low"] <= found["error"] <= found["high"]
    assert found["probability_above"] < 0.5
    (above,), code = predict(*OUTPUTS, "--fail-above", "0.01")
    assert code == 1
    assert above["probability_above"] > 0.5
    assert predict(*OUTPUTS, "--fail-above", str(found["error"]), "--fail-probability", "0.6")[1] == 0


def test_what_is_known_of_the_shift_is_an_option(predict):
    by_shift = {shift: predict(*OUTPUTS, "--shift", shift)[0][0] for shift in ("any", "inputs")}
    assert by_shift["inputs"]["based_on"] == ["COT"]
    assert [one["name"] for one in by_shift["any"]["hypotheses"]][:2] == ["no shift", "class shares"]
    (known,), code = predict(*OUTPUTS, "--class-shares", "0.2,0.3,0.5")
    assert code == 0
    assert known["class_shares"] == pytest.approx([0.2, 0.3, 0.5])


def test_labelled_shifted_sets_behind_one_option_give_the_full_interval(predict, folder):
    sets = [f"f{i}-1.npz" for i in range(10)]
    (found,), code = predict(*OUTPUTS, "--calibration", *sets, "--card", "card.html")
    assert code == 0
    assert found["calibration"]["families"] == [*(f"f{i}" for i in range(10)), "source"]
    assert found["high"] - found["low"] < 0.9
    page = (folder / "card.html").read_text(encoding="utf-8")
    assert "Estimated error" in page
    assert "data:image/svg+xml" in page


def test_a_network_is_built_by_the_users_file(predict):
    weights = (*BUILT, "--weights", "w.pth")
    more = ("--init", "w0.pth", "--second", "w0.pth", "--target", "f3-1-inputs.npz", "--methods", "ProjNorm,COT,GDE")
    sets = ("--calibration", *(f"f{i}-1-inputs.npz" for i in range(6)))
    (first, second), code = predict(*INPUTS, *weights, *more, *sets)
    assert code == 0
    assert (first["target"], second["target"]) == ("new-inputs", "f3-1-inputs")
    scores = {one["method"]: one["score"] for one in first["methods"]}
    assert scores["ProjNorm"] > 0.0
    assert scores["GDE"] > 0.0
    assert first["based_on"] == ["ProjNorm", "COT", "GDE"]
    assert first["calibration"]["origin"] == "given"
    assert first["hypotheses"] == []
    assert predict(*INPUTS, *weights, "--no-calibrate")[0][0]["calibration"] is None


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_tables_of_outputs_give_what_the_arrays_give(predict, folder, ending):
    for name in ("val", "new"):
        arrays = read_arrays(folder / f"{name}.npz")
        table = pd.DataFrame(arrays["logits"].astype(np.float64), columns=["logit_a", "logit_b", "logit_c"])
        if name == "val":
            table["species"] = np.array(["a", "b", "c"])[arrays["labels"]]
        write(table, folder / f"{name}{ending}")
    named = ("--label-column", "species")
    (found,), _ = predict("--source", f"val{ending}", "--target", f"new{ending}", *named)
    (plain,), _ = predict(*OUTPUTS)
    assert found["target"] == "new"
    assert found["error"] == pytest.approx(plain["error"], abs=1e-6)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_tables_of_inputs_go_to_the_model_as_they_are(predict, folder, ending):
    (folder / "pipeline.py").write_text(PIPELINE)
    city = np.array(["Rome", "Bonn"] * 60)
    table = pd.DataFrame({"pay": np.linspace(-1, 1, 120), "city": city, "y": np.where(city == "Rome", "yes", "no")})
    table.loc[3, "pay"] = np.nan
    write(table, folder / f"val{ending}")
    write(table[:60], folder / f"labelled{ending}")
    write(table[60:].drop(columns="y"), folder / f"new{ending}")
    targets = (f"new{ending}", f"labelled{ending}")
    (new, labelled), code = predict(
        "--source", f"val{ending}", "--target", *targets, "--model", "pipeline.py:build", "--no-calibrate", warned=True
    )
    assert code == 0
    assert (new["truth"], labelled["truth"]) == (None, 0.0)
    assert new["error"] < 0.2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--source", "nowhere.npz", "--target", "new.npz"), "nowhere.npz: there is no such file"),
        (("--source", "new.npz", "--target", "new.npz"), "must have `labels`"),
        ((*OUTPUTS, "--target", "./new.npz"), "two sets are called 'new'"),
        (("--source", "val.npz", "--target", "val-inputs.npz"), "needs one of the arrays `logits`"),
        ((*OUTPUTS, "--level", "1.5"), "--level must be below 1"),
        ((*OUTPUTS, "--shift", "both"), "--shift"),
        ((*OUTPUTS, "--class-shares", "0.5,0.5"), "must be 3 numbers from 0 to 1, one for each class"),
        ((*OUTPUTS, "--class-shares", "0.5,0.2,0.2"), "must add up to 1; got 0.9"),
        ((*OUTPUTS, "--class-shares", "1.5,-0.5,0"), "must be 3 numbers from 0 to 1"),
        ((*OUTPUTS, "--class-shares", "many"), "--class-shares"),
        ((*OUTPUTS, "--methods", "Entropy"), "need calibration; pass labelled shifted sets as --calibration, or"),
        ((*OUTPUTS, "--weights", "w.pth"), "--weights needs --model"),
        ((*OUTPUTS, "--preprocess", "unit"), "--preprocess needs --model to be FILE.py:FUNCTION"),
        ((*OUTPUTS, "--label-column", "y"), "--label-column is for .csv and .parquet files"),
        (
            ("--source", "some.csv", "--target", "new.npz", "--label-column", "kind"),
            "name the column as --label-column",
        ),
        (("--source", "some.csv", "--target", "new.npz", *BUILT), "some.csv: has no labels in a column called label"),
        (
            ("--source", "text.npz", "--target", "new.npz"),
            "text.npz: must be an .npz file, but has the content of a .csv",
        ),
        ((*INPUTS, "--model", "model.py"), "--model must be FILE.py:FUNCTION"),
        ((*INPUTS, "--model", "model.py:broken"), "failed: KeyError: 'luck'"),
        (
            (*INPUTS, "--model", "model.py:strange", "--second", "w.pth"),
            "weights need --model to build a torch network",
        ),
        ((*INPUTS, "--model", "model.py:leaves"), "failed: SystemExit: no licence"),
        ((*INPUTS, "--model", "model.py:nothing_built"), "returned None; it must return the model"),
        ((*INPUTS, "--model", "model.py:odd"), "the model must give logits of shape"),
        ((*INPUTS, *BUILT, "--target", "narrow.npz"), "the model cannot see these samples: RuntimeError"),
        ((*INPUTS, "--model", "bad.py:build"), "bad.py: SyntaxError"),
        ((*INPUTS, *BUILT, "--weights", "other.pth"), "lacks 0.bias"),
        ((*INPUTS, "--model", "model.onnx", "--weights", "w.pth"), "--weights needs --model to be FILE.py:FUNCTION"),
    ],
)
def test_bad_input_is_one_line(projnorm, folder, arguments, words):
    (folder / "bad.py").write_text("def build(:\n")
    for name in ("some.csv", "text.npz"):
        (folder / name).write_text("prob_a,prob_b\n0.5,0.5\n", encoding="utf-8")
    torch.save({"x": torch.zeros(2)}, folder / "other.pth")
    (folder / "narrow.npz").write_bytes(to_npz({"inputs": np.zeros((5, 2), np.float32)}))
    code, out, err = projnorm("estimate", *arguments)
    assert (code, out) == (2, "")
    *before, line = err.splitlines()
    assert words in line
    assert all("no --weights were given" in other for other in before)


def test_labels_of_a_target_give_the_truth_if_they_are_any(projnorm, folder):
    (folder / "minus.npz").write_bytes(to_npz({"logits": np.eye(3)[[0, 1, 2] * 10], "labels": np.full(30, -1)}))
    code, out, err = projnorm("estimate", "--source", "val.npz", "--target", "minus.npz")
    assert code == 0
    assert "true error" not in out
    assert "labels are left out, so the true error is not shown" in err
    assert "The true error, from the target's labels, is" in projnorm("estimate", *OUTPUTS[:3], "f3-1.npz")[1]


def test_a_card_that_cannot_be_written_loses_nothing(projnorm, folder):
    (folder / "card.html").mkdir()
    code, out, err = projnorm("estimate", *OUTPUTS, "--card", "card.html")
    assert code == 2
    assert "Estimated error" in out
    assert err.count("\n") == 1
    assert not list(folder.glob(".*.part"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("estimate", *OUTPUTS, "--card", "new.npz"), "new.npz: is read by this command; name another file as --card"),
        (("estimate", *OUTPUTS, "--card", "w.pth"), "w.pth: exists, and is no page"),
        (("fit", "--source", "val.npz", "--out", "./val.npz"), "val.npz: is read by this command"),
        (("fit", "--source", "val.npz", "--out", "new.npz"), "new.npz: exists, and `projnorm fit` did not write it"),
    ],
)
def test_files_of_the_user_are_not_written_over(projnorm, folder, arguments, words):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = projnorm(*arguments)
    assert (result.code, words in result.err) == (2, True), result.err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_an_estimator_and_a_page_are_written_again(projnorm):
    for _ in range(2):
        assert projnorm("fit", "--source", "val.npz", "--out", "e.projnorm").code == 0
        assert projnorm("estimate", *OUTPUTS, "--card", "card.html").code == 0
