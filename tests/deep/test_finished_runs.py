"""What runs share, and experiments on a finished run: kernels against its error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from deep.comparison.analysis_config import NtkPredictConfig
from deep.comparison.comparison import run_comparison
from deep.comparison.kernels_of_run import (
    METHOD,
    TUNED,
    chosen_variant,
    run_ntk_predict,
    subset_qualities,
    variant_qualities,
)
from deep.comparison.runs import Run, kernel_scores, open_run
from deep.comparison.stages import STAGE_NAMES
from deep.comparison.trained_networks import networks_of
from figures import ntk_variants
from ntk.experiments.variants import PLAIN
from projnorm.core.errors import InputError
from projnorm.core.records import RunContext
from projnorm.core.statistics import fit_quality, subsample_indices
from projnorm.core.store import Store
from projnorm.models.networks import SmallCNN
from tests.deep.test_comparison import documents, same_arrays
from tests.small import SMALL


def test_damaged_networks_and_values_are_computed_again(tmp_path, finished):
    _, record = finished
    config = SMALL.updated({"methods": ("Entropy", "ProjNorm")})
    first = run_comparison(config, RunContext(tmp_path))
    np.testing.assert_array_equal(first.arrays["scores"], record.arrays["scores"][:, [2, 5]])
    Store(tmp_path).remove(f"{first.id}/record")
    next((tmp_path / "projnorm").glob("*/*.npz")).write_bytes(b"damaged")
    for file in (tmp_path / "trained").glob("network-*.npz"):
        file.write_bytes(file.read_bytes()[:100])
    before = documents(tmp_path, first.id)
    same_arrays(first, run_comparison(config, RunContext(tmp_path)))
    assert documents(tmp_path, first.id) == before


def run_of(config, root) -> Run:
    return Run(config, RunContext(root, device="cpu"), "run")


@pytest.mark.parametrize(
    "change",
    [
        {"projnorm": {"samples": 31}},
        {"projnorm": {"lr": 0.3}},
        {"finetune": {"lr": 0.3}},
        {"projnorm": {"reference_samples": "m"}},
        {"projnorm": {"labels": "true"}},
        {"projnorm": {"trajectory": (2,)}},
        {"projnorm": {"reference": "trained"}},
        {"projnorm": {"reference": "matched"}},
        {"network": {"weights": "other.pth"}},
    ],
)
def test_a_value_of_projnorm_is_shared_only_with_runs_it_cannot_differ_in(tmp_path, monkeypatch, change):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    torch.save(SmallCNN(10).state_dict(), "other.pth")

    def identity(config, change):
        run = run_of(config.updated(change), tmp_path)
        return networks_of(run).projnorm_identity(run.config.projnorm.reference)

    base = SMALL.updated({"projnorm": {"reference": "fine-tuned", "reference_samples": "all"}})
    assert identity(base, {"data": {"families": ("fog",)}}) == identity(base, {})
    assert (identity(base, change) == identity(base, {})) == (change == {"projnorm": {"reference_samples": "m"}})
    if "finetune" in change:  # the network that labels, where it is not the reference
        assert identity(SMALL, change) != identity(SMALL, {})


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        ({"projnorm": {"lr": 0.3}}, {"network", "second", "rotation"}),
        ({"projnorm": {"steps": 3, "trajectory": ()}}, {"network", "second", "rotation"}),
        ({"data": {"families": ("fog",)}}, {"network", "second", "reference", "rotation"}),
        ({"finetune": {"lr": 0.3}}, {"reference"}),
        ({"data": {"n": 90}}, {"reference"}),
        ({"rotation": {"samples": 17}}, {"network", "second", "reference"}),
        ({"rotation": {"head": "joint"}}, {"second", "reference"}),
        ({"data": {"m": 31}}, {"network", "second", "rotation"}),
        ({"projnorm": {"samples": 31}}, {"network", "second", "rotation"}),
        ({"network": {"size": 16}}, set()),
        ({"seed": 1}, set()),
    ],
)
def test_a_stage_is_shared_only_with_runs_it_cannot_differ_in(tmp_path, change, stays):
    def keys(config):
        networks = networks_of(run_of(config, tmp_path))
        return {name: networks.stage_key(name) for name in STAGE_NAMES}

    before, after = keys(SMALL), keys(SMALL.updated(change))
    assert {name for name in before if before[name] == after[name]} == stays


def test_kernels_of_a_run_add_two_rows(finished):
    context, record = finished
    before = documents(context.root, record.id)
    before.pop("tangent-kernels.json", None)
    for body in ("fine-tuned", "initial"):
        kernels = run_ntk_predict(NtkPredictConfig(record.id, n=30, m=25, body=body), context)
        parts = kernel_scores(context.root / record.id)
        assert [list(part.scores) for part in parts] == [[METHOD, TUNED]] * 5
        np.testing.assert_allclose([part.scores[METHOD] for part in parts], kernels.arrays["projnorm"], rtol=1e-6)
        assert {part.m for part in parts} == {25}
        assert kernels.facts["check_error"] < 1e-3
        np.testing.assert_array_equal(kernels.arrays["network_error"], record.arrays["errors"])
        names = kernels.arrays["variants"].tolist()
        plain = kernels.arrays["variant_values"][names.index("raw, ridge 0, labels of the kernel")]
        np.testing.assert_allclose(plain, kernels.arrays["projnorm"], rtol=1e-6)
        assert len(variant_qualities(kernels)) == len(names)
    assert run_ntk_predict(NtkPredictConfig(record.id, n=30, m=25), context).created == kernels.created
    assert open_run(context.root, record.id).scores().methods == (*SMALL.methods, METHOD, TUNED)
    after = documents(context.root, record.id)
    assert {name: data for name, data in after.items() if name.startswith(("outputs", "projnorm"))} == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 300, "m": 25}, "`n` must be from 2 to 200 and `m` at most 60"),
        ({"n": 9, "m": 8, "subsets": (9,)}, "`subsets` must be at most 8; got 9"),
        ({"run": "deep-none"}, "`run` must name one run of .*; there is none whose name begins with .deep-none."),
        ({"body": "soul"}, "`body` must be one of initial, fine-tuned"),
        ({"n": 9, "m": 9, "layers": ("heart",)}, "`layers` names 'heart'"),
    ],
)
def test_what_the_run_cannot_give_is_refused(finished, options, message):
    context, record = finished
    with pytest.raises(InputError, match=message):
        run_ntk_predict(NtkPredictConfig(**{"run": record.id, **options}), context)


def test_kernels_of_fewer_samples_are_parts_of_those_of_more(finished):
    context, record = finished
    few = run_ntk_predict(NtkPredictConfig(record.id, n=12, m=12), context)
    many = run_ntk_predict(NtkPredictConfig(record.id, n=30, m=25, subsets=(12, 20)), context)
    assert subset_qualities(few) == []
    rows = subset_qualities(many)
    assert [(row.n, row.m) for row in rows] == [(12, 12), (20, 20), (30, 25)]
    assert rows[-1].chosen == variant_qualities(many)[0]
    np.testing.assert_allclose(many.arrays["subset_values"][0], few.arrays["variant_values"], rtol=1e-5)
    plain = many.arrays["subset_values"][1, many.arrays["variants"].tolist().index(str(PLAIN))]
    expected = fit_quality(plain, many.arrays["network_error"])
    assert rows[1].plain.r_squared.value == pytest.approx(expected.r_squared)
    assert rows[1].plain.spearman.value == pytest.approx(expected.spearman)
    report = ntk_variants.show(many, context.root / many.id)
    assert [row["n"] for row in report.values["sizes"]] == [12, 20, 30]
    assert any("R^2 as defined" in block.header for block in report.blocks if not isinstance(block, str))


def test_the_kernel_of_the_last_layer_is_that_of_its_inputs(finished):
    context, record = finished
    config = NtkPredictConfig(record.id, n=30, m=25, body="fine-tuned", layers=("fc",))
    kernels = run_ntk_predict(config, context)
    run = Run(SMALL, replace(context, device="cpu"), record.id)
    clean = (
        networks_of(run).outputs(networks_of(run).data.targets[0].samples).take(subsample_indices(60, 25, SMALL.seed))
    )
    features = np.column_stack([clean.known_features, np.ones(25)]).astype(float)
    eigenvalues = np.linalg.eigvalsh(features @ features.T)[::-1]
    np.testing.assert_allclose(kernels.arrays["eigenvalues"][0], eigenvalues, atol=1e-5 * eigenvalues[0])
    assert kernels.facts["parameters"] == features.shape[1]


def test_without_probe_families_nothing_is_called_tuned(tmp_path):
    context = RunContext(tmp_path)
    record = run_comparison(SMALL.updated({"data": {"families": ("fog",)}, "methods": ("Entropy",)}), context)
    kernels = run_ntk_predict(NtkPredictConfig(n=20, m=20), context)
    assert chosen_variant(kernels) is None
    assert {method for part in kernel_scores(tmp_path / record.id) for method in part.scores} == {METHOD}
