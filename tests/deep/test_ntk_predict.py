"""Kernels of a run, against the error of its network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from deep.experiments.comparison import run_comparison
from deep.experiments.config import NtkPredictConfig
from deep.experiments.ntk_predict import METHOD, TUNED, chosen_variant, run_ntk_predict, variant_qualities
from deep.runs import Run, kernel_rows, open_run
from deep.samples import few_indices
from deep.stages import data_of, outputs_of
from projnorm.errors import InputError
from projnorm.records import RunContext
from tests.deep.small import SMALL
from tests.deep.test_comparison import documents


def test_kernels_of_a_run_add_two_rows(finished):
    context, record = finished
    before = documents(context.root, record.id)
    before.pop("tangent-kernels.json", None)
    for body in ("fine-tuned", "initial"):
        kernels = run_ntk_predict(NtkPredictConfig(record.id, n=30, m=25, body=body), context)
        rows = kernel_rows(context.root / record.id)
        assert [row.method for row in rows] == [METHOD] * 5 + [TUNED] * 5
        np.testing.assert_allclose([row.score for row in rows[:5]], kernels.arrays["projnorm"], rtol=1e-6)
        assert {row.m for row in rows} == {25}
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
    for options, message in (
        ({"run": record.id, "n": 300}, "`n` must be from 2 to 200 and `m` at most 60"),
        ({"run": "deep-none"}, "`run` must name one run in"),
    ):
        with pytest.raises(InputError, match=message):
            run_ntk_predict(NtkPredictConfig(**options), context)
    with pytest.raises(InputError, match="`body` must be one of initial, fine-tuned"):
        NtkPredictConfig("x", body="soul")


def test_the_kernel_of_the_last_layer_is_that_of_its_inputs(finished):
    context, record = finished
    config = NtkPredictConfig(record.id, n=30, m=25, body="fine-tuned", layers=("fc",))
    kernels = run_ntk_predict(config, context)
    run = Run(SMALL, replace(context, device="cpu"), record.id)
    clean = outputs_of(run, data_of(run).targets[0].samples).take(few_indices(60, 25, SMALL.seed))
    features = np.column_stack([clean.known_features, np.ones(25)]).astype(float)
    eigenvalues = np.linalg.eigvalsh(features @ features.T)[::-1]
    np.testing.assert_allclose(kernels.arrays["eigenvalues"][0], eigenvalues, atol=1e-5 * eigenvalues[0])
    assert kernels.facts["parameters"] == features.shape[1]
    with pytest.raises(ValueError, match="`layers` names 'heart', where the network has no parameters"):
        run_ntk_predict(replace(config, layers=("heart",)), context)


def test_without_probe_families_nothing_is_called_tuned(tmp_path):
    context = RunContext(tmp_path)
    record = run_comparison(SMALL.updated({"data": {"families": ("fog",)}, "methods": ("Entropy",)}), context)
    kernels = run_ntk_predict(NtkPredictConfig(n=20, m=20), context)
    assert chosen_variant(kernels) is None
    assert {row.method for row in kernel_rows(tmp_path / record.id)} == {METHOD}
