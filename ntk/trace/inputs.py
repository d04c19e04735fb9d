"""What a network is given: a tensor, a mapping of tensors such as a tokenizer's batch, or the batches of a loader."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader

from projnorm.core.errors import InputError

Inputs = Tensor | ArrayLike | Mapping[str, ArrayLike] | DataLoader[Any]
Values = Tensor | dict[str, Tensor]
Prepare = Callable[[Any], Any]
# How the outputs of a batch, shape (samples, outputs), become one number per sample.
Scalar = Callable[[Tensor], Tensor]

_LARGEST_BYTE = 255.0


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Samples, one per row of every tensor.

    Attributes:
        values: A tensor, which is the network's only argument, or its keyword arguments by name.
        outputs: Index of the network's output that each row stands for; None where all rows stand for the same.
    """

    values: Values
    outputs: Tensor | None = None

    @classmethod
    def from_inputs(cls, inputs: Inputs | Samples, name: str) -> Samples:
        """From anything that `Inputs` names, checked; `name` is what messages call it."""
        if isinstance(inputs, Samples):
            return inputs
        if isinstance(inputs, DataLoader):
            return _loaded(inputs, name)
        if not isinstance(inputs, Mapping):
            return cls(_checked(inputs, name))
        values = {str(key): _checked(value, f"{name}, {key!r},") for key, value in inputs.items()}
        if len({len(value) for value in values.values()}) != 1:
            lengths = ", ".join(f"{key} {len(value)}" for key, value in values.items())
            raise InputError(f"{name} must hold tensors with as many rows each; got {lengths or 'none'}.")
        return cls(values)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by the name of the argument; a single tensor has none."""
        return self.values if isinstance(self.values, dict) else {"": self.values}

    @property
    def nbytes(self) -> int:
        """Number of bytes of all tensors."""
        return sum(t.nbytes for t in self.tensors.values())

    @property
    def form(self) -> dict[str, tuple[int, ...]]:
        """Shape of a sample in each tensor."""
        return {name: tuple(t.shape[1:]) for name, t in self.tensors.items()}

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def __getitem__(self, rows: slice | Tensor) -> Samples:
        return self._each(lambda t: t[rows], None if self.outputs is None else self.outputs[rows])

    def clone(self) -> Samples:
        """A copy that shares no memory: of a view, all that it is a view of would travel to a worker."""
        return self._each(torch.Tensor.clone, self.outputs)

    def for_every_output(self, count: int) -> Samples:
        """Every sample once for each of the network's outputs, those of a sample side by side."""
        outputs = torch.arange(count).repeat(len(self))
        return self._each(lambda t: t.repeat_interleave(count, dim=0), outputs)

    def prepared(self, device: torch.device, prepare: Prepare | None, dtype: torch.dtype) -> Values:
        """What the network gets: on its device, by `prepare` where there is one, bytes else from 0 to 1 in `dtype`."""
        with torch.inference_mode(False):
            values = {name: t.to(device) for name, t in self.tensors.items()}
            # A tensor made under `torch.inference_mode()` takes no part in a backward pass; a copy does.
            values = {name: t.clone() if t.is_inference() else t for name, t in values.items()}
            batch = values if isinstance(self.values, dict) else values[""]
            if prepare is not None:
                return prepare(batch)
            if isinstance(batch, Tensor) and batch.dtype == torch.uint8:
                return batch.to(dtype) / _LARGEST_BYTE
            return batch

    def sha256(self) -> str:
        """Hash of names, types, shapes and numbers."""
        return values_hash(self.values)

    def _each(self, change: Callable[[Tensor], Tensor], outputs: Tensor | None) -> Samples:
        if isinstance(self.values, dict):
            return replace(self, values={name: change(t) for name, t in self.values.items()}, outputs=outputs)
        return replace(self, values=change(self.values), outputs=outputs)


def called(model: Callable[..., Any], values: Values) -> Tensor:
    """The outputs of a network, shape ``(samples, outputs)``: its tensor, or the `logits` of what it returns."""
    # Copies: a network may change its input in place, and the caller's samples must stay as they are.
    returned = (
        model(**{name: t.clone() for name, t in values.items()})
        if isinstance(values, dict)
        else model(values.clone() if isinstance(values, Tensor) else values)
    )
    outputs = returned.get("logits") if isinstance(returned, Mapping) else getattr(returned, "logits", returned)
    if not isinstance(outputs, Tensor):
        raise InputError(
            f"the network must return a tensor, or something with `logits`; it returns a {type(returned).__name__}."
        )
    if not outputs.is_floating_point():
        raise InputError(f"the network must return real numbers that have a gradient; it returns {outputs.dtype}.")
    rows = count_rows(values)
    if outputs.numel() == 0 or outputs.numel() % rows or (outputs.ndim > 0 and len(outputs) != rows and rows > 1):
        raise InputError(
            f"the network must give one row of outputs per sample; got {tuple(outputs.shape)} for {rows} samples."
        )
    return outputs.reshape(rows, -1)


def count_rows(values: Values) -> int:
    """Number of samples."""
    return len(next(iter(values.values())) if isinstance(values, dict) else values)


def row_of(values: Values, index: int) -> Values:
    """One sample, as a batch of one."""
    rows = slice(index, index + 1)
    return {name: t[rows] for name, t in values.items()} if isinstance(values, dict) else values[rows]


def doubled(values: Values) -> Values:
    """Every sample twice: networks may treat a batch of one in another way."""
    if isinstance(values, dict):
        return {name: torch.cat([t, t]) for name, t in values.items()}
    return torch.cat([values, values])


def values_hash(values: Values) -> str:
    """The SHA-256 of names, types, shapes and numbers."""
    digest = hashlib.sha256()
    for name, x in (values if isinstance(values, dict) else {"": values}).items():
        digest.update(f"{name}{x.dtype} {tuple(x.shape)}".encode())
        x = x.detach().cpu().contiguous()
        digest.update((x if x.dtype != torch.bfloat16 else x.view(torch.int16)).numpy().tobytes())
    return digest.hexdigest()


def _checked(inputs: Any, name: str) -> Tensor:
    try:
        x = torch.as_tensor(inputs)
    except (TypeError, ValueError, RuntimeError):
        remedy = "; pass torch.stack of them" if isinstance(inputs, list | tuple) else ""
        raise InputError(
            f"{name} must be numbers, one sample per row; got a {type(inputs).__name__}{remedy}."
        ) from None
    if x.ndim == 0 or len(x) == 0 or (x.ndim < 2 and x.is_floating_point()):
        raise InputError(f"{name} must hold one sample per row; got shape {tuple(x.shape)}.")
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise InputError(f"{name} must be finite.")
    return x


def _loaded(loader: DataLoader[Any], name: str) -> Samples:
    """All batches of a loader, without the labels that may come second in each."""
    batches = [Samples.from_inputs(batch[0] if isinstance(batch, tuple | list) else batch, name) for batch in loader]
    if not batches:
        raise InputError(f"{name} must hold one sample per row; the loader has no batch.")
    if any(batch.form != batches[0].form for batch in batches):
        raise InputError(f"{name} must be of one shape; the batches of the loader differ. Pad all to one length.")
    joined = {key: torch.cat([batch.tensors[key] for batch in batches]) for key in batches[0].tensors}
    return Samples(joined if isinstance(batches[0].values, dict) else joined[""])
