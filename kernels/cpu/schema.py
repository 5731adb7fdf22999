"""The C interface as one table of enums, structs and functions, for ctypes and native/api/nk.h.

`python kernels/cpu/schema.py` generates the header; with `--check` it only compares. It imports
the standard library alone, so that it runs before any package is installed.
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
ABI = 4  # increment on every incompatible change of this table


class _Numbered(IntEnum):
    """A C enumeration whose members carry the comment printed beside them in the header."""

    comment: str

    def __new__(cls, value: int, comment: str = "") -> _Numbered:
        member = int.__new__(cls, value)
        member._value_, member.comment = value, comment
        return member


class Status(_Numbered):
    """Status codes returned by functions that can fail."""

    OK = 0
    BAD_FORMAT = 1, "no packed layout for this format id"
    BAD_SHAPE = 2, "a size that the kernel does not support"
    NO_MEMORY = 3, "memory allocation failed"
    NO_THREADS = 4, "thread creation failed, or an invalid thread count"
    BAD_ISA = 5, "no such instruction set on this processor"


class NativeCacheType(_Numbered):
    """Element type of the KV cache."""

    F32 = 0
    F16 = 1
    Q8 = 2, "Hadamard-rotated, then int8 with a float16 scale for each 32 channels"


class NativeActivation(_Numbered):
    """Activation function of a gated MLP; members as in kernels.program.Activation."""

    SILU = 0
    GELU_TANH = 1


class OpKind(_Numbered):
    """Kinds of operations in a recorded program: what each computes from which nk_op fields."""

    EMBED = (
        0,
        "out = (rows `ids` of weights[0] + x) * scale; count 2: + weights[1]",
    )
    NORM = 1, "out = norm of x; with `quantize`, out must not be x, and out is quantized"
    QUANTIZE = 2, "quantizes x for products; `chosen`: a row for each pair of y"
    LINEAR = 3, "outs[i] = x * weights[i]; `activation`: only outs[0], gated; `add_to`"
    ANGLES = 4, "out [T, 2 * pairs] = cosines and sines of position * weight, times scale"
    ROPE = 5, "x, y, z are q, k, v: per-head norms, rotation by angles `out`, page write"
    ATTEND = 6, "out = attention of x over the pages; must follow the ROPE of its x"
    GATE = 7, "out = activation(x) * y; y -1: without the factor"
    ADD = 8, "x += y * scale; y is scaled in place"
    SOFTCAP = 9, "x = cap * tanh(x / cap)"
    SCALE_COLUMNS = 10, "x = x * weight [width], for each row"
    BIAS = 11, "x = x + weight [width], for each row"
    HEAD_NORM = 12, "x = layer norm of each head of x, times weight [heads, head_width]"
    ROUTE = 13, "y (routes), z (groups): `chosen` of `experts` by the scores x"
    ORDER_PAIRS = 14, "completes y and z for several tokens; must follow ROUTE"
    GATHER = 15, "out = the row of x for each pair of y"
    EXPERT_LINEAR = 16, "outs = rows of x * expert_weights; groups z; `activation`"
    COMBINE = 17, "out = sum of a token's rows of x * their shares in y; x is scaled in place"


class Barrier(_Numbered):
    """Whether threads wait for each other after an operation."""

    ALWAYS = 0
    NEVER = 1, "the next operation does not read the result of this one"
    BATCH = 2, "not for a single token: each thread then reads its private copy"


# Enumeration: its name in C and the prefix of its members there.
ENUMS: dict[type[_Numbered], tuple[str, str]] = {
    Status: ("nk_status", "NK_"),
    NativeCacheType: ("nk_cache", "NK_CACHE_"),
    NativeActivation: ("nk_activation", "NK_"),
    OpKind: ("nk_kind", "NK_"),
    Barrier: ("nk_barrier", "NK_BARRIER_"),
}


@dataclass(frozen=True)
class Struct:
    """A C struct; `lines` are pairs of a C declaration and its comment."""

    name: str
    comment: str
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Function:
    """An exported function; `name` is without the prefix nk_."""

    result: str
    name: str
    parameters: str  # as C declares them
    comment: str = ""
    serial: bool = False  # uses the thread pool or the selected kernels; returns a status


MAX_WEIGHTS = 3  # of one operation
MAX_EXPERTS = 1024  # of one mixture
PAGE_TOKENS = 256  # positions of a page, as in kernels/layer_state.py
STRUCTS = (
    Struct(
        "nk_weight",
        "A weight matrix [rows, columns] in the layout of nk_pack; see layout.h.",
        (
            ("const void *data", ""),
            ("int64_t format", "ggml type id"),
            ("int64_t rows, columns", ""),
        ),
    ),
    Struct(
        "nk_kv_layer",
        "Place of one layer's keys and values in the KV pages of its group: PageLayer in\n"
        "kernels/kv_pages.py, which defines their layout. A page has NK_PAGE_TOKENS positions.",
        (
            ("int64_t group", "index of the page table"),
            ("int64_t keys, key_scales", "byte offsets in a page; scales: NK_CACHE_Q8 only"),
            ("int64_t values, value_scales", ""),
        ),
    ),
    Struct(
        "nk_segment",
        "Consecutive tokens of one sequence in a batch, whose rows are those of all segments in "
        "order.",
        (
            ("int64_t tokens", ""),
            ("int64_t position", "of the first token"),
            ("uint8_t ***tables", "for each group the addresses of the sequence's pages"),
        ),
    ),
    Struct(
        "nk_op",
        "One operation of a recorded program; x, y, z, out and outs are buffer indices.",
        (
            ("int32_t kind, barrier", "nk_kind, nk_barrier"),
            ("int32_t quantize", "NORM (or 0), QUANTIZE: columns per scale, 16 or 32"),
            ("int32_t x, y, z, out", "-1: none"),
            ("int32_t count", "number of weights"),
            ("int32_t activation", "LINEAR: nk_activation, or -1"),
            ("int32_t add_to", "LINEAR: buffer to which outs[0] is added, or -1"),
            ("int32_t interleaved, layer, pairs", "pairs: half the rotary channels"),
            ("int32_t experts, chosen", "of a mixture, and how many of them a token passes"),
            ("int64_t width", "columns of x"),
            ("int64_t heads, kv_heads, head_width, window", ""),
            ("float epsilon, scale, cap", ""),
            ("int32_t centred", "NORM: layer norm instead of RMS norm"),
            ("const float *weight, *bias, *query_norm, *key_norm, *sinks", ""),
            (f"struct nk_weight weights[{MAX_WEIGHTS}]", ""),
            ("const struct nk_weight *expert_weights", "EXPERT_LINEAR: [count, experts]"),
            ("int32_t outs[4]", ""),
        ),
    ),
    Struct(
        "nk_program",
        "A forward pass as a flat list of operations. Threads share the work of every operation "
        "and\n"
        "then meet at a barrier, unless its `barrier` field says otherwise. Only one buffer has a\n"
        "quantized copy at a time (for a single token, one copy per thread): the operation that\n"
        "makes the copy stands right before the products that read it.",
        (
            ("const struct nk_op *ops", ""),
            ("float **buffers", "[tokens, width] each, allocated for the tokens of the run"),
            ("const struct nk_kv_layer *layers", ""),
            ("int64_t cache_type", "nk_cache"),
            ("int64_t op_bytes", "sizeof(struct nk_op), to detect a mismatch of builds"),
        ),
    ),
)
_WEIGHT = "const struct nk_weight *weight"
_BATCH = "const struct nk_segment *segments, int64_t count"
_HEADS = "int64_t heads, int64_t kv_heads, int64_t width"
FUNCTIONS = (
    Function("int", "abi", ""),
    Function("int", "isa_count", "", "number of instruction sets that this processor supports"),
    Function("const char *", "isa_name", "int index", "index 0 is the fastest, the last is scalar"),
    Function("int", "use_isa", "int index", serial=True),
    Function(
        "int", "set_threads", "int threads", "the count includes the calling thread", serial=True
    ),
    Function("int", "threads", ""),
    Function(
        "void",
        "idle",
        "",
        "puts waiting worker threads to sleep and frees the scratch of single operations",
    ),
    Function(
        "int64_t", "group_rows", "int64_t format", "rows packed together; 0: unsupported format"
    ),
    Function(
        "int",
        "activation_group",
        "int64_t format",
        "columns per scale of quantized activations: 16 or 32; 0: activations stay floats",
    ),
    Function("int64_t", "packed_bytes", "int64_t format, int64_t rows, int64_t columns"),
    Function(
        "int",
        "pack",
        "int64_t format, const void *source, int64_t rows, int64_t columns, int64_t first, "
        "int64_t end, void *packed",
        "Packs rows first .. end (multiples of nk_group_rows, or the last row) of `source`, which\n"
        "points at row 0 in GGUF layout; `packed` points at the start of the whole matrix.",
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
        "up may be null: y = activation(gate)",
        serial=True,
    ),
    Function(
        "int",
        "route",
        "const float *scores, int64_t tokens, int64_t experts, int64_t chosen, float *shares",
        "scores [tokens, experts] → shares [tokens, experts], 0 for experts that are not chosen",
        serial=True,
    ),
    Function("int", "softcap", "const float *x, float cap, int64_t count, float *y", serial=True),
    Function(
        "int",
        "attention",
        f"const float *q, {_HEADS}, {_BATCH}, int type, const struct nk_kv_layer *layer, "
        "float scale, int64_t window, float cap, const float *sinks, float *y",
        "q [tokens of all segments, heads, width], over pages that include their positions\n"
        "→ y [tokens, heads * width]. window 0: unlimited; cap 0: no softcap; "
        "sinks [heads] or null.",
        serial=True,
    ),
    Function(
        "int64_t",
        "attention_bytes",
        f"int threads, int64_t tokens, {_HEADS}, int64_t position, int type",
        "Upper bound of the scratch bytes of nk_attention for one segment, with or without a "
        "window.",
    ),
    Function(
        "double",
        "read_bandwidth",
        "int64_t bytes, int repetitions",
        "best memory read bandwidth of all threads over `bytes` of fresh memory, in bytes/s",
    ),
    Function(
        "void *",
        "huge_alloc",
        "int64_t bytes",
        "zeroed, 64-byte aligned, in huge pages where available",
    ),
    Function("void", "huge_free", "void *memory, int64_t bytes"),
    Function(
        "int",
        "run",
        f"const struct nk_program *program, int64_t first, int64_t end, {_BATCH}, "
        "const int64_t *ids",
        "Runs the operations first .. end for all tokens of the segments; their tables may be "
        "null where\nno operation reads or writes pages.",
        serial=True,
    ),
    Function("void", "free_scratch", "", "frees the scratch memory of nk_run"),
    Function("struct nk_workspace *", "new_workspace", "", "of nk_run_alone; null without memory"),
    Function(
        "int",
        "run_alone",
        "struct nk_workspace *workspace, const struct nk_program *program, int64_t first, "
        f"int64_t end, {_BATCH}, const int64_t *ids",
        "As nk_run, on the calling thread alone, while others may be in any call. A workspace "
        "serves one\nthread at a time; the bits are those of nk_run.",
    ),
    Function("void", "free_workspace", "struct nk_workspace *workspace"),
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
    """The ctypes type of a C type; pointers to numbers are c_void_p."""
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


class NativeKVLayer(ctypes.Structure):
    """struct nk_kv_layer."""

    _fields_ = _fields(STRUCTS[1])


class NativeSegment(ctypes.Structure):
    """struct nk_segment."""

    _fields_ = _fields(STRUCTS[2])


_structs |= {
    "nk_weight": NativeWeight,
    "nk_kv_layer": NativeKVLayer,
    "nk_segment": NativeSegment,
}


class NativeOp(ctypes.Structure):
    """struct nk_op."""

    _fields_ = _fields(STRUCTS[3])


_structs["nk_op"] = NativeOp


class NativeProgram(ctypes.Structure):
    """struct nk_program."""

    _fields_ = _fields(STRUCTS[4])


_structs["nk_program"] = NativeProgram


def signature(function: Function) -> tuple[Any, tuple[Any, ...]]:
    """The ctypes result type and parameter types of a function."""
    kinds = [_declared(each)[0][1] for each in filter(None, function.parameters.split(", "))]
    return _ctype(function.result), tuple(map(_ctype, kinds))


# --- for C ----------------------------------------------------------------------------------------

_HEAD = """\
// The C interface of the native kernels: the only symbols the library exports.
//
// Generated by kernels/cpu/schema.py: edit the table there. Every tensor is contiguous. Sizes are
// int64_t, floats are float32, halves are float16 as uint16_t. Functions that can fail return an
// nk_status. The library has one thread pool and must be called by one thread at a time, except
// for nk_run_alone.
// kernels/reference.py defines the operations.
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
    parts = [
        _HEAD,
        f"#define NK_ABI {ABI}\n#define NK_MAX_WEIGHTS {MAX_WEIGHTS}\n"
        f"#define NK_MAX_EXPERTS {MAX_EXPERTS}\n#define NK_PAGE_TOKENS {PAGE_TOKENS}\n",
    ]
    parts.append('#ifdef __cplusplus\nextern "C" {\n#endif\n')
    for enum, (name, prefix) in ENUMS.items():
        lines = [_line(f"{prefix}{one.name} = {one.value},", one.comment) for one in enum]
        parts.append("\n".join([f"// {enum.__doc__}", f"enum {name} {{", *lines, "};\n"]))
    for struct in STRUCTS:
        lines = [_line(f"{line};", comment) for line, comment in struct.lines]
        heading = _comment(struct.comment)
        parts.append("\n".join([heading, f"struct {struct.name} {{", *lines, "};\n"]))
    parts.append("\n".join(map(_prototype, FUNCTIONS)) + "\n")
    parts.append("#ifdef __cplusplus\n}\n#endif\n")
    return "\n".join(parts)


def _prototype(function: Function) -> str:
    result = function.result + ("" if function.result.endswith("*") else " ")
    declared = f"NK_API {result}nk_{function.name}({function.parameters or 'void'});"
    return "\n".join(filter(None, (_comment(function.comment), *_wrapped(declared))))


def _wrapped(text: str) -> list[str]:
    lines: list[str] = [""]
    for word in text.split(" "):
        if len(lines[-1]) + len(word) >= 100:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _line(text: str, comment: str) -> str:
    return f"    {text}  // {comment}" if comment else f"    {text}"


def _comment(text: str) -> str:
    return "\n".join(f"// {line}" for line in text.splitlines())


def main(arguments: list[str]) -> int:
    """Write the header, or compare it with `--check`; returns the exit status."""
    text = header()
    if "--check" not in arguments:
        HEADER.write_text(text, encoding="utf-8", newline="\n")
        return 0
    if HEADER.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{HEADER.name} is out of date: run kernels/cpu/schema.py.\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
