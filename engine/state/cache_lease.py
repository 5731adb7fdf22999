"""Read lease on the first tokens of a KV cache: another thread reads them without a copy.

The cache stays usable: appended tokens follow the leased ones, and when a buffer grows, the lease
moves to the larger buffer. Before leased tokens would be overwritten, the cache hands its buffers
over to the lease and allocates new ones. The lease releases each layer once it has been read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

_POLL_SECONDS = 0.02  # between cancellation checks


class CacheLease:
    """The first `length` tokens of every layer, read once and in order, then released."""

    def __init__(self, layers: Sequence[list[Tensor]], length: int) -> None:
        """`layers` are the buffers [K, capacity, width] of each layer."""
        self.length = length
        self._pending = dict(enumerate(layers))
        self._reading: int | None = None
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._released = False

    @property
    def released(self) -> bool:
        """Whether the lease has ended."""
        return self._released

    def pending(self) -> dict[int, list[Tensor]]:
        """The buffers of the layers not yet read, by layer index."""
        with self._lock:
            return dict(self._pending)

    def layers(self) -> Iterator[list[Tensor]]:
        """Views [K, length, width] of each layer's buffers in turn; valid until the next one."""
        for layer in sorted(self.pending()):
            with self._lock:
                self._reading = layer
                parts = self._pending[layer]
            yield [part[:, : self.length] for part in parts]
            del parts
            with self._lock:
                del self._pending[layer]
            self._changed.set()

    def move(self, layer: int, outgrown: Sequence[Tensor], larger: list[Tensor]) -> None:
        """Lease the buffers `larger` in place of `outgrown`, unless that layer is being read."""
        with self._lock:
            leased = self._pending.get(layer)
            if leased and leased[0] is outgrown[0] and layer != self._reading:
                self._pending[layer] = larger

    def release(self) -> None:
        """Drop all buffers; may be called more than once."""
        with self._lock:
            self._pending.clear()
            self._released = True
        self._changed.set()

    def wait(self, checkpoint: Callable[[], None]) -> None:
        """Wait up to 20 ms for another layer to be read; raises what `checkpoint` raises."""
        checkpoint()
        if self._changed.wait(_POLL_SECONDS):
            self._changed.clear()
