"""Results are plain data, and print as an answer instead of as arrays."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

import projnorm_theory as pt

RNG = np.random.default_rng(0)
X, X_OOD, TRUTH = RNG.standard_normal((6, 20)), RNG.standard_normal((5, 20)), RNG.standard_normal(20)
Y, Y_OOD = X @ TRUTH, X_OOD @ TRUTH
RESULTS = {
    "sharp": (lambda: pt.sharp_interval(X, Y, X_OOD), "TestLoss from "),
    "generalised": (lambda: pt.generalised_bound(X, Y, X_OOD), ", valid)"),
    "proposition": (lambda: pt.proposition_bound(X, Y, X_OOD, k=2), "NOT valid"),
    "projnorm": (lambda: pt.projnorm_linear(TRUTH, X_OOD), "ProjNormLinear "),
    "solution": (lambda: pt.min_norm_solution(X, Y), "theta = array (20,)"),
    "assumptions": (lambda: pt.check_assumptions(X, Y, X_OOD, Y_OOD, k=2), "covariate-shift residual"),
    "truths": (lambda: pt.attaining_truths(X, Y, X_OOD), "worst = array"),
    "spectrum": (lambda: pt.spectrum(X), "Spectrum: eigenvalues = array (6,)"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_plain_data_and_leads_with_the_answer(name):
    make, words = RESULTS[name]
    result = make()
    assert words in str(result)
    assert "array(" not in str(result)
    assert (str(result).count("\n") == 0) == (name != "assumptions")
    document = json.loads(json.dumps(result.to_dict()))
    assert set(document) == set(result.__dataclass_fields__)
    assert pickle.loads(pickle.dumps(result)).to_dict() == result.to_dict()  # noqa: S301
    assert result._repr_html_().startswith("<p>")


def test_an_interval_that_is_not_valid_says_so_first():
    assert "NOT valid" in str(pt.proposition_bound(X, Y, X_OOD, k=2))
    assert "NOT valid" not in str(pt.sharp_interval(X, Y, X_OOD))
    assert "not interpolated" in str(pt.generalised_bound(np.vstack([X, X]), np.r_[Y, Y + 1], X_OOD))
