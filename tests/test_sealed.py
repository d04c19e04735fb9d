"""A sealed file with any bit changed is refused, or says the same as before."""

from __future__ import annotations

import numpy as np
import pytest

from projnorm.runs import from_sealed_json, keep, kept, sealed_json
from projnorm.runs.sealed import require_seal

DOCUMENT = {"step": 4, "facts": {"lr": 0.001, "name": "a"}, "rows": [1, 2.5, None]}


@pytest.mark.parametrize("indent", [None, 1])
def test_a_document_with_any_bit_changed_is_refused_or_the_same(indent):
    data = sealed_json(DOCUMENT, indent=indent)
    assert from_sealed_json(data, keys=()) == DOCUMENT
    refused = 0
    for position in range(len(data)):
        for bit in range(8):
            damaged = data[:position] + bytes([data[position] ^ (1 << bit)]) + data[position + 1 :]
            try:
                assert from_sealed_json(damaged, keys=DOCUMENT) == DOCUMENT, damaged
            except ValueError:
                refused += 1
    assert refused > 0.95 * 8 * len(data)


def test_arrays_with_any_byte_changed_or_cut_off_are_refused(tmp_path, caplog):
    path = tmp_path / "arrays.npz"
    keep(path, {"a": np.arange(3.0)})
    data = path.read_bytes()
    require_seal(data)
    for position in range(len(data)):
        with pytest.raises(ValueError, match="its checksum differs"):
            require_seal(data[:position] + bytes([data[position] ^ 16]) + data[position + 1 :])
        with pytest.raises(ValueError, match="its checksum differs"):
            require_seal(data[:position])
    path.write_bytes(data[:-1])
    assert kept(path) is None
    assert "arrays.npz is damaged (its checksum differs)" in caplog.text
