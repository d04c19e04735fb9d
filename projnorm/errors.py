"""What a user can mend, told apart from what is a bug of ours."""

from __future__ import annotations


class ProjnormError(Exception):
    """Something a user can mend; the message is one line that says how."""


class InputError(ProjnormError, ValueError):
    """An argument or a file that cannot be used."""


class ChangedInputError(InputError):
    """Earlier results that were computed from other data, weights or versions."""


class MissingExtraError(ProjnormError, ImportError):
    """A library that belongs to an extra which is not installed."""


class ClusterError(ProjnormError):
    """A cluster that cannot be reached, does not fit, or was lost on the way."""
