"""Parameters whose gradients are computed together: those of a layer, or of layers that share some."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ntk.trace.uses import Traced

# Routes of parameters that no rule covers, and of those that the output does not depend on.
AUTOGRAD, UNUSED = "autograd", "unused"


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """Parameters of a layer, or of layers that share some.

    Attributes:
        name: Name of the layer, or of the parameter.
        parameters: Indices of the parameters.
        sizes: Number of entries of each.
        uses: Indices of the uses of a pass that they enter.
        route: "autograd" where no rule covers them, "unused" where the output does not depend on them, else empty.
    """

    name: str
    parameters: tuple[int, ...]
    sizes: tuple[int, ...]
    uses: tuple[int, ...]
    route: str = ""

    @property
    def size(self) -> int:
        """Number of entries of all of them."""
        return sum(self.sizes)


def group_parameters(
    named_sizes: Mapping[str, int], uses: Sequence[Collection[Traced]], left: Collection[int]
) -> Iterator[ParameterGroup]:
    """The groups of all parameters, those that are left to plain autograd in one.

    Args:
        named_sizes: Number of entries of each parameter, by its name.
        uses: What enters each use of a pass.
        left: Indices of the parameters that are left to plain autograd.
    """
    names, sizes = list(named_sizes), list(named_sizes.values())
    joined = [{index} for index in range(len(names))]  # of each parameter those that it is together with
    uses_of: dict[int, list[int]] = {}
    for number, entering in enumerate(uses):
        together = {index for traced in entering for index in traced.parameters} - set(left)
        union = set().union(*(joined[index] for index in together))
        for index in union:
            joined[index] = union
        for index in together:
            uses_of.setdefault(index, []).append(number)
    ruled = {tuple(sorted(group)) for group in joined if group.isdisjoint(left)}
    for indices in sorted([*ruled, *([tuple(sorted(left))] if left else [])]):
        numbers = tuple(sorted({number for index in indices for number in uses_of.get(index, [])}))
        is_left = indices[0] in left
        route = AUTOGRAD if is_left else "" if numbers else UNUSED
        name = _name([names[index] for index in indices])
        group_sizes = tuple(sizes[index] for index in indices)
        yield ParameterGroup(name, indices, group_sizes, () if is_left else numbers, route)


def derived_with(uses: Sequence[Collection[Traced]], left: Collection[int]) -> set[int]:
    """Indices of further parameters that are left: those that a value was computed from together with one of `left`."""
    derived = [set(traced.parameters) for use in uses for traced in use if len(traced.parameters) > 1]
    closure = set(left)
    while more := set().union(*(indices for indices in derived if indices & closure)) - closure:
        closure |= more
    return closure - set(left)


def _name(names: Sequence[str]) -> str:
    owners = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
    if len(names) == 1 and not names[0].endswith((".weight", ".bias")):
        return names[0]
    return owners[0] + (f" and {len(owners) - 1} more" if len(owners) > 1 else "") or names[0]
