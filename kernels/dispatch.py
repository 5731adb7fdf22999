"""Kernel dispatch: selects the kernel of a backend for an op and a weight format.

A backend is a dict `(op, format name) → function`; an op that reads no weight is listed under F32.
The reference backend has every entry and is the fallback of the others, which is logged as a
warning. A lookup is one dict access, negligible beside any op.
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
Observer = Callable[[str, tuple[Any, ...], Any], None]

_log = logging.getLogger(__name__)

# Without `prepare`: a backend has it for the formats of its `linear` and `embed`.
SHOWN_WEIGHT_OPS = tuple(op.__name__ for op in reference.WEIGHT_OPS if op is not reference.prepare)
OTHER_OPS = tuple(op.__name__ for op in reference.OTHER_OPS)


class Dispatch:
    """Kernel lookup over `backends`: the first is preferred, "reference" is the fallback.

    `words` maps a backend's name to a function that returns its display name.
    """

    def __init__(
        self, backends: Mapping[str, Kernels], words: Mapping[str, Callable[[], str]] | None = None
    ) -> None:
        self.backends = backends
        self._words = words or {}
        self._chosen = ""
        self._found: dict[tuple[str, str], Kernel] = {}
        self._excluded: frozenset[str] = frozenset()  # ops that run on the reference for now
        self._observer: Observer | None = None

    def find(self, op: str, format: str = "F32") -> Kernel:
        """The kernel that runs `op` on weights of `format`.

        Raises ValueError when the environment variable KERNELS names no backend, or when even the
        reference lacks the op or format.
        """
        kernel = self._found.get((op, format))
        if op in self._excluded:
            kernel = self.backends["reference"][op, format]
        elif kernel is None:
            name = self._backend(op, format)
            if name != self._preferred():
                _log.warning("%s %s: %s lacks it, %s runs", op, format, self._preferred(), name)
            kernel = self._found[op, format] = self.backends[name][op, format]
        return kernel if self._observer is None else self._observed(op, kernel, self._observer)

    @contextmanager
    def without(self, excluded: Collection[str]) -> Iterator[None]:
        """Run these ops, and estimate their memory, on the reference until the block ends.

        Only for ops that read no weight: a prepared weight has the layout of one backend.
        """
        before = self._excluded
        self._excluded = frozenset((*excluded, *(f"{op}_bytes" for op in excluded)))
        try:
            yield
        finally:
            self._excluded = before

    @contextmanager
    def watched(self, observer: Observer) -> Iterator[None]:
        """Call `observer(op, operands, result)` after every op until the block ends."""
        self._observer = observer
        try:
            yield
        finally:
            self._observer = None

    def _observed(self, op: str, kernel: Kernel, observer: Observer) -> Kernel:
        def run(*operands: Any) -> Any:
            result = kernel(*operands)
            observer(op, operands, result)
            return result

        return run

    def in_use(self, formats: Iterable[str]) -> dict[str, str]:
        """Backend by op for a model with weights of `formats`: "linear Q4_K" → "cpu avx512"."""
        keys = [(op, format) for op in SHOWN_WEIGHT_OPS for format in dict.fromkeys(formats)]
        used = {f"{op} {format}": self._backend(op, format) for op, format in keys}
        used |= {op: self._backend(op, "F32") for op in OTHER_OPS}
        shown = {name: self._words[name]() for name in set(used.values()) if name in self._words}
        return {op: shown.get(name, name) for op, name in used.items()}

    @contextmanager
    def only(self, backend: str) -> Iterator[None]:
        """Prefer `backend` until the block ends, in all threads; ValueError when it is unknown.

        Weights prepared inside have this backend's layout, so load the model inside too.
        """
        before, self._chosen = self._chosen, self._checked(backend)
        self._found.clear()
        try:
            yield
        finally:
            self._chosen = before
            self._found.clear()

    def _checked(self, backend: str) -> str:
        if backend not in self.backends:
            present = ", ".join(self.backends)
            raise ValueError(f"There is no backend '{backend}'; this build has: {present}.")
        return backend

    def _preferred(self) -> str:
        chosen = self._chosen or os.environ.get("KERNELS", "")
        return self._checked(chosen) if chosen else next(iter(self.backends))

    def _backend(self, op: str, format: str) -> str:
        for name in (self._preferred(), "reference"):
            if (op, format) in self.backends[name]:
                return name
        raise ValueError(f"{op}: no kernel for {format} weights")


# All backends of this version, and those available on this machine.
KNOWN: dict[str, Kernels] = {"cpu": cpu.KERNELS, "reference": reference.KERNELS}
BACKENDS = {name: KNOWN[name] for name in KNOWN if name != "cpu" or library.available()}
DISPATCH = Dispatch(BACKENDS, {"cpu": cpu.words})
find, in_use, only = DISPATCH.find, DISPATCH.in_use, DISPATCH.only
watched, without = DISPATCH.watched, DISPATCH.without

if "cpu" not in BACKENDS and os.environ.get("KERNELS") != "reference":
    _log.warning("The slow reference runs, not the native kernels. %s", library.reason())
