"""Read lease on the first tokens of a key/value cache: another thread reads them without a copy.

The cache goes on: what it appends lies behind the leased tokens, and a buffer that grows takes the
lease along. Before it would overwrite leased tokens it leaves the buffers to the lease and takes
new ones. A layer that was read is let go of.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

_PAUSE = 0.02  # seconds between two looks at Cancel


class CacheLease:
    """The first `length` tokens of every layer, read once and in order, then released."""

    def __init__(self, layers: Sequence[list[Tensor]], length: int) -> None:
        """`layers` are the buffers [K, capacity, width] of each layer."""
        self.length = length
        self._kept = dict(enumerate(layers))
        self._reading: int | None = None
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._released = False

    @property
    def released(self) -> bool:
        """Whether nothing will be read any more."""
        return self._released

    def kept(self) -> dict[int, list[Tensor]]:
        """The buffers of the layers that are still to be read, by layer."""
        with self._lock:
            return dict(self._kept)

    def layers(self) -> Iterator[list[Tensor]]:
        """Views [K, length, width] of each layer's buffers in turn; valid until the next one."""
        for layer in sorted(self.kept()):
            with self._lock:
                self._reading = layer
                parts = self._kept[layer]
            yield [part[:, : self.length] for part in parts]
            del parts
            with self._lock:
                del self._kept[layer]
            self._changed.set()

    def move(self, layer: int, outgrown: Sequence[Tensor], larger: list[Tensor]) -> None:
        """Read from `larger` what was to be read from `outgrown`, unless that has begun."""
        with self._lock:
            kept = self._kept.get(layer)
            if kept and kept[0] is outgrown[0] and layer != self._reading:
                self._kept[layer] = larger

    def release(self) -> None:
        """Let go of everything; may be called more than once."""
        with self._lock:
            self._kept.clear()
            self._released = True
        self._changed.set()

    def wait(self, checkpoint: Callable[[], None]) -> None:
        """Wait a moment for another layer to be read; raises what `checkpoint` raises."""
        checkpoint()
        if self._changed.wait(_PAUSE):
            self._changed.clear()
