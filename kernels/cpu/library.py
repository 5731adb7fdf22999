"""The native library: finding it, its C interface, and exceptions for its status codes.

The one module that knows ctypes signatures. Without a library it still imports: `reason()` then
says why in words for people, and nothing else here may be called. Calls release the GIL; the
library is written for one caller at a time, so all that share its threads pass one lock.
"""

from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from kernels.cpu import build
from kernels.program import Rows

_ABI = 1
_ERRORS: dict[int, tuple[type[Exception], str]] = {  # enum nk_status
    1: (ValueError, "there is no packed layout for this format"),
    2: (ValueError, "it cannot do this size"),
    3: (MemoryError, "the system refused memory"),
    4: (RuntimeError, "the system refused a thread; ask for fewer with --threads"),
    5: (ValueError, "this processor cannot run that instruction set"),
}
_MENDS = "`python packaging/dev.py run` builds it"


class NativeWeight(ctypes.Structure):
    """struct nk_weight of nk.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("format", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
    )


class NativeRows(ctypes.Structure):
    """struct nk_rows of nk.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("capacity", ctypes.c_int64),
    )


_INT, _LONG, _FLOAT, _POINTER = ctypes.c_int, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
_WEIGHT, _ROWS = ctypes.POINTER(NativeWeight), ctypes.POINTER(NativeRows)

# Name without nk_: what it returns, what it takes.
_SIGNATURES: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "abi": (_INT, ()),
    "isa_count": (_INT, ()),
    "isa_name": (ctypes.c_char_p, (_INT,)),
    "use_isa": (_INT, (_INT,)),
    "set_threads": (_INT, (_INT,)),
    "threads": (_INT, ()),
    "active_threads": (_INT, ()),
    "idle": (None, ()),
    "group_rows": (_LONG, (_LONG,)),
    "activation_group": (_INT, (_LONG,)),
    "packed_bytes": (_LONG, (_LONG, _LONG, _LONG)),
    "pack": (_INT, (_LONG, _POINTER, _LONG, _LONG, _LONG, _LONG, _POINTER)),
    "rows_of": (_INT, (_WEIGHT, _POINTER, _LONG, _POINTER)),
    "linear": (_INT, (_WEIGHT, _POINTER, _LONG, _POINTER)),
    "rms_norm": (_INT, (_POINTER, _POINTER, _FLOAT, _LONG, _LONG, _POINTER)),
    "layer_norm": (_INT, (_POINTER, _POINTER, _POINTER, _FLOAT, _LONG, _LONG, _POINTER)),
    "rope": (
        _INT,
        (_POINTER, _POINTER, _POINTER, _LONG, _LONG, _LONG, _LONG, _INT, _FLOAT, _POINTER),
    ),
    "gated": (_INT, (_POINTER, _POINTER, _LONG, _INT, _POINTER)),
    "softcap": (_INT, (_POINTER, _FLOAT, _LONG, _POINTER)),
    "cache_write": (_INT, (_POINTER, _LONG, _LONG, _LONG, _LONG, _INT, _ROWS)),
    "attention": (
        _INT,
        (
            *(_POINTER, _LONG, _LONG, _LONG, _LONG, _LONG, _INT, _ROWS, _ROWS),
            *(_FLOAT, _LONG, _FLOAT, _POINTER, _POINTER),
        ),
    ),
    "attention_bytes": (_LONG, (_INT, _LONG, _LONG, _LONG, _LONG, _LONG, _INT)),
    "argmax": (_LONG, (_POINTER, _LONG)),
    "read_bandwidth": (ctypes.c_double, (_LONG, _INT)),
    "huge_alloc": (_POINTER, (_LONG,)),
    "huge_free": (None, (_POINTER, _LONG)),
    "run": (_INT, (_POINTER, _LONG, _LONG, _LONG, _LONG, _POINTER)),
    "scratch_bytes": (_LONG, ()),
    "free_scratch": (None, ()),
}
# What shares the pool of threads or the instruction set in use, and returns a status.
_SERIAL = frozenset(
    (
        "use_isa",
        "set_threads",
        "linear",
        "rms_norm",
        "layer_norm",
        "rope",
        "gated",
        "softcap",
        "cache_write",
    )
) | {"attention", "run"}


@dataclass(slots=True)
class _State:
    """What was found, and the instruction set in use."""

    handle: ctypes.CDLL | None = None
    reason: str = ""
    sets: tuple[str, ...] = ()
    chosen: str = ""


_state = _State()
_lock = threading.Lock()


def available() -> bool:
    """Whether the library is there and runs on this processor."""
    return _state.handle is not None


def reason() -> str:
    """Why it is not, in a sentence; empty when it is."""
    return _state.reason


def native() -> ctypes.CDLL:
    """The library's functions, with their signatures; only when `available`."""
    assert _state.handle is not None, _state.reason
    return _state.handle


def call(name: str, *arguments: object) -> None:
    """Call nk_`name`, which returns a status, and wait for others that share its threads.

    Raises ValueError for a format, shape or instruction set it cannot do, MemoryError, and
    RuntimeError when the system refuses a thread.
    """
    function = getattr(native(), f"nk_{name}")
    if name in _SERIAL:
        with _lock:
            status = function(*arguments)
    else:
        status = function(*arguments)
    if status:
        error, words = _ERRORS[status]
        raise error(f"nk_{name}: {words}")


def run(program: object, first: int, end: int, tokens: int, position: int, ids: object) -> None:
    """Run operations of a recorded program; see `nk_run`."""
    call("run", program, first, end, tokens, position, ids)


# --- instruction sets and threads ---------------------------------------------------------------


def instruction_sets() -> tuple[str, ...]:
    """Those this processor runs, best first; none without a library."""
    return _state.sets


def instruction_set() -> str:
    """The one in use."""
    return _state.chosen


def use(name: str) -> None:
    """Run all kernels on instruction set `name`; ValueError when this processor lacks it."""
    if name not in _state.sets:
        raise ValueError(unknown_set(name))
    call("use_isa", _state.sets.index(name))
    _state.chosen = name


def unknown_set(name: str) -> str:
    """The sentence that says which instruction sets there are instead of `name`."""
    there = ", ".join(_state.sets)
    return f"There is no instruction set {name!r} here; the kernels can use: {there}."


def set_threads(threads: int) -> None:
    """Share work among so many threads, the caller's included."""
    call("set_threads", threads)


def rest() -> None:
    """Let the threads sleep and give back what passes worked in; the next one takes both again."""
    with _lock:
        native().nk_idle()
        native().nk_free_scratch()


def threads() -> int:
    """How many threads share work."""
    return native().nk_threads()


def read_bandwidth(size: int, repetitions: int) -> float:
    """Bytes a second at which the threads read fresh memory of `size` bytes, at best.

    Raises MemoryError when the system refuses it.
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


def native_rows(rows: Rows) -> NativeRows:
    """Keys or values of one layer as native code takes them; valid while `rows` is."""
    data, scales = rows.data, rows.scales
    return NativeRows(
        pointer(data, data.dtype),
        None if scales is None else pointer(scales, torch.float16),
        data.shape[1],
    )


# --- finding ------------------------------------------------------------------------------------


def load(path: Path | None, wanted: str = "") -> str:
    """Make the library at `path` the one in use, on instruction set `wanted` or the best.

    Returns why that was not possible, "" when it was; what was in use before then stays.
    """
    if path is None:
        return f"The library of native kernels is not there; {_MENDS}."
    try:
        handle = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(handle, f"nk_{name}")
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        return f"The library of native kernels does not load ({error}); {_MENDS} again."
    if handle.nk_abi() != _ABI:
        return f"The library of native kernels is of another version; {_MENDS} again."
    sets = tuple(handle.nk_isa_name(at).decode() for at in range(handle.nk_isa_count()))
    if wanted and wanted not in sets:
        return f"KERNELS_ISA is {wanted!r}; this processor runs: {', '.join(sets)}."
    _state.handle, _state.sets, _state.reason = handle, sets, ""
    use(wanted or sets[0])
    return ""


_state.reason = load(build.current(), os.environ.get("KERNELS_ISA", ""))
