"""Loader and caller of the native library; maps its status codes to exceptions.

Without a library this module still imports: `reason()` then returns why, and nothing else may be
called. Calls release the GIL. The library allows one caller at a time, so calls that use its thread
pool are serialised by a lock; programs of a thread that runs `alone` are not.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from kernels.cpu import build, schema
from kernels.cpu.schema import (
    NativeCacheType,
    NativeGating,
    NativeImages,
    NativeKVLayer,
    NativeRouting,
    NativeSegment,
    Status,
)
from kernels.ops.given_rows import checked_rows
from kernels.ops.routing import Routing
from kernels.ops.running import ImageRows
from kernels.states.kv_pages import PAGE_TOKENS, PageLayer, PageTable, StateLayer

_ERRORS: dict[Status, tuple[type[Exception], str]] = {
    Status.BAD_FORMAT: (ValueError, "there is no packed layout for this format"),
    Status.BAD_SHAPE: (ValueError, "this size is not supported"),
    Status.NO_MEMORY: (MemoryError, "the system refused memory"),
    Status.NO_THREADS: (RuntimeError, "the system refused a thread; ask for fewer with --threads"),
    Status.BAD_ID: (IndexError, "an id or a position is outside a table of embeddings"),
    Status.BAD_ISA: (ValueError, "this processor cannot run that instruction set"),
}
CACHES = {
    torch.float32: NativeCacheType.F32,
    torch.float16: NativeCacheType.F16,
    torch.int8: NativeCacheType.Q8,
}
_BUILD_HINT = "`pip install` and `python packaging/dev.py run` build it"


# Functions that use the thread pool or the selected instruction set.
_SERIAL = frozenset(function.name for function in schema.FUNCTIONS if function.serial)


@dataclass(slots=True)
class _State:
    """The loaded library and the instruction set in use."""

    handle: ctypes.CDLL | None = None
    reason: str = ""
    sets: tuple[str, ...] = ()
    chosen: str = ""


_state = _State()
_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)
_lock = threading.Lock()


def available() -> bool:
    """Whether the library was found and runs on this processor."""
    return _state.handle is not None


def reason() -> str:
    """Why the library is not available, in a sentence; empty when it is."""
    return _state.reason


def native() -> ctypes.CDLL:
    """The loaded library, with ctypes signatures; only when `available`."""
    assert _state.handle is not None, _state.reason
    return _state.handle


def call(name: str, *arguments: object) -> None:
    """Call nk_`name` and check its status; calls that use the thread pool are serialised.

    Raises ValueError for an unsupported format, shape or instruction set, IndexError for a row that
    a table does not have, MemoryError, and RuntimeError when the system refuses a thread.
    """
    assert _state.handle is not None, _state.reason
    function = getattr(_state.handle, f"nk_{name}")
    if name in _SERIAL:
        with _lock:
            status = function(*arguments)
    else:
        status = function(*arguments)
    if status:
        error, words = _ERRORS[Status(status)]
        raise error(f"nk_{name}: {words}")


# --- instruction sets and threads ---------------------------------------------------------------


def instruction_sets() -> tuple[str, ...]:
    """Instruction sets supported by this processor, best first; none without a library."""
    return _state.sets


def instruction_set() -> str:
    """The instruction set in use."""
    return _state.chosen


def use(name: str) -> None:
    """Run all kernels on instruction set `name`; ValueError when this processor lacks it."""
    if name not in _state.sets:
        raise ValueError(unknown_set(name))
    call("use_isa", _state.sets.index(name))
    _state.chosen = name


def unknown_set(name: str) -> str:
    """Error sentence that lists the available instruction sets instead of `name`."""
    there = ", ".join(_state.sets)
    return f"There is no instruction set {name!r} here; the kernels can use: {there}."


def set_threads(threads: int) -> None:
    """Set the number of threads, the caller's included."""
    call("set_threads", threads)


def release() -> None:
    """Put the threads to sleep and free scratch memory; the next pass restores both."""
    with _lock:
        native().nk_idle()
        native().nk_free_scratch()


def threads() -> int:
    """Number of threads, the caller's included."""
    return native().nk_threads()


def read_bandwidth(size: int, repetitions: int) -> float:
    """Peak read bandwidth of all threads in bytes/s, over `size` bytes of fresh memory.

    Raises MemoryError when the system refuses that memory.
    """
    with _lock:
        found = native().nk_read_bandwidth(size, repetitions)
    if not found:
        raise MemoryError(f"The system refused {size:,} bytes to read.")
    return found


# --- operands -----------------------------------------------------------------------------------


def pointer(tensor: Tensor, dtype: torch.dtype = torch.float32) -> int:
    """The address of a contiguous tensor in this machine's memory; ValueError for another."""
    if tensor.dtype != dtype or not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise ValueError(
            f"A native kernel takes contiguous {dtype} on the CPU, got {tensor.dtype} "
            f"{list(tensor.shape)} with strides {list(tensor.stride())} on {tensor.device}."
        )
    return tensor.data_ptr()


def optional(tensor: Tensor | None, dtype: torch.dtype = torch.float32) -> int | None:
    """The address of a tensor as by `pointer`; None: null."""
    return None if tensor is None else pointer(tensor, dtype)


def native_routing(routing: Routing, experts: int) -> NativeRouting:
    """The C struct of a routing, whose bias must be contiguous and outlive it."""
    gating, normalized = NativeGating[routing.gating.name], routing.normalized
    if routing.is_plain:  # the softmax of the chosen has the sum 1
        gating, normalized = NativeGating.SOFTMAX_OF_CHOSEN, False
    groups = routing.groups, routing.chosen_groups
    bias = optional(routing.bias)
    return NativeRouting(experts, routing.chosen, gating, normalized, *groups, routing.scale, bias)


def native_kv_layer(layer: PageLayer | StateLayer) -> NativeKVLayer:
    """The C struct of a layer's place in pages."""
    if isinstance(layer, StateLayer):
        return NativeKVLayer(layer.group, layer.offset)
    offsets = layer.keys, layer.key_scales, layer.values, layer.value_scales
    return NativeKVLayer(layer.group, *offsets)


class NativeBatch:
    """Segments as C structs, with the tables that they point to; valid until a table grows."""

    def __init__(
        self,
        segments: Sequence[tuple[int, int, Sequence[PageTable]]],
        images: Sequence[ImageRows | None] = (),
    ) -> None:
        """Tokens, position and page tables of each segment, and `images` where any has some."""
        # Plain loops: this runs before every token, when the weights have emptied the CPU's caches.
        addresses: list[int] = []
        for tokens, position, tables in segments:
            for table in tables:
                assert position + tokens <= PAGE_TOKENS * len(table.pages), "a page is missing"
                addresses.append(table.address)
        self._addresses = (ctypes.c_void_p * len(addresses))(*addresses)
        self.structs = (NativeSegment * len(segments))()
        at = ctypes.addressof(self._addresses)
        for one, (tokens, position, tables) in zip(self.structs, segments, strict=True):
            one.tokens, one.position, one.tables = tokens, position, at
            at += _POINTER_BYTES * len(tables)
        self._images: list[_NativeImages] = []
        for struct, given in zip(self.structs, images, strict=False):
            if given is not None:
                given.check(struct.tokens)
                self._images.append(_NativeImages(given))
                struct.images = ctypes.pointer(self._images[-1].struct)


class _NativeImages:
    """The images of a segment as a C struct, with what it points to."""

    def __init__(self, images: ImageRows) -> None:
        spans = [end for one in images.spans for end in (one.start, one.stop)]
        self._spans = (ctypes.c_int64 * len(spans))(*spans)
        self._rows = None if images.rows is None else checked_rows(images.rows, 0).contiguous()
        self._at = images.at.contiguous()
        self._positions = None if images.positions is None else images.positions.contiguous()
        self.struct = NativeImages(
            rows=optional(self._rows),
            at=pointer(self._at, torch.int64),
            count=len(self._at),
            width=0 if self._rows is None else self._rows.shape[1],
            positions=optional(self._positions, torch.int64),
            axes=0 if self._positions is None else self._positions.shape[1],
            spans=ctypes.addressof(self._spans),
            span_count=len(images.spans),
        )


# --- loading ------------------------------------------------------------------------------------


def load(path: Path | None, wanted: str = "") -> str:
    """Load the library at `path` and select the instruction set `wanted`, or the best.

    Returns the reason of a failure, after which the previous library stays in use; else "".
    """
    if path is None:
        return f"The library of native kernels is not there; {_BUILD_HINT}."
    try:
        handle = ctypes.CDLL(str(path))
        for declared in schema.FUNCTIONS:
            function = getattr(handle, f"nk_{declared.name}")
            function.restype, function.argtypes = schema.signature(declared)
    except (OSError, AttributeError) as error:
        return f"The library of native kernels does not load ({error}); {_BUILD_HINT} again."
    if handle.nk_abi() != schema.ABI:
        return f"The library of native kernels is of another version; {_BUILD_HINT} again."
    sets = tuple(handle.nk_isa_name(at).decode() for at in range(handle.nk_isa_count()))
    if wanted and wanted not in sets:
        return f"KERNELS_ISA is {wanted!r}; this processor runs: {', '.join(sets)}."
    _state.handle, _state.sets, _state.reason = handle, sets, ""
    use(wanted or sets[0])
    return ""


_state.reason = load(build.current(), os.environ.get("KERNELS_ISA", ""))
