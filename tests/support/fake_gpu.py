"""A GPU that is the processor: with memory of its own, a driver that fails on demand, wrong kernels.

Its tensors are on torch's device "cpu:0", which is another one than "cpu", the host. The processor
runs the reference meanwhile, so that both have the same bits.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels import devices
from kernels.backend import reference
from kernels.backend.backend import Backend
from kernels.backend.refusal import Reason, Refusal
from kernels.backend.torch_backend import torch_backend
from kernels.backends import KNOWN

LABEL = "Fake GPU"
PLACE = torch.device("cpu", 0)


class FakeGpu:
    """The only GPU of the computer, while a test runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free_bytes = 1 << 40
        self.reserved_bytes = 0  # that this process has
        self.refusal: Refusal | None = None
        self.fault: BaseException | None = None  # what the driver raises from now on
        self.calls_left = -1  # products until it raises `fault`; -1: at once
        self.is_wrong = False
        self.products = 0
        self._held: list[weakref.ref[Any]] = []
        kernels = dict(torch_backend(str(PLACE)).kernels)
        for key, kernel in list(kernels.items()):
            if key[0] in ("prepare", "linear", "memory"):
                kernels[key] = self._watched(key[0], kernel)
        kernels["read_bandwidth", "F32"] = lambda size: 1e15
        self.backend = Backend("cuda", kernels, None, PLACE, lambda: self.free_bytes)
        monkeypatch.setattr(self.backend, "reserved_bytes", lambda: self.reserved_bytes)
        monkeypatch.setattr("kernels.devices.found", self._found)
        monkeypatch.setattr("kernels.cuda.cuda_backend", lambda number: self.backend)
        monkeypatch.setattr("kernels.backends.BACKENDS", {"reference": KNOWN["reference"]})
        monkeypatch.setattr("engine.loading.device_choice._bandwidths", {})
        monkeypatch.setitem(
            reference.KERNELS, ("read_bandwidth", "F32"), lambda size, device=None: 1e9
        )

    def refuse(self, reason: Reason, text: str) -> None:
        """The GPU cannot be used."""
        self.refusal = Refusal(reason, text)

    def fail(self, fault: BaseException, after: int = -1) -> None:
        """The driver raises this, after so many more products."""
        self.fault, self.calls_left = fault, after

    @property
    def held(self) -> int:
        """Weights and pages that are on the GPU."""
        gc.collect()
        return sum(one() is not None for one in self._held)

    def _found(self) -> list[devices.Device]:
        return [devices.Device("cuda", LABEL, 1 << 40, self.free_bytes, self.refusal)]

    def _watched(self, op: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def run(*operands: Any, **options: Any) -> Any:
            self._raise(op)
            made = kernel(*operands, **options)
            if op == "linear":
                return -made if self.is_wrong else made
            self._held.append(weakref.ref(made if op == "memory" else made.data))
            return made

        return run

    def _raise(self, op: str) -> None:
        self.products += op == "linear"
        if self.fault is not None and (self.calls_left < 0 or op == "linear"):
            if self.calls_left <= 0:
                raise self.fault
            self.calls_left -= 1
