"""Which kernel runs an op on a format: one plain table per backend.

A backend is a dict `(op, format name) → function`; an op that reads no weight is listed under F32.
A backend need not have every entry: what it lacks runs on the reference, which has them all, and
a line in the log says so. Finding is one dict look-up, far below what any op costs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kernels import cpu, reference
from kernels.cpu import library
from kernels.reference import Kernel

Kernels = Mapping[tuple[str, str], Kernel]
Seen = Callable[[str, tuple[Any, ...], Any], None]

_log = logging.getLogger(__name__)

# `prepare` goes with `linear` and `embed` and is not shown to people.
SHOWN_WEIGHT_OPS = tuple(op.__name__ for op in reference.WEIGHT_OPS if op is not reference.prepare)
OTHER_OPS = tuple(op.__name__ for op in reference.OTHER_OPS)


class Dispatch:
    """Finds kernels in `backends`: the first is preferred, and "reference" is always among them.

    `words` give what people are to read instead of a backend's name.
    """

    def __init__(
        self, backends: Mapping[str, Kernels], words: Mapping[str, Callable[[], str]] | None = None
    ) -> None:
        self.backends = backends
        self._words = words or {}
        self._chosen = ""
        self._found: dict[tuple[str, str], Kernel] = {}
        self._avoided: frozenset[str] = frozenset()  # ops that run on the reference for now
        self._seen: Seen | None = None

    def find(self, op: str, format: str = "F32") -> Kernel:
        """The kernel that runs `op` on weights of `format`.

        Raises ValueError when the environment variable KERNELS names no backend, or when even the
        reference lacks the op or format.
        """
        kernel = self._found.get((op, format))
        if op in self._avoided:
            kernel = self.backends["reference"][op, format]
        elif kernel is None:
            name = self._backend(op, format)
            if name != self._preferred():
                _log.warning("%s %s: %s lacks it, %s runs", op, format, self._preferred(), name)
            kernel = self._found[op, format] = self.backends[name][op, format]
        return kernel if self._seen is None else self._watching(op, kernel, self._seen)

    @contextmanager
    def without(self, avoided: Collection[str]) -> Iterator[None]:
        """Run these ops, and plan their memory, on the reference until the block ends.

        For ops that read no weight: a weight is prepared for the kernels that are to run it.
        """
        before = self._avoided
        self._avoided = frozenset((*avoided, *(f"{op}_bytes" for op in avoided)))
        try:
            yield
        finally:
            self._avoided = before

    @contextmanager
    def watched(self, seen: Seen) -> Iterator[None]:
        """Tell `seen` of every op that runs until the block ends: name, operands, result."""
        self._seen = seen
        try:
            yield
        finally:
            self._seen = None

    def _watching(self, op: str, kernel: Kernel, seen: Seen) -> Kernel:
        def run(*operands: Any) -> Any:
            result = kernel(*operands)
            seen(op, operands, result)
            return result

        return run

    def in_use(self, formats: Iterable[str]) -> dict[str, str]:
        """Backend by op for a model with weights of `formats`: "linear Q4_K" → "cpu avx512"."""
        keys = [(op, format) for op in SHOWN_WEIGHT_OPS for format in dict.fromkeys(formats)]
        used = {f"{op} {format}": self._backend(op, format) for op, format in keys}
        used |= {op: self._backend(op, "F32") for op in OTHER_OPS}
        said = {name: self._words[name]() for name in set(used.values()) if name in self._words}
        return {op: said.get(name, name) for op, name in used.items()}

    @contextmanager
    def only(self, backend: str) -> Iterator[None]:
        """Prefer `backend` until the block ends, in all threads; ValueError when it is not there.

        Weights prepared inside are held as this backend wants them, so load the model inside too.
        """
        before, self._chosen = self._chosen, self._known(backend)
        self._found.clear()
        try:
            yield
        finally:
            self._chosen = before
            self._found.clear()

    def _known(self, backend: str) -> str:
        if backend not in self.backends:
            present = ", ".join(self.backends)
            raise ValueError(f"There is no backend '{backend}'; this build has: {present}.")
        return backend

    def _preferred(self) -> str:
        chosen = self._chosen or os.environ.get("KERNELS", "")
        return self._known(chosen) if chosen else next(iter(self.backends))

    def _backend(self, op: str, format: str) -> str:
        for name in (self._preferred(), "reference"):
            if (op, format) in self.backends[name]:
                return name
        raise ValueError(f"{op}: no kernel for {format} weights")


# Every backend this version has, and those that are there on this machine.
KNOWN: dict[str, Kernels] = {"cpu": cpu.KERNELS, "reference": reference.KERNELS}
BACKENDS = {name: KNOWN[name] for name in KNOWN if name != "cpu" or library.available()}
DISPATCH = Dispatch(BACKENDS, {"cpu": cpu.words})
find, in_use, only = DISPATCH.find, DISPATCH.in_use, DISPATCH.only
watched, without = DISPATCH.watched, DISPATCH.without

if "cpu" not in BACKENDS and os.environ.get("KERNELS") != "reference":
    _log.warning("The slow reference runs, not the native kernels. %s", library.reason())
