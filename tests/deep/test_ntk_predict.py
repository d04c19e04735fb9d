"""Kernels of a run, against the error of its network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from deep.experiments.comparison import LEDGER, run_comparison
from deep.experiments.ntk_predict import (
    METHOD,
    TUNED,
    NtkPredictConfig,
    chosen_variant,
    kernel_rows,
    run_ntk_predict,
    variant_qualities,
)
from deep.samples import few_indices
from deep.stages import Workplace, outputs_of
from deep.training import Hardware
from tests.deep.small import SMALL


def test_kernels_of_a_run_add_two_rows(finished):
    root, record = finished
    ledger = (root / record.id / LEDGER).read_bytes()
    for body in ("fine-tuned", "initial"):
        found = run_ntk_predict(NtkPredictConfig(record.id, n=30, m=25, body=body), root=root)
        rows = kernel_rows(root / record.id)
        assert [row.method for row in rows] == [METHOD] * 5 + [TUNED] * 5
        np.testing.assert_allclose([row.score for row in rows[:5]], found.arrays["projnorm"], rtol=1e-6)
        assert {row.m for row in rows} == {25}
        assert found.facts["check_error"] < 1e-3
        np.testing.assert_array_equal(found.arrays["network_error"], record.arrays["errors"])
        names = found.arrays["variants"].tolist()
        plain = found.arrays["variant_values"][names.index("raw, ridge 0, labels of the kernel")]
        np.testing.assert_allclose(plain, found.arrays["projnorm"], rtol=1e-6)
        assert len(variant_qualities(found)) == len(names)
    assert run_ntk_predict(NtkPredictConfig(record.id, n=30, m=25), root=root).created == found.created
    assert (root / record.id / LEDGER).read_bytes() == ledger
    with pytest.raises(ValueError, match="`n` must be from 2 to 200 and `m` at most 60"):
        run_ntk_predict(NtkPredictConfig(record.id, n=300), root=root)
    with pytest.raises(ValueError, match="there is no run in"):
        run_ntk_predict(NtkPredictConfig("deep-none"), root=root)
    with pytest.raises(ValueError, match="`body` must be one of initial, fine-tuned"):
        NtkPredictConfig("x", body="soul")


def test_the_kernel_of_the_last_layer_is_that_of_its_inputs(finished):
    root, record = finished
    config = NtkPredictConfig(record.id, n=30, m=25, body="fine-tuned", layers=("fc",))
    found = run_ntk_predict(config, root=root)
    work = Workplace(SMALL, root / record.id, Hardware())
    clean = work.data.targets[0].samples
    features = np.column_stack([outputs_of(work, clean).features[few_indices(60, 25, SMALL.seed)], np.ones(25)]).astype(
        float
    )
    eigenvalues = np.linalg.eigvalsh(features @ features.T)[::-1]
    np.testing.assert_allclose(found.arrays["eigenvalues"][0], eigenvalues, atol=1e-5 * eigenvalues[0])
    assert found.facts["parameters"] == features.shape[1]
    with pytest.raises(ValueError, match="`layers` names 'heart', where the network has no parameters"):
        run_ntk_predict(replace(config, layers=("heart",)), root=root)


def test_the_kernel_may_see_the_images_larger(finished):
    root, record = finished
    found = run_ntk_predict(NtkPredictConfig(record.id, n=20, m=10, size=40), root=root)
    plain = run_ntk_predict(NtkPredictConfig(record.id, n=20, m=10), root=root)
    assert found.config["size"] == 40
    assert found.id != plain.id
    assert np.all(found.arrays["eigenvalues"][0] != plain.arrays["eigenvalues"][0])


def test_without_probe_families_nothing_is_called_tuned(tmp_path):
    record = run_comparison(replace(SMALL, families=("fog",), methods=("Entropy",)), root=tmp_path)
    found = run_ntk_predict(NtkPredictConfig(record.id, n=20, m=20), root=tmp_path)
    assert chosen_variant(found) is None
    assert {row.method for row in kernel_rows(tmp_path / record.id)} == {METHOD}
