"""Errors that a user can fix, as distinct from bugs of the library: one class for the whole project."""

from __future__ import annotations


class ProjnormError(Exception):
    """An error the user can fix; the message is one line and says how."""


class InputError(ProjnormError, ValueError):
    """An argument or a file that cannot be used; the message names it and says what is required.

    Examples:
        >>> from projnorm_theory import projnorm_linear
        >>> try:
        ...     projnorm_linear([1.0, 2.0], [[1.0, 0.0, 0.0]])
        ... except InputError as error:
        ...     print(error)
        `theta` must have 3 rows like the columns of `X_ood`; got shape (2,).
    """
