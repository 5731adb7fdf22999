"""Placement: which backend has each part of a model, so that one model runs on several devices.

A backend keeps the weights placed on it and the KV cache of its layers on its device, and runs
their instructions. Between backends a program has a `Transfer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from torch import Tensor

from kernels.backend.backend import Backend


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """The backends of the embedding, of each layer with its keys and values, and of the head."""

    embedding: Backend
    layers: tuple[Backend, ...]
    head: Backend  # the final norm too

    @classmethod
    def on(cls, backend: Backend, layers: int) -> Placement:
        """A whole model on one backend."""
        return cls(backend, (backend,) * layers, backend)

    @classmethod
    def split(cls, parts: Sequence[tuple[Backend, int]]) -> Placement:
        """Consecutive layers on several backends, and how many on each.

        The embedding is with the first layer, the head with the last one.
        """
        layers = tuple(backend for backend, count in parts for _ in range(count))
        return cls(layers[0], layers, layers[-1])

    @property
    def backends(self) -> tuple[Backend, ...]:
        """Every backend once, in the order of the program."""
        used = (self.embedding, *self.layers, self.head)
        return tuple({one.name: one for one in used}.values())

    @property
    def memories(self) -> dict[str, Callable[[int], Tensor]]:
        """`Backend.memory` for the KV pages of layers, by name of their backend."""
        return {one.name: one.memory for one in self.layers}

    def of_layers(self, layers: Sequence[int]) -> Placement:
        """The placement of a model that has only these layers."""
        return replace(self, layers=tuple(self.layers[layer] for layer in layers))

    def macs_per_100_ms(self) -> int:
        """Multiply-adds of one layer in 100 ms, on the slowest of the backends that have layers."""
        return min(one.macs_per_100_ms() for one in dict.fromkeys(self.layers))

    def words(self, shown: Mapping[str, str]) -> str:
        """Description for users, where backends are called as in `shown`, by name.

        "cpu avx512" or "layers 1-12: cpu avx512, 13-24: torch cuda". Embedding and head are named
        where they are on another backend than the layer beside them.
        """
        runs: list[str] = []
        first = 1
        for backend, group in groupby(self.layers):
            end = first + len(list(group))
            numbers = str(first) if end == first + 1 else f"{first}-{end - 1}"
            runs.append(f"{numbers}: {shown[backend.name]}")
            first = end
        parts: list[str] = []
        if self.embedding is not self.layers[0]:
            parts.append(f"embedding: {shown[self.embedding.name]}")
        parts.append(f"layers {', '.join(runs)}")
        if self.head is not self.layers[-1]:
            parts.append(f"head: {shown[self.head.name]}")
        return ", ".join(parts) if len(self.backends) > 1 else shown[self.embedding.name]
