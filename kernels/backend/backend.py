"""Backend: the kernels of one device, which prepare weights, run ops and record programs.

A model is loaded for a backend and refers to it, so models on several backends work side by side.
A table of kernels is a dict `(op, format name) → function`; an op that reads no weight is listed
under F32. The reference has every entry but `record`; what another lacks runs on it, which is logged.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from kernels.backend import reference
from kernels.backend.device_sampling import DeviceSampler
from kernels.backend.reference import DECODING_BYTES
from kernels.ops import Kernel, Ops
from kernels.programs.interpreter import Interpreter
from kernels.programs.not_lowerable import NotLowerable
from kernels.programs.program import Program, Recorded
from kernels.weights.formats import Format
from kernels.weights.weight import Storage, Weight

__all__ = [
    "DECODING_BYTES",
    "ENCODER_OPS",
    "HOST",
    "OTHER_OPS",
    "SHOWN_WEIGHT_OPS",
    "STATE_OPS",
    "Backend",
]

Kernels = Mapping[tuple[str, str], Kernel]

log = logging.getLogger(__name__)

HOST = torch.device("cpu")

# Lowers a program or raises NotLowerable; the one entry that the reference does not have.
_RECORD = ("record", "F32")

# Without `prepare`: a backend has it for the formats of its `linear` and `embed`.
SHOWN_WEIGHT_OPS = tuple(op.__name__ for op in reference.WEIGHT_OPS if op is not reference.prepare)
OTHER_OPS = tuple(op.__name__ for op in reference.OTHER_OPS)
STATE_OPS = tuple(op.__name__ for op in reference.STATE_OPS)
ENCODER_OPS = tuple(op.__name__ for op in reference.ENCODER_OPS)


class Backend:
    """A table of kernels with the reference as its fallback."""

    def __init__(
        self,
        name: str,
        kernels: Kernels,
        words: Callable[[], str] | None = None,
        device: torch.device = HOST,
        free_bytes: Callable[[], int | None] = lambda: None,
        sampler: Callable[[int], DeviceSampler] | None = None,
    ) -> None:
        """`words` returns the display name; None: the name itself.

        `device` has the weights, the KV cache and the activations. `free_bytes` are those of its
        memory; None: it uses the host's. `sampler` makes what draws tokens of a vocabulary
        there; None: the host draws.
        """
        self.name = name
        self.kernels = kernels
        self.device = device
        self.ops = Ops(self._find, _find_reference)
        self._free_bytes = free_bytes
        self._sampler = sampler
        self._words = words or (lambda: name)
        self._missing: set[tuple[str, str]] = set()  # already logged

    @property
    def words(self) -> str:
        """The display name: "cpu avx512"."""
        return self._words()

    @property
    def rounding(self) -> str:
        """Names how it rounds: backends of the same name give the same bits.

        The native kernels of all instruction sets do, those of two kinds of GPUs may not.
        """
        kind = self.name.partition(":")[0]
        return kind if self.device == HOST else kind + self.words.removeprefix(self.name)

    def free_bytes(self) -> int | None:
        """Free memory of a device that has its own, 0 if its driver fails; None: it has none."""
        try:
            return self._free_bytes()
        except RuntimeError:
            return 0

    def finish(self) -> None:
        """Wait until the device has done what was launched; raises what its driver reports."""
        if self._on_accelerator:
            torch.accelerator.synchronize(self.device)

    def reserved_bytes(self) -> int:
        """Bytes of the device's own memory that this process has: free once its model is gone."""
        if not self._on_accelerator or self.free_bytes() is None:
            return 0
        try:
            return torch.accelerator.memory_reserved(self.device)
        except RuntimeError:
            return 0

    @property
    def _on_accelerator(self) -> bool:
        return self.device.type not in (HOST.type, "meta")

    def new_sampler(self, vocabulary: int) -> DeviceSampler | None:
        """What draws tokens of a vocabulary on the device; None: the host draws."""
        return None if self._sampler is None else self._sampler(vocabulary)

    def _find(self, op: str, format: str = "F32") -> Kernel:
        kernel = self.kernels.get((op, format))
        if kernel is not None:
            return kernel
        kernel = _find_reference(op, format)
        if (op, format) not in self._missing:
            self._missing.add((op, format))
            expected = op in ENCODER_OPS or op in reference.RARE_OPS  # few backends have them
            level = logging.INFO if expected else logging.WARNING
            log.log(level, "%s %s: %s lacks it, reference runs", op, format, self.name)
        return kernel

    def in_use(self, formats: Iterable[str], state_ops: Iterable[str] = ()) -> dict[str, str]:
        """Display name of the backend that runs each op: "linear Q4_K" → "cpu avx512".

        `state_ops` are those that only some models have, of `STATE_OPS` and encoders.
        """
        keys = [(op, format) for op in SHOWN_WEIGHT_OPS for format in dict.fromkeys(formats)]
        used = {f"{op} {format}": self._runs(op, format) for op, format in keys}
        return used | {op: self._runs(op, "F32") for op in (*OTHER_OPS, *state_ops)}

    def _runs(self, op: str, format: str) -> str:
        if (op, format) in self.kernels:
            return self.words
        _find_reference(op, format)
        return "reference"

    def prepare(
        self,
        weight: Weight,
        checkpoint: Callable[[], None] = lambda: None,
        done: Callable[[int, int], None] = lambda first, end: None,
        storage: Storage = Storage.BACKEND,
    ) -> Weight:
        """Prepare a weight for repeated products: repack it in this backend's layout.

        With a `storage` other than BACKEND its products run on the reference. Called once per
        tensor, embeddings included; the result does not refer to the file. `checkpoint()` is
        called every few milliseconds and may raise to cancel; `done(first, end)` is called on any
        thread when these stored rows, a few megabytes, have been read for the last time.
        """
        match storage:
            case Storage.BACKEND:
                return self._find("prepare", weight.format.name)(weight, checkpoint, done)
            case Storage.FLOAT32:
                return reference.prepare(weight, checkpoint, done, self.device)
            case Storage.FILE:
                return reference.copy(weight, checkpoint, done, self.device)

    def empty(
        self,
        format: Format,
        shape: Sequence[int],
        memory: Tensor,
        storage: Storage = Storage.BACKEND,
    ) -> Weight:
        """A weight over the beginning of `memory` u8, as `prepare` stores it; `fill` writes rows.

        Its `data` has the size that it takes. Raises ValueError where `prepare` would decode.
        """
        if storage is Storage.FLOAT32 or (storage is Storage.BACKEND and self.decodes(format)):
            raise ValueError(f"{self.name} would decode {format.name} weights")
        if storage is Storage.FILE:
            return reference.empty(format, shape, memory)
        return self._find("empty", format.name)(format, shape, memory)

    def fill(self, weight: Weight, first: int, end: int, rows: Tensor) -> None:
        """Write the rows from `first` to before `end` of a weight made by `empty`, on any thread.

        `rows` u8 are their bytes as stored in a file. `first` and `end` are multiples of
        `group_rows`, or `end` is the last row.
        """
        if weight.layout == "file":
            reference.fill(weight, first, end, rows)
        else:
            self._find("fill", weight.format.name)(weight, first, end, rows)

    def group_rows(self, format: Format) -> int:
        """Rows of a weight that `fill` writes together."""
        return self._find("group_rows", format.name)(format)

    def decodes(self, format: Format) -> bool:
        """Whether `prepare` decodes packed weights of this format to float32."""
        found = self.kernels.get(("held_bytes", format.name), reference.held_bytes)
        return found is reference.held_bytes and format.size < 4 * format.block

    def held_bytes(
        self, format: Format, shape: Sequence[int], storage: Storage = Storage.BACKEND
    ) -> int:
        """Bytes that `prepare` will allocate for a weight of this format and shape.

        Products with weights in FILE storage take `DECODING_BYTES` more while they run.
        """
        match storage:
            case Storage.BACKEND:
                return self._find("held_bytes", format.name)(format, shape)
            case Storage.FLOAT32:
                return reference.held_bytes(format, shape)
            case Storage.FILE:
                return math.prod(shape[:-1]) * format.row_bytes(shape[-1])

    def record(self, program: Program, refused: Collection[str] = ()) -> Recorded:
        """The program lowered by this backend, or interpreted where it cannot be lowered.

        Its weights must come from `prepare`. Both give the same bits. With `refused` ops, which
        run on the reference instead, it is interpreted.
        """
        lower, reason = self.kernels.get(_RECORD), ""
        if lower is not None and not refused:
            try:
                return lower(program)
            except NotLowerable as error:
                reason = str(error)
                log.info("The model runs op by op: %s does not lower %s.", self.name, reason)
        ops = self.ops.without(refused)
        return Interpreter(program, ops, reason=reason, device=self.device)

    def records_programs(self) -> bool:
        """Whether `record` lowers programs, unless their weights are in another layout."""
        return _RECORD in self.kernels

    def macs_per_100_ms(self) -> int:
        """Multiply-adds (weights times tokens) in about 100 ms on two slow cores."""
        return self._find("macs_per_100_ms")()

    def memory(self, size: int) -> Tensor:
        """An uninitialised uint8 tensor in memory suited to this backend, such as huge pages.

        Raises MemoryError when the system refuses it.
        """
        return self._find("memory")(size)

    def read_bandwidth(self, size: int) -> float:
        """Measured read bandwidth in bytes/s over `size` bytes, best of several.

        Allocates that much memory while it runs; raises MemoryError when the system refuses it.
        """
        return self._find("read_bandwidth")(size)


def _find_reference(op: str, format: str = "F32") -> Kernel:
    kernel = reference.KERNELS.get((op, format))
    if kernel is None:
        raise ValueError(f"{op}: no kernel for {format} weights")
    return kernel
