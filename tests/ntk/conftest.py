"""Tensors here are tiny: a second thread would only wait for the first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from projnorm.device import torch_threads


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    with torch_threads(1):
        yield
