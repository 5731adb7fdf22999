"""Clocks and counts of the CUDA benchmark, on a GPU or in Triton's interpreter."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from kernels.cuda import adapters, attention, experts, heads, launch, states

_SWEPT_BYTES = 512 << 20  # written to empty the caches


@dataclass
class Kernels:
    """Kernels of one call: how many, and the time of each name in microseconds; 0: not known."""

    count: int
    seconds: dict[str, float] = field(default_factory=dict)


class Clock:
    """Times calls on the processor, where the kernels run in Triton's interpreter."""

    device = torch.device("cpu")
    name = "Triton's interpreter on the processor: no times of a GPU"

    def finish(self) -> None:
        """Wait until the device has done all that was launched."""

    def sweep(self) -> None:
        """Empty the caches of the device."""

    @cached_property
    def bandwidth(self) -> float:
        """Bytes read and written per second by a copy on the device."""
        return self._bandwidth(1 << 20, 2)

    @cached_property
    def rate(self) -> float:
        """Operations per second of a product of bfloat16 matrices."""
        return self._rate(64, 2)

    def seconds(self, call: Callable[[], object], repetitions: int) -> float:
        """Median time of a call, in seconds, until the device has finished it."""
        found: list[float] = []
        for _ in range(repetitions):
            self.finish()
            started = time.perf_counter()
            call()
            self.finish()
            found.append(time.perf_counter() - started)
        return statistics.median(found)

    def cold_seconds(self, call: Callable[[], object], repetitions: int) -> float:
        """Median time of a call with empty caches after half a second of rest."""
        found: list[float] = []
        for _ in range(repetitions):
            self.sweep()
            self.rest()
            found.append(self.seconds(call, 1))
        return statistics.median(found)

    def rest(self) -> None:
        """Let the device fall back to its resting clocks."""

    def kernels(self, call: Callable[[], object]) -> Kernels:
        """The kernels that a call launches."""
        names: list[str] = []
        run = launch.run

        def count(kernel: Any, *operands: object, **constants: object) -> None:
            names.append(kernel.fn.__name__)
            run(kernel, *operands, **constants)

        modules: list[Any] = [launch, attention, experts, adapters, heads, states]
        for module in modules:
            module.run = count
        try:
            call()
        finally:
            for module in modules:
                module.run = run
        return Kernels(len(names), dict.fromkeys(names, 0.0))

    def _bandwidth(self, size: int, repetitions: int) -> float:
        source = torch.ones(size, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        target.copy_(source)
        return 2 * size / self.seconds(lambda: target.copy_(source), repetitions)

    def _rate(self, size: int, repetitions: int) -> float:
        a, b = torch.randn(2, size, size, device=self.device).to(torch.bfloat16)
        torch.mm(a, b)
        return 2 * size**3 / self.seconds(lambda: torch.mm(a, b), repetitions)


class GpuClock(Clock):
    """Times calls on a GPU."""

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.name = torch.cuda.get_device_name(self.device)
        self._swept = torch.empty(_SWEPT_BYTES, dtype=torch.uint8, device=self.device)

    def finish(self) -> None:
        torch.cuda.synchronize(self.device)

    def sweep(self) -> None:
        self._swept.fill_(1)

    def rest(self) -> None:
        self.finish()
        time.sleep(0.5)

    @cached_property
    def bandwidth(self) -> float:
        return self._bandwidth(2 << 30, 20)

    @cached_property
    def rate(self) -> float:
        return self._rate(8192, 10)

    def kernels(self, call: Callable[[], object]) -> Kernels:
        from torch.profiler import ProfilerActivity, profile

        call()
        self.finish()
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
            call()
            self.finish()
        found = Kernels(0)
        for one in profiled.key_averages():
            micros = getattr(one, "self_device_time_total", 0.0)
            if micros > 0 and not one.key.startswith(("Memcpy", "Memset", "cuda")):
                found.count += one.count
                found.seconds[one.key] = found.seconds.get(one.key, 0.0) + micros / 1e6
        return found


def clock() -> Clock:
    """The clock of this machine."""
    return GpuClock() if torch.cuda.is_available() else Clock()
