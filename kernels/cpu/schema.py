"""The C interface as one table: enumerations, structs and functions, for ctypes and for native/api/nk.h.

`python kernels/cpu/schema.py` writes the header anew, with `--check` it only compares. Standard
library only, and no other module of this package, so that it runs before anything is installed.
"""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

HEADER = Path(__file__).resolve().parent / "native" / "api" / "nk.h"
ABI = 2  # changes with the meaning of anything here


class _Numbered(IntEnum):
    """A C enumeration: its members are a number and what it stands for."""

    words: str

    def __new__(cls, value: int, words: str = "") -> _Numbered:
        made = int.__new__(cls, value)
        made._value_, made.words = value, words
        return made


class Status(_Numbered):
    """What a function that can fail returns."""

    OK = 0
    BAD_FORMAT = 1, "no packed layout for this format id"
    BAD_SHAPE = 2, "a size the kernel cannot do"
    NO_MEMORY = 3, "the system refused memory"
    NO_THREADS = 4, "the system refused a thread"
    BAD_ISA = 5, "this processor cannot run that instruction set"


class NativeCacheType(_Numbered):
    """How keys and values are held."""

    F32 = 0
    F16 = 1
    Q8 = 2, "rotated, then int8 with a half-precision scale for each 32 channels"


class NativeActivation(_Numbered):
    """The function applied to a gate; named as in kernels.program.Activation."""

    SILU = 0
    GELU_TANH = 1


class OpKind(_Numbered):
    """What an operation of a recorded program computes, from which fields of struct nk_op."""

    EMBED = 0, "out = row ids[t] of weights[0] * scale; count 2: + position's of weights[1]"
    NORM = (
        1,
        "out = norm of x; with `quantize`, out is not x, and is quantized",
    )
    QUANTIZE = 2, "x"
    LINEAR = 3, "outs[i] = x * weights[i]; with `activation` only outs[0], gated; `add_to`"
    ANGLES = 4, "out [T, 2 * pairs] = cosines and sines of positions * weight, times scale"
    ROPE = 5, "x, y, z are q, k, v: norms of heads, rotary embedding by `out`, cache write"
    ATTEND = 6, "out = attention of x over the cache; the ROPE of its x stands right before it"
    GATE = 7, "out = activation(x) * y; y -1: no factor"
    ADD = 8, "x += y * scale, where y is left scaled"
    SOFTCAP = 9, "x = cap * tanh(x / cap)"
    COLUMNS = 10, "x = x * weight [width], column by column"
    BIAS = 11, "x = x + weight [width], column by column"


class Joined(_Numbered):
    """Whether threads wait for each other after an operation."""

    APART = 0, "they do"
    JOINED = 1, "they do not: the next operation reads nothing of this one"
    COPY_ALONE = 2, "of one token not: each thread reads its own quantized copy"


# Enumeration: its name in C, what its members' names begin with there.
ENUMS: dict[type[_Numbered], tuple[str, str]] = {
    Status: ("nk_status", "NK_"),
    NativeCacheType: ("nk_cache", "NK_CACHE_"),
    NativeActivation: ("nk_activation", "NK_"),
    OpKind: ("nk_kind", "NK_"),
    Joined: ("nk_joined", "NK_"),
}


@dataclass(frozen=True)
class Struct:
    """A C struct: fields as C declares them, in lines of (declaration, what they are)."""

    name: str
    words: str
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Function:
    """An exported function, named without its nk_."""

    result: str
    name: str
    parameters: str  # as C declares them
    words: str = ""
    serial: bool = False  # shares the threads or the instruction set in use, and returns a status


MOST_WEIGHTS = 3  # of one operation
STRUCTS = (
    Struct(
        "nk_weight",
        "A matrix [rows, columns] as nk_pack lays it out; see layout.h.",
        (
            ("const void *data", ""),
            ("int64_t format", "ggml's id"),
            ("int64_t rows, columns", ""),
        ),
    ),
    Struct(
        "nk_rows",
        "Keys or values of one layer: [heads, capacity, width].",
        (
            ("void *data", ""),
            ("uint16_t *scales", "NK_CACHE_Q8: halves [heads, capacity, (width + 31) / 32]"),
            ("int64_t capacity", "positions there is room for"),
        ),
    ),
    Struct(
        "nk_op",
        "One operation of a recorded program; x, y, z, out and outs are numbers of buffers.",
        (
            ("int32_t kind, joined", "of nk_kind, of nk_joined"),
            ("int32_t quantize", "NORM (or 0), QUANTIZE: columns that share a scale, 16 or 32"),
            ("int32_t x, y, z, out", ""),
            ("int32_t count", "weights"),
            ("int32_t activation", "LINEAR: of nk_activation, or -1"),
            ("int32_t add_to", "LINEAR: a buffer that outs[0] is added to; or -1"),
            ("int32_t interleaved, layer, pairs", "pairs: half of the channels that rotate"),
            ("int64_t width", "columns of x"),
            ("int64_t heads, kv_heads, head_width, window", ""),
            ("float epsilon, scale, cap", ""),
            ("int32_t centred", "NORM: the layer norm"),
            ("const float *weight, *bias, *query_norm, *key_norm, *sinks", ""),
            (f"struct nk_weight weights[{MOST_WEIGHTS}]", ""),
            ("int32_t outs[4]", ""),
        ),
    ),
    Struct(
        "nk_program",
        "A pass over tokens as a flat list of operations. Every operation is shared by all threads\n"
        "and ends at a barrier, unless it is joined with the next. One quantized copy of a buffer\n"
        "exists at a time (of one token, one for each thread): the operation that makes it stands\n"
        "right before the products that read it.",
        (
            ("const struct nk_op *ops", ""),
            ("float **buffers", "[tokens, width] each, with room for the tokens of the run"),
            ("const struct nk_rows *keys, *values", "of every layer"),
            ("int64_t cache_type", "of nk_cache"),
            ("int64_t op_bytes", "sizeof(struct nk_op): two builds cannot misread each other"),
        ),
    ),
)
_WEIGHT, _ROWS = "const struct nk_weight *weight", "const struct nk_rows"
_SHAPE = "int64_t tokens, int64_t heads, int64_t kv_heads, int64_t width, int64_t position"
FUNCTIONS = (
    Function("int", "abi", ""),
    Function("int", "isa_count", "", "instruction sets this processor runs"),
    Function("const char *", "isa_name", "int index", "0 is the best, the last is scalar"),
    Function("int", "use_isa", "int index", serial=True),
    Function("int", "set_threads", "int threads", "the caller is one of them", serial=True),
    Function("int", "threads", ""),
    Function("void", "idle", "", "let the waiting threads sleep now"),
    Function("int64_t", "group_rows", "int64_t format", "rows packed together; 0: no such layout"),
    Function(
        "int",
        "activation_group",
        "int64_t format",
        "columns of activations that share a scale in products: 16 or 32; 0: products of floats",
    ),
    Function("int64_t", "packed_bytes", "int64_t format, int64_t rows, int64_t columns"),
    Function(
        "int",
        "pack",
        "int64_t format, const void *source, int64_t rows, int64_t columns, int64_t first, "
        "int64_t end, void *packed",
        "Packs rows first .. end (multiples of the group, or the last row) of `source`, which\n"
        "points at row 0 of the file's layout; `packed` points at the start of the whole matrix.",
    ),
    Function("int", "rows_of", f"{_WEIGHT}, const int64_t *ids, int64_t count, float *out"),
    Function("int", "linear", f"{_WEIGHT}, const float *x, int64_t tokens, float *y", serial=True),
    Function(
        "int",
        "rms_norm",
        "const float *x, const float *weight, float epsilon, int64_t tokens, int64_t width, "
        "float *y",
        serial=True,
    ),
    Function(
        "int",
        "layer_norm",
        "const float *x, const float *weight, const float *bias, float epsilon, int64_t tokens, "
        "int64_t width, float *y",
        "bias [width] or null",
        serial=True,
    ),
    Function(
        "int",
        "rope",
        "const float *x, const int64_t *positions, const float *frequencies, int64_t tokens, "
        "int64_t heads, int64_t width, int64_t pairs, int interleaved, float scale, float *y",
        serial=True,
    ),
    Function(
        "int",
        "gated",
        "const float *gate, const float *up, int64_t count, int activation, float *y",
        "up may be null: no factor",
        serial=True,
    ),
    Function("int", "softcap", "const float *x, float cap, int64_t count, float *y", serial=True),
    Function(
        "int",
        "attention",
        f"const float *q, {_SHAPE}, int type, {_ROWS} *keys, {_ROWS} *values, float scale, "
        "int64_t window, float cap, const float *sinks, float *y",
        "q [tokens, heads, width] at `position` on, over a cache that already holds these tokens\n"
        "→ y [tokens, heads * width]. window 0: all; cap 0: none; sinks [heads] or null.",
        serial=True,
    ),
    Function(
        "int64_t",
        "attention_bytes",
        f"int threads, {_SHAPE}, int type",
        "Bytes of scratch that takes at most on so many threads, with a window or without.",
    ),
    Function(
        "double",
        "read_bandwidth",
        "int64_t bytes, int repetitions",
        "bytes a second that all threads read of `bytes` of fresh memory, at best",
    ),
    Function(
        "void *", "huge_alloc", "int64_t bytes", "zeroed, 64-byte aligned, in huge pages if it can"
    ),
    Function("void", "huge_free", "void *memory, int64_t bytes"),
    Function(
        "int",
        "run",
        "const struct nk_program *program, int64_t first, int64_t end, int64_t tokens, "
        "int64_t position, const int64_t *ids",
        "Runs the operations first .. end for `tokens` tokens that stand at `position` on.",
        serial=True,
    ),
    Function("void", "free_scratch", "", "gives back the memory that runs have worked in"),
)


# --- for ctypes -----------------------------------------------------------------------------------

_SCALARS: dict[str, Any] = {
    "void": None,
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "const char *": ctypes.c_char_p,
}
_NAME = re.compile(r"(\**)(\w+)(?:\[(\d+)\])?$")


def _declared(declaration: str) -> list[tuple[str, str, int]]:
    """Name, type and array length (0: none) of each variable: "float *x, *y" has two."""
    first, *others = declaration.split(", ")
    at = max(first.rfind(" "), first.rfind("*"))
    base = first[: at + 1].rstrip("* ")
    found = [_NAME.search(part) for part in (first, *others)]
    return [(one[2], f"{base} {one[1]}".strip(), int(one[3] or 0)) for one in found if one]


def _ctype(kind: str) -> Any:
    """The ctypes type of a C type; pointers to numbers are plain addresses."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    name = kind.rstrip("* ").removeprefix("const ").removeprefix("struct ")
    if kind.endswith("*"):
        return ctypes.POINTER(_structs[name]) if name in _structs else ctypes.c_void_p
    return _structs[name]


def _fields(struct: Struct) -> list[tuple[str, Any]]:
    declared = [one for line, _ in struct.lines for one in _declared(line)]
    return [
        (name, _ctype(kind) * count if count else _ctype(kind)) for name, kind, count in declared
    ]


_structs: dict[str, type[ctypes.Structure]] = {}


class NativeWeight(ctypes.Structure):
    """struct nk_weight."""

    _fields_ = _fields(STRUCTS[0])


class NativeRows(ctypes.Structure):
    """struct nk_rows."""

    _fields_ = _fields(STRUCTS[1])


_structs |= {"nk_weight": NativeWeight, "nk_rows": NativeRows}


class NativeOp(ctypes.Structure):
    """struct nk_op."""

    _fields_ = _fields(STRUCTS[2])


_structs["nk_op"] = NativeOp


class NativeProgram(ctypes.Structure):
    """struct nk_program."""

    _fields_ = _fields(STRUCTS[3])


_structs["nk_program"] = NativeProgram


def signature(function: Function) -> tuple[Any, tuple[Any, ...]]:
    """What a function returns and what it takes, for ctypes."""
    kinds = [_declared(each)[0][1] for each in filter(None, function.parameters.split(", "))]
    return _ctype(function.result), tuple(map(_ctype, kinds))


# --- for C ----------------------------------------------------------------------------------------

_HEAD = """\
// The C interface of the native kernels: the only symbols the library exports.
//
// Written by kernels/cpu/schema.py from its table: change that. Every tensor is contiguous. Sizes
// are int64_t, floats are IEEE single, half is IEEE half as uint16_t. Functions that can fail
// return a status; NK_OK is 0. The library allocates nothing that it does not free, keeps one
// thread pool, and is called by one thread at a time. kernels/reference.py defines the ops.
// clang-format off
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define NK_API __declspec(dllexport)
#else
#define NK_API __attribute__((visibility("default")))
#endif
"""


def header() -> str:
    """The text of native/api/nk.h."""
    parts = [_HEAD, f"#define NK_ABI {ABI}\n#define NK_MOST_WEIGHTS {MOST_WEIGHTS}\n"]
    parts.append('#ifdef __cplusplus\nextern "C" {\n#endif\n')
    for enum, (name, prefix) in ENUMS.items():
        lines = [_line(f"{prefix}{one.name} = {one.value},", one.words) for one in enum]
        parts.append("\n".join([f"// {enum.__doc__}", f"enum {name} {{", *lines, "};\n"]))
    for struct in STRUCTS:
        lines = [_line(f"{line};", words) for line, words in struct.lines]
        comment = _comment(struct.words)
        parts.append("\n".join([comment, f"struct {struct.name} {{", *lines, "};\n"]))
    parts.append("\n".join(map(_prototype, FUNCTIONS)) + "\n")
    parts.append("#ifdef __cplusplus\n}\n#endif\n")
    return "\n".join(parts)


def _prototype(function: Function) -> str:
    result = function.result + ("" if function.result.endswith("*") else " ")
    declared = f"NK_API {result}nk_{function.name}({function.parameters or 'void'});"
    return "\n".join(filter(None, (_comment(function.words), *_wrapped(declared))))


def _wrapped(text: str) -> list[str]:
    lines: list[str] = [""]
    for word in text.split(" "):
        if len(lines[-1]) + len(word) >= 100:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _line(text: str, words: str) -> str:
    return f"    {text}  // {words}" if words else f"    {text}"


def _comment(words: str) -> str:
    return "\n".join(f"// {line}" for line in words.splitlines())


def main(arguments: list[str]) -> int:
    """Write the header, or with `--check` compare it; returns the exit status."""
    text = header()
    if "--check" not in arguments:
        HEADER.write_text(text, encoding="utf-8", newline="\n")
        return 0
    if HEADER.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{HEADER.name} is older than its table: run kernels/cpu/schema.py.\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
