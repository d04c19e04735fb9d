r"""The cheapest transport of rows of probabilities onto labels with given class shares, and its dual solution.

The rows, each of mass :math:`1/m`, are moved onto the corners of the simplex. The cost is half the :math:`\ell_1`
distance, which from a row to a corner is :math:`c_{jk} = 1 - p_{jk}`, so the problem has :math:`m \times K` unknowns.
Its dual,

.. math:: \max_{f, g} \frac1m \sum_j f_j + \sum_k q_k g_k \quad\text{with}\quad f_j + g_k \le c_{jk},

says to first order what the cost becomes with other rows or other shares: :math:`f_j` and :math:`g_k` are its influence
functions (del Barrio, Gordaliza and Loubes, "A central limit theorem for transportation cost", 2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats

# Most steps of the network simplex; a problem of 10,000 rows and 1,000 classes takes far fewer.
_MOST_STEPS = 100_000_000
# Largest difference of the primal and the dual value that rounding explains.
_GAP = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class Transport:
    """An optimal plan, and the dual solution that proves it optimal.

    Attributes:
        costs: Cost of every row in the plan, shape ``(m,)``.
        row_potentials: Dual value of every row, the least of ``costs_jk - class_potentials_k``, shape ``(m,)``.
        class_potentials: Dual value of every class, shape ``(classes,)``; finite for classes without a share too.
        shares: Share of each class that the rows were moved onto.
    """

    costs: Floats
    row_potentials: Floats
    class_potentials: Floats
    shares: Floats

    @property
    def cost(self) -> float:
        """Cost of the plan: the mean over the rows."""
        return float(self.costs.mean())


def transport(rows: Floats, shares: Floats) -> Transport:
    """The cheapest plan from rows of probabilities onto classes with these shares, exactly.

    >>> plan = transport(np.array([[0.9, 0.1], [0.6, 0.4]]), np.array([0.5, 0.5]))
    >>> plan.costs.round(3), round(plan.cost, 3)
    (array([0.1, 0.6]), 0.35)

    Args:
        rows: Probabilities, shape ``(m, classes)``.
        shares: Share of each class, which may be zero; they add up to one.

    Raises:
        InputError: If `shares` are not one number per class that add up to one, or the solver ran out of steps.
    """
    if shares.shape != rows.shape[1:] or shares.min() < 0.0 or not math.isclose(shares.sum(), 1.0, abs_tol=1e-6):
        raise InputError(
            f"`shares` must be {rows.shape[1]} numbers, none negative, that add up to 1; got shape {shares.shape} and "
            f"the sum {shares.sum():.6g}."
        )
    import ot  # it imports torch where that is installed, which takes a second

    shares = shares / shares.sum()
    cost, count, used = 1.0 - rows, len(rows), shares > 0.0
    among = cost[:, used]
    plan, log = ot.emd(np.full(count, 1.0 / count), shares[used], among, numItermax=_MOST_STEPS, log=True)
    costs = count * np.einsum("jk,jk->j", plan, among)
    # Replacing each potential by the largest that the others allow never lowers the dual value, and bounds potentials
    # that a degenerate plan leaves free; a class without a share gets its one-sided derivative.
    f = (among - log["v"]).min(axis=1)
    g = (cost - f[:, None]).min(axis=0)
    f = (cost - g).min(axis=1)
    if abs(costs.mean() - f.mean() - shares @ g) > _GAP:
        raise InputError(f"no optimal transport of {count:,} rows was found in {_MOST_STEPS:,} steps.")
    return Transport(costs, f, g, shares)
