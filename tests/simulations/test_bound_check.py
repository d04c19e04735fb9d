"""The verification: it draws what it says, finds what is broken, and lets it be looked at again."""

from __future__ import annotations

import math

import numpy as np
import pytest

from projnorm.core.backends import Backend
from projnorm.core.records import RunContext
from projnorm_theory import check_assumptions, generalised_bound, sharp_interval
from projnorm_theory.bounds import holds
from simulations import BoundConfig, bound_check, flat_tail_design, run_bound_check
from simulations.bound_check import FAMILIES, draw_instance, load_instance, measure, violations

CONFIG = BoundConfig(instances=800, large=8)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return run_bound_check(CONFIG, RunContext(tmp_path_factory.mktemp("bound"), Backend(2)))


def test_no_interval_is_broken_where_it_must_hold(record):
    assert violations(record) == {}


def test_every_family_is_drawn_and_enough_are_deficient(record):
    counts = np.bincount(record.arrays["family"], minlength=len(FAMILIES))
    assert counts.min() >= 100
    shared_and_deficient = record.arrays["deficient"][record.arrays["family"] == 0]
    assert shared_and_deficient.sum() >= 0.1 * len(record.arrays["loss"])


def test_away_from_the_assumptions_the_paper_bound_breaks(record):
    missed = {
        family: np.mean(~holds(*(record.arrays[name][record.arrays["family"] == number] for name in ("loss", "paper"))))
        for number, family in enumerate(FAMILIES)
    }
    assert missed["exact"] == 0.0
    assert missed["flat"] == 1.0, "flat tails: at every angle, whichever the ground truth"
    assert min(missed["phi"], missed["rho"], missed["tilt"]) > 0.1


@pytest.mark.parametrize("index", range(16))
def test_instances_are_what_their_family_says(index):
    instance = draw_instance(CONFIG, index)
    design = instance.design
    report = check_assumptions(design.X, design.Y, design.X_ood, design.Y_ood, k=design.k)
    assert report.covariate_shift.residual < 1e-8
    assert report.norms.rho == pytest.approx(1 + (instance.dial if instance.family == "rho" else 0), rel=1e-6)
    assert report.span_gap == pytest.approx(math.sin(instance.dial) if instance.family == "tilt" else 0, abs=1e-8)
    leaning = instance.family in ("phi", "flat") and min(len(design.X), len(design.X_ood)) > design.k
    if leaning and report.covariate_shift.stacked_rank > design.k:
        assert report.leak == pytest.approx(math.sin(instance.dial), abs=1e-8) or report.leak == 0.0
    elif instance.family in ("exact", "rho"):
        assert report.leak < 1e-8


@pytest.mark.parametrize("root", ["tan", "cot"])
@pytest.mark.parametrize("phi", [0.05, 0.6, 1.2, 1.5])
def test_flat_tails_break_the_paper_bound_by_the_stated_factor(root, phi):
    design = flat_tail_design(np.random.default_rng(0), tail=5, k=3, phi=phi, root=root, dim=20)
    measured = measure(bound_check.Instance(design, "flat", math.pi / 2 - phi))
    factor = math.tan(phi / 2) ** 2 if root == "tan" else 1 / math.tan(phi / 2) ** 2
    assert measured["paper"][0] == pytest.approx(measured["paper"][1], rel=1e-9)
    assert measured["loss"] / measured["paper"][1] == pytest.approx(factor, rel=1e-8)


@pytest.mark.parametrize(
    ("loss", "inside"), [(1.0, True), (2.0, True), (1 - 1e-7, True), (1 - 1e-5, False), (2 + 1e-5, False)]
)
def test_only_rounding_is_forgiven(loss, inside):
    assert bool(holds(loss, np.array([1.0, 2.0]))) is inside
    assert not holds(loss, np.array([np.nan, np.nan]))


def test_sizes_and_spectra_are_as_wide_as_promised():
    instances = [draw_instance(CONFIG, index).design for index in range(400)]
    assert max(max(len(d.X), len(d.X_ood)) for d in instances) == 20
    assert 60 < max(d.X.shape[1] for d in instances) <= 80
    tails = [np.linalg.svd(d.X, compute_uv=False) for d in instances]
    conditions = [s[d.k] / s[s > 1e-12 * s[0]][-1] for s, d in zip(tails, instances, strict=True) if s.size > d.k]
    assert 1e4 < max(conditions) <= 1.01e6
    assert any(np.linalg.matrix_rank(d.X) < len(d.X) for d in instances)
    assert any(d.X.shape[1] < len(d.X) + len(d.X_ood) for d in instances)
    for number in range(8):
        large = draw_instance(CONFIG, CONFIG.instances + number).design
        assert large.X.shape == large.X_ood.shape == (200, 1000)


def test_the_columns_that_take_rho_as_one_do():
    instance = draw_instance(CONFIG, 3)
    assert instance.family == "rho"
    design, measured = instance.design, measure(instance)
    wrong = sharp_interval(design.X, design.Y, design.X_ood)
    assert measured["sharp_rho_1"] == pytest.approx((wrong.lower, wrong.upper), rel=1e-9)
    assert measured["generalised_0_rho_1"][1] == pytest.approx(
        generalised_bound(design.X, design.Y, design.X_ood).upper, rel=1e-9
    )
    assert measured["sharp"] != pytest.approx(measured["sharp_rho_1"])


def test_an_instance_depends_on_its_index_alone():
    ours, theirs = (draw_instance(BoundConfig(instances=n), 13).design for n in (100, 1000))
    assert np.array_equal(ours.X, theirs.X)
    assert np.array_equal(ours.theta_star, theirs.theta_star)
    assert not np.array_equal(ours.X, draw_instance(BoundConfig(seed=1), 13).design.X)


WHOLE = {"X": np.eye(3), "X_ood": np.eye(3), "theta_star": np.ones((3, 1)), "k": 1, "family": 0, "dial": 0.0}


@pytest.mark.parametrize(
    "change", [{"X": 0 * np.eye(3), "X_ood": 0 * np.eye(3)}, {"X": 1j * np.eye(3)}, {"family": -1}]
)
def test_a_file_that_is_no_instance_is_refused(tmp_path, change):
    np.savez(tmp_path / "x.npz", **(WHOLE | change))
    with pytest.raises(ValueError, match=r"x\.npz is not a saved design: .*\.$"):
        load_instance(tmp_path / "x.npz")


def test_a_file_without_its_arrays_says_which_are_needed(tmp_path):
    np.savez(tmp_path / "x.npz", **{name: array for name, array in WHOLE.items() if name != "X"})
    with pytest.raises(ValueError, match=r"it needs the arrays X, X_ood, theta_star, k, family and dial\.$"):
        load_instance(tmp_path / "x.npz")
