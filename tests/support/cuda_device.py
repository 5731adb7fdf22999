"""A device that captures launches as CUDA graphs do, for tests in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable

from kernels.cuda.graphs import Replay


class FakeDevice:
    """Captures launches as a CUDA graph does: they are noted, and a replay runs them again."""

    def __init__(self) -> None:
        self.captured = 0
        self.replayed = 0
        self.refuses = False
        self.fails = False

    def __call__(self, launches: Callable[[], None]) -> Replay:
        if self.refuses:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        self.captured += 1

        def replay() -> None:
            if self.fails:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            self.replayed += 1
            launches()

        return replay
