"""The backend that tests run ops on: that of the environment variable KERNELS, or the preferred one.

`ops.linear(x, weight)` is that of the backend chosen now; `ops.only(name)` chooses another for a
block, also for models loaded in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernels import backends
from kernels.backend.reference import DECODING_BYTES


class _ChosenOps:
    BACKENDS = backends.BACKENDS
    DECODING_BYTES = DECODING_BYTES
    set_threads = staticmethod(backends.set_threads)

    def __getattr__(self, name: str) -> Any:
        backend = backends.choose()
        return getattr(backend if hasattr(backend, name) else backend.ops, name)

    @contextmanager
    def only(self, name: str) -> Iterator[None]:
        """Choose the backend `name` until the block ends."""
        backends.choose(name)  # raises ValueError for an unknown one
        before = os.environ.get("KERNELS")
        os.environ["KERNELS"] = name
        try:
            yield
        finally:
            if before is None:
                del os.environ["KERNELS"]
            else:
                os.environ["KERNELS"] = before


ops = _ChosenOps()
