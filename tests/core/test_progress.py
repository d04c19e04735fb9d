"""The time that is left: said once it is known, and right when it is said."""

from __future__ import annotations

import logging

import pytest

from projnorm.core import progress
from projnorm.core.progress import RemainingTime, tracked


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_no_time_is_told_from_what_comes_before_the_first_step():
    """As a run does that reads and corrupts images for 40 s, and whose first step takes 2 s and the others 0.01 s."""
    remaining = RemainingTime(10_000)
    told = [(done, remaining.left(done, now=42.0 + 0.01 * done)) for done in range(1, 10_001)]
    known = [(done, left) for done, left in told if left is not None]
    assert known[0][0] == 201  # 2 % behind the first
    assert all(left == pytest.approx(0.01 * (10_000 - done), rel=1e-6) for done, left in known)


def test_slow_work_is_told_after_a_minute():
    remaining = RemainingTime(100_000)
    assert remaining.left(1, now=0.0) is None
    assert remaining.left(50, now=49.0) is None
    assert remaining.left(61, now=60.0) == pytest.approx(100_000 - 61)


def test_what_was_done_before_says_nothing_of_the_rate():
    remaining = RemainingTime(100, done=60)
    assert remaining.left(60, now=500.0) is None
    assert remaining.left(61, now=501.0) is None
    assert remaining.left(71, now=511.0) == pytest.approx(29.0)


def test_log_lines_have_a_time_only_when_it_is_known(clock, caplog):
    caplog.set_level(logging.INFO, "projnorm")
    for item in tracked(range(4), description="work", total=4):
        clock.now += 100.0 if item == 0 else 20.0
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "work: 25 % done",
        "work: 50 % done, about 40 s left",
        "work: 75 % done, about 20 s left",
        *lines[3:],
    ]
    assert len(lines) == 4
