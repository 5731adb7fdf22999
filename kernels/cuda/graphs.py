"""Capture of a recorded step as a CUDA graph, and its replay.

A step reads its inputs from fixed places of device memory, so that one graph serves any tokens,
positions and pages. The first call compiles the kernels and runs them; then the step is captured.
Where that fails the step stays a list of launches, which gives the same results.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch

log = logging.getLogger(__name__)

Replay = Callable[[], None]


class Capturer(Protocol):
    """Captures what a function launches on a device → a function that launches it again."""

    def __call__(self, launches: Callable[[], None]) -> Replay:
        """Raises RuntimeError when the driver refuses."""
        ...


def capturer(device: torch.device) -> Capturer | None:
    """The capturer of a device; None: it has no graphs."""
    return partial(_captured, device) if device.type == "cuda" else None


class Step:
    """A list of launches that is captured after its first run."""

    def __init__(self, launches: Callable[[], None], capture: Capturer | None) -> None:
        self._launches = launches
        self._capture = capture
        self._replay: Replay | None = None

    @property
    def is_captured(self) -> bool:
        """Whether calls replay a graph."""
        return self._replay is not None

    def __call__(self) -> None:
        """Run the step; raises what the driver raises."""
        if self._replay is not None:
            self._replay()
            return
        self._launches()
        if self._capture is None:
            return
        try:
            self._replay = self._capture(self._launches)
        except RuntimeError as error:
            self._capture = None  # not tried again
            log.info("The step runs launch by launch, since its capture failed: %s", error)


def _captured(device: torch.device, launches: Callable[[], None]) -> Replay:
    with torch.cuda.device(device):
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(device)
        with torch.cuda.graph(graph):
            launches()
    return graph.replay
