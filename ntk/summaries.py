"""What the records of experiments on tangent kernels say, as rows of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from projnorm.records import Record


def subsample_rows(record: Record) -> list[dict[str, Any]]:
    """One row per kind and number of sampled features: how far kernels and predictions are from the exact ones."""
    arrays = record.arrays
    rows: list[dict[str, Any]] = []
    for kind in dict.fromkeys(arrays["kinds"].tolist()):
        for count in np.unique(arrays["counts"][arrays["kinds"] == kind]).tolist():
            draws = np.flatnonzero((arrays["kinds"] == kind) & (arrays["counts"] == count))
            eigenvalues = np.abs(arrays["eigenvalue_error"][draws])
            rows.append(
                {
                    "kind": kind,
                    "count": count,
                    "draws": len(draws),
                    "eigenvalue_median": float(np.median(eigenvalues, axis=1).mean()),
                    "eigenvalue_largest": float(eigenvalues.max(axis=1).mean()),
                    "projnorm_rms": float(np.sqrt(np.mean(arrays["projnorm_error"][draws] ** 2))),
                    "error_shift_rms": float(np.sqrt(np.mean(arrays["error_shift"][draws] ** 2))),
                }
            )
    return rows
