"""`projnorm deep` as a new user meets it, with good and bad input."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
import torch

from projnorm.vision import resnet18
from projnorm.vision.networks import SmallCNN

QUICK = [
    *("--families", "contrast,gaussian_blur,fog", "--severities", "1,5", "--n-train", "100", "--n-validation", "40"),
    *("--m", "40", "--epochs", "2", "--T", "3", "--projnorm-batch", "20", "--rotation-samples", "40"),
]


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_a_run_ends_in_a_table_and_figures_that_come_back_from_the_ledger(projnorm, tmp_path):
    code, out, err = projnorm("deep", "run", "digits", *QUICK, "--workers", "1")
    assert (code, err) == (0, "")
    for method in ("Rotation", "ConfScore", "Entropy", "AgreeScore", "ATC", "ProjNorm"):
        assert f"\n{method} " in out
    assert "random: the network was never trained before" in out
    folder = next((tmp_path / "projnorm-out" / "runs").glob("deep-*"))
    for name in ("scatter.png", "severity.pdf", "table.md", "table.tex", "table.csv", "table.txt", "ledger.jsonl"):
        assert (folder / name).stat().st_size > 100, name
    code, markdown, _ = projnorm("deep", "table", "--format", "markdown")
    assert code == 0
    assert markdown == (folder / "table.md").read_text()
    assert markdown.startswith("| method | R^2 | rho | MAE |\n| --- |")
    code, text, _ = projnorm("deep", "table", folder.name[:8], "--targets", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["target"] for row in rows][:2] == ["clean", "contrast-1"]
    assert rows[1]["origin"] == "generated"
    code, latex, _ = projnorm("deep", "table", "--format", "latex")
    assert latex.startswith("\\begin{tabular}{llll}")
    assert "R\\textasciicircum{}2" in latex
    before = (folder / "scatter.svg").read_bytes()
    code, paths, _ = projnorm("deep", "figures")
    assert code == 0
    assert "scatter.png" in paths
    assert (folder / "scatter.svg").read_bytes() == before
    code, out, _ = projnorm("deep", "run", "digits", *QUICK, "--json")
    document = json.loads(out)
    assert {row["method"] for row in document["rows"]} >= {"ATC", "ProjNorm"}
    assert document["facts"]["inputs"]["device"] == "cpu"
    code, out, err = projnorm("deep", "ntk", "--n", "20", "--m", "15")
    assert (code, err) == (0, "")
    assert "raw, ridge 0, labels of the kernel" in out
    _, out, _ = projnorm("deep", "table")
    assert "ProjNormLinear-NTK " in out
    code, out, _ = projnorm("deep", "ntk", "--n", "20", "--m", "15", "--json")
    document = json.loads(out)
    assert len(document["variants"]) == 40
    assert document["rows"][0]["r_squared"][0] == pytest.approx(
        _variant(document, "raw, ridge 0, labels of the kernel")
    )


def _variant(document, name):
    return next(row["all"][0] for row in document["variants"] if row["variant"] == name)


def test_presets_and_gallery(projnorm, tmp_path):
    code, out, _ = projnorm("deep", "presets")
    assert code == 0
    assert "paper-cifar100-vgg11" in out
    assert json.loads(projnorm("deep", "presets", "--json")[1])["digits"]["data"] == "digits"
    code, out, _ = projnorm("deep", "gallery")
    assert code == 0
    assert (tmp_path / "projnorm-out" / "figures" / "corruptions.png").exists()
    assert "run" in projnorm("deep")[1]


def one_line(result: tuple[int, str, str], *parts: str) -> None:
    code, out, err = result
    assert code == 2
    assert out == ""
    assert err.startswith("projnorm: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


def test_bad_input_is_one_line_and_loses_nothing(projnorm, tmp_path):
    images = np.zeros((40, 32, 32, 3), np.uint8)
    labels = np.arange(40) % 4
    run = ("deep", "run", "digits", *QUICK)
    one_line(projnorm("deep", "run", "nonsense"), "`preset` must be one of", "digits", "got 'nonsense'")
    one_line(projnorm(*run, "--methods", "ATC,Oracle"), "`methods` must be of", "got 'Oracle'")
    one_line(projnorm(*run, "--families", "rain"), "`families` must be of", "got 'rain'")
    one_line(projnorm(*run, "--severities", "1,x"), "--severities must be numbers")
    one_line(projnorm(*run, "--device", "abacus"), "`device` must be auto or one of")
    one_line(projnorm(*run, "--precision", "mixed"), "`precision` mixed needs CUDA")
    one_line(projnorm(*run, "--architecture", "vgg11", "--size", "16"), "vgg11 cannot see images of `size` 16 px")
    one_line(projnorm(*run, "--download"), "--download needs --data to be one of cifar10, cifar100; got 'digits'")
    one_line(projnorm(*run, "--data", "none.npz"), "there is no data at none.npz")
    one_line(projnorm(*run, "--data", "cifar10"), "cifar10 is not at", "--download")
    one_line(projnorm(*run, "--weights", "none.pth"), "there are no weights at none.pth")
    one_line(projnorm(*run, "--weights", "imagenet"), "no ImageNet weights of small-cnn")
    one_line(projnorm(*run, "--corruptions", "nowhere"), "nowhere")
    np.savez(tmp_path / "labels.npz", images=images, labels=labels.astype(float))
    one_line(projnorm(*run, "--data", "labels.npz"), "labels must be 40 integers; got float64")
    np.savez(tmp_path / "shape.npz", images=images[..., 0], labels=labels)
    one_line(projnorm(*run, "--data", "shape.npz"), "images must be uint8 of shape (n, height, width, 3)")
    np.savez(tmp_path / "float.npz", images=images / 255.0, labels=labels)
    one_line(projnorm(*run, "--target", "float.npz"), "images must be uint8")
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"\x1f\x8b" + bytes(50))
    one_line(projnorm(*run, "--data", "cifar-10-binary.tar.gz"), "cifar-10-binary.tar.gz: not a whole archive of CIFAR")
    torch.save(resnet18(10).state_dict(), tmp_path / "other.pth")
    one_line(projnorm(*run, "--weights", "other.pth"), "other.pth: ", "features")
    torch.save(SmallCNN(4, (8, 8, 8)).state_dict(), tmp_path / "narrow.pth")
    one_line(projnorm(*run, "--weights", "narrow.pth"), "narrow.pth: 'features.0.weight' has shape (8, 3, 3, 3)")
    assert not list((tmp_path / "projnorm-out").rglob("ledger.jsonl"))
    assert not list((tmp_path / "projnorm-out").rglob("run.json"))
    one_line(projnorm("deep", "table"), "ID must name one run in", "matches none")
    one_line(projnorm("deep", "table", "--format", "yaml"), "`format` must be one of text, markdown, latex, csv")
    one_line(projnorm("deep", "ntk"), "ID must name one run in")
