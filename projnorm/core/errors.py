"""Errors that a user can fix, as distinct from bugs of the library.

Every function of the library raises `InputError` for an argument or a file that cannot be used, and Python's `OSError`
for a file that cannot be read or written; docstrings do not repeat it.
"""

from __future__ import annotations

from projnorm_theory.errors import InputError as InputError, ProjnormError as ProjnormError


class ChangedInputError(InputError):
    """Earlier results that were computed from other data, weights or versions."""


class MissingExtraError(ProjnormError, ImportError):
    """A library that belongs to an extra which is not installed."""


class ClusterError(ProjnormError):
    """A cluster that cannot be reached, does not fit, or was lost on the way."""
