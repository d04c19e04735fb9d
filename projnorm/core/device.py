"""The device that networks run on, its precision and its threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from projnorm.core.backends import Backend
from projnorm.core.errors import InputError

_DEVICES = ("cpu", "cuda", "mps")


def describe_torch() -> str:
    """Version of torch, the devices that it can compute on, processor instructions that its code uses, and threads."""
    devices = [f"cuda {torch.version.cuda}, {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    devices += [*(["mps"] if torch.backends.mps.is_available() else []), "cpu"]
    processor, threads = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
    return f"{torch.__version__} on {'; '.join(devices)} ({processor}), {threads} threads"


def choose_device(device: str | torch.device = "auto") -> torch.device:
    """The device of this name; "auto" is CUDA, then MPS, then the CPU."""
    if str(device) != "auto":
        if str(device).partition(":")[0] not in _DEVICES:
            raise InputError(f"`device` must be auto or one of {', '.join(_DEVICES)}; got {str(device)!r}.")
        try:
            chosen = torch.device(device)
            torch.empty(0, device=chosen)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            why = str(error).strip().split("\n")[0].rstrip(".")
            raise InputError(f"`device` {str(device)!r} is not available here: {why}.") from None
        return chosen
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def on_device(backend: Backend, device: str | torch.device) -> Backend:
    """The backend with one worker for each CUDA device, which then sees no other; of other accelerators, one worker.

    A cluster is left as it is: there, whoever starts a worker says which GPU it sees.
    """
    kind = torch.device(device).type
    if backend.scheduler or kind == "cpu":
        return backend
    if kind != "cuda" or torch.device(device).index is not None:
        return replace(backend, workers=1)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",") if visible else [str(index) for index in range(torch.cuda.device_count())]
    workers = min(backend.workers, len(gpus))
    return replace(backend, workers=workers, gpus=tuple(gpus) if workers > 1 else ())


@contextmanager
def full_precision() -> Iterator[None]:
    """TF32, reduced-precision products and inference mode are off inside, and as they were afterwards."""
    matmul, convolution = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    try:
        with torch.inference_mode(False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cuda.matmul.allow_tf32 = matmul
        torch.backends.cudnn.allow_tf32 = convolution


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use this number of threads inside, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
