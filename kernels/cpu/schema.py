"""The C interface as one table of enums, structs and functions, for ctypes and native/api/nk.h."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

ABI = 13  # increment on every incompatible change of this table


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
    BAD_ID = 6, "a row outside a table of embeddings"


class NativeCacheType(_Numbered):
    """Element type of the KV cache."""

    F32 = 0
    F16 = 1
    Q8 = 2, "Hadamard-rotated, then int8 with a float16 scale for each 32 channels"


class NativeActivation(_Numbered):
    """Activation function; members as in kernels.ops.Activation."""

    SILU = 0
    GELU_TANH = 1
    RELU = 2
    RELU_SQUARED = 3
    SIGMOID = 4
    SOFTPLUS = 5
    GPT_OSS = 6, "x * sigmoid(1.702 x), times up + 1 in place of up"
    SILU_CUT = 7, "SILU, of which a limit cuts the result, not x"
    GELU = 8, "x * normal distribution function"


class NativeGating(_Numbered):
    """How scores of experts become shares; members as in kernels.ops.Gating."""

    SOFTMAX = 0
    SIGMOID = 1
    SOFTMAX_OF_CHOSEN = 2
    SIGMOID_OF_CHOSEN = 3


# One with the name and the fields of an instruction computes this instruction; see `kind_of`.
class OpKind(_Numbered):
    """Kinds of operations in a recorded program: what each computes from which nk_op fields."""

    EMBED = 0, "out = (rows `ids` of weights[0] + x) * scale + weights[1] by position; `types`"
    NORM = 1, "out = norm of x; with `quantize`, out must not be x, and out is quantized"
    QUANTIZE = 2, "quantizes x for products; `chosen`: a row for each pair y of the groups z"
    LINEAR = 3, "outs[i] = x * weights[i] + biases[i]; `activation`: only outs[0]; `add_to`"
    ANGLES = 4, "out [T, 2 * pairs] = cosines, sines of position * weight, times scale; `axes`"
    ROPE = 5, "x, y, z are q, k, v: head norms, rotation by angles `out`, page write; `full`"
    ATTEND = 6, "out = attention of x over the pages; after the ROPE of its x; `full`, `spans`"
    GATE = 7, "out = activation(x) * y; y -1: without the factor; `limit`"
    ADD = 8, "x += y * scale; y is scaled in place"
    SOFTCAP = 9, "x = cap * tanh(x / cap)"
    SCALE_CHANNELS = 10, "x = x * weight [width], for each row"
    BIAS = 11, "x = x + weight [width], for each row"
    HEAD_NORM = 12, "x = norm of each head of x, times weight [heads, head_width]; `centred`"
    ROUTE = 13, "y (routes), z (groups): experts by the scores x; `routing`"
    ORDER_PAIRS = 14, "completes y and z for several tokens; must follow ROUTE"
    GATHER = 15, "out = the row of x for each pair of y, with `start` 1 times its share"
    EXPERT_LINEAR = 16, "outs = rows of x * weights * scales + biases; groups z; `activation`"
    COMBINE = 17, "out = sum of rows of x times shares in y (`start` 1: without); scales x"
    MULTIPLY = 18, "x = x * y"
    SCALE = 19, "x = x * scale"
    HEAD_GATE = 20, "x = x * activation(y) of each head, y [T, heads]"
    SHORT_CONV = 21, "x = causal convolution with weight [taps, width], + bias; `activation`"
    RECURRENCE = 22, "x, y, z are q, k, v; outs: decay, strength or -1"
    COLUMNS = 23, "out = `head_width` columns of x, from `start` on"
    JOIN = 24, "of each head of out `value_width` channels: from `start` on the channels of x"
    POSITION_SCALE = 25, "x *= 1 + strength * log(1 + floor((position + offset) / length))"
    HEAD_ROWS = 26, "out = rows of heads for EXPERT_LINEAR, of x from `start` on; z: groups"
    HEAD_COLUMNS = 27, "out = the rows x of heads, beside each other; undoes HEAD_ROWS"
    XIELU = 28, "x = as in kernels.ops.Xielu"
    ROTATE = 29, "out = x [T * chosen], by blocks of `pairs`; `start` 1: signs last"
    MIX_STREAMS = 30, "x = MixStreams of `heads` streams with coefficients y"
    ADD_TO_STREAMS = 31, "x = AddToStreams of y, coefficients z or -1, from `start` on"
    MATCH_MAGNITUDE = 32, "x = x with the magnitude of y; `epsilon`"
    GAUSSIAN_TOP_K = 33, "x = max(x - cutoff, 0), by row; `deviations`"
    GIVEN_ROWS = 34, "x = or, `added`, += given rows from column `start` on, at their tokens"
    CLIP = 35, "x = min(max(x, least), most)"


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
    NativeGating: ("nk_gating", "NK_GATING_"),
    OpKind: ("nk_kind", "NK_"),
    Barrier: ("nk_barrier", "NK_BARRIER_"),
}


@dataclass(frozen=True)
class Struct:
    """A C struct; `lines` are pairs of a C declaration and its comment."""

    name: str
    comment: list[str]  # lines
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Function:
    """An exported function; `name` is without the prefix nk_."""

    result: str
    name: str
    parameters: str  # as C declares them
    comment: list[str]  # lines
    serial: bool  # uses the thread pool or the selected kernels; returns a status


MAX_WEIGHTS = 3  # of one operation
MAX_EXPERTS = 1024  # of one mixture
MAX_TAPS, MAX_STREAMS = 16, 64  # of a short convolution; of MIX_STREAMS
PAGE_TOKENS = 256  # positions of a page, as in kernels/states/layer_state.py
# Structs: a comment, the name, and the members, each line with its comment.
_STRUCTS = """
// A weight matrix [rows, columns] in the layout of nk_pack; see layout.h.
nk_weight
    const void *data
    int64_t format  // ggml type id
    int64_t rows, columns

// Place of one layer's keys and values, or of its state of fixed size (at `keys`), in the pages of
// its group: PageLayer and StateLayer in kernels/states/kv_pages.py, which defines their layout.
// Keys at the offset of the values are these: see nk_has_keys. A page has NK_PAGE_TOKENS positions.
nk_kv_layer
    int64_t group  // index of the page table
    int64_t keys, key_scales  // byte offsets in a page; scales: NK_CACHE_Q8 only
    int64_t values, value_scales

// What images change in a segment, as ImageRows in kernels/ops/running.py.
nk_images
    const float *rows  // [count, width]
    const int64_t *at  // [count] their tokens in the segment
    int64_t count, width
    const int64_t *positions  // [tokens, axes] or null
    int64_t axes
    const int64_t *spans  // [span_count, 2]: first token, and that after the last
    int64_t span_count

// Consecutive tokens of one sequence in a batch, whose rows are those of all segments in order.
nk_segment
    int64_t tokens
    int64_t position  // of the first token
    uint8_t ***tables  // for each group the addresses of the sequence's pages
    const struct nk_images *images  // or null

// How a mixture chooses experts, as in kernels.ops.Routing.
nk_routing
    int32_t experts, chosen
    int32_t gating, normalized  // nk_gating
    int32_t groups, chosen_groups
    float scale
    const float *bias  // [experts] or null

// One operation of a recorded program; x, y, z, out and outs are buffer indices.
nk_op
    int32_t kind, barrier  // nk_kind, nk_barrier
    int32_t quantize  // NORM (or 0), QUANTIZE: columns per scale, 16 or 32
    int32_t x, y, z, out  // -1: none
    int32_t count  // number of weights
    int32_t activation  // nk_activation, or -1
    int32_t add_to  // LINEAR: buffer to which outs[0] is added, or -1
    int32_t interleaved, layer, pairs  // pairs: half the rotary channels
    int32_t experts, chosen  // of a mixture, and how many of them a token passes
    int64_t width, heads, kv_heads, head_width, window  // width: columns of x
    int64_t value_width, start  // RECURRENCE, JOIN; COLUMNS, HEAD_ROWS, of experts
    float epsilon, scale, cap, limit  // limit: of a gate and its factor; 0: none
    float strength, length, offset, floor  // POSITION_SCALE; floor: RECURRENCE
    float positive, negative, beta  // XIELU
    float deviations  // GAUSSIAN_TOP_K
    float least, most  // CLIP
    int32_t centred  // NORM, HEAD_NORM: layer norm instead of RMS norm
    int32_t norms_rotated  // ROPE: the norms follow the rotation
    int32_t full  // ROPE, ATTEND: segments are whole texts, read in both directions; uncached
    int32_t spans  // ATTEND: what tokens of a span see, Spans in kernels/ops/attend.py
    int32_t added  // GIVEN_ROWS: to x
    const int32_t *axes  // ANGLES: axis of the positions of each pair, or null
    int32_t types, separator  // EMBED: + row 1 of weights[2] behind a separator, else row 0
    int32_t taps, decays, corrected, tiled  // SHORT_CONV; RECURRENCE: as there
    const float *weight, *bias, *query_norm, *key_norm, *sinks
    const float *rate, *decay_bias, *skip  // RECURRENCE
    struct nk_weight weights[MAX_WEIGHTS]
    const float *biases[MAX_WEIGHTS]  // LINEAR: [rows] each, or null
    const struct nk_weight *expert_weights  // EXPERT_LINEAR: [count, experts]
    const float *expert_biases[2], *expert_scales[2]  // of weights: [experts, rows]; [experts]
    struct nk_routing routing  // ROUTE
    int32_t outs[4]

// A forward pass as a flat list of operations. Threads share the work of every operation and
// then meet at a barrier, unless its `barrier` field says otherwise. Only one buffer has a
// quantized copy at a time (for a single token, one copy per thread): the operation that
// makes the copy stands right before the products that read it.
nk_program
    const struct nk_op *ops
    float **buffers  // [tokens, width] each, allocated for the tokens of the run
    const struct nk_kv_layer *layers
    int64_t cache_type  // nk_cache
    int64_t op_bytes  // sizeof(struct nk_op), to detect a mismatch of builds
"""


def _structs_of(text: str) -> Iterator[Struct]:
    """The structs in the order of the table."""
    for block in text.replace("MAX_WEIGHTS", str(MAX_WEIGHTS)).strip().split("\n\n"):
        lines = block.splitlines()
        comment = [line for line in lines if line.startswith("// ")]
        name, *members = lines[len(comment) :]
        pairs = [line.strip().partition("  // ") for line in members]
        yield Struct(name, comment, tuple((first, last) for first, _, last in pairs))


STRUCTS = tuple(_structs_of(_STRUCTS))
_WEIGHT = "const struct nk_weight *weight"
_BATCH = "const struct nk_segment *segments, int64_t count"
_HEADS = "int64_t heads, int64_t kv_heads, int64_t width"
# One function a line or, indented, several: `serial`, result, name without nk_, C parameters. Its
# comment stands before it. WEIGHT, BATCH and HEADS stand for the parameters above.
_FUNCTIONS = """
int abi()
// number of instruction sets that this processor supports
int isa_count()
// index 0 is the fastest, the last is scalar
const char *isa_name(int index)
serial int use_isa(int index)
// the count includes the calling thread
serial int set_threads(int threads)
int threads()
// puts waiting worker threads to sleep
void idle()
// rows packed together; 0: unsupported format
int64_t group_rows(int64_t format)
// columns per scale of quantized activations: 16 or 32; 0: activations stay floats
int activation_group(int64_t format)
int64_t packed_bytes(int64_t format, int64_t rows, int64_t columns)
// Packs rows first .. end (multiples of nk_group_rows, or the last row) of `source`, which
// points at row 0 in GGUF layout; `packed` points at the start of the whole matrix.
int pack(int64_t format, const void *source, int64_t rows, int64_t columns, int64_t first,
    int64_t end, void *packed)
int rows_of(WEIGHT, const int64_t *ids, int64_t count, float *out)
// Upper bound of the scratch bytes of an attention of one segment, with or without a window.
int64_t attention_bytes(int threads, int64_t tokens, HEADS, int64_t position, int type)
// best memory read bandwidth of all threads over `bytes` of fresh memory, in bytes/s
double read_bandwidth(int64_t bytes, int repetitions)
// zeroed, 64-byte aligned, in huge pages where available
void *huge_alloc(int64_t bytes)
void huge_free(void *memory, int64_t bytes)
// Runs the operations first .. end for all tokens of the segments; their tables may be null where
// no operation reads or writes pages.
serial int run(const struct nk_program *program, int64_t first, int64_t end, BATCH, const
    int64_t *ids)
// frees the scratch memory of nk_run
void free_scratch()
// Reads of `bytes` mapped from a file find zeros from where the file ends or cannot be read on, in
// place of the end of the process. → a number for the two below; -1: the system has no such guard.
int guard(const void *start, int64_t bytes)
// whether a read has found the end of a guarded file, or a fault of its disk
int was_cut(int number)
void unguard(int number)
"""


def _functions() -> Iterator[Function]:
    """The functions in the order of the table."""
    comment: list[str] = []
    names = {"WEIGHT": _WEIGHT, "BATCH": _BATCH, "HEADS": _HEADS}
    for line in _FUNCTIONS.strip().replace("\n    ", " ").splitlines():
        if line.startswith("// "):
            comment.append(line)
            continue
        found = re.fullmatch(r"(serial )?(.*?)(\w+)\((.*)\)", line)
        assert found, line
        parameters = re.sub("WEIGHT|BATCH|HEADS", lambda one: names[one[0]], found[4])
        yield Function(found[2].rstrip(), found[3], parameters, comment, bool(found[1]))
        comment = []


FUNCTIONS = tuple(_functions())


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


_structs: dict[str, type[ctypes.Structure]] = {}
_Structure = TypeVar("_Structure", bound=ctypes.Structure)


def _declare(made: type[_Structure]) -> type[_Structure]:
    """Give a class the members of the struct that its docstring names, after those it refers to."""
    name = (made.__doc__ or "").removeprefix("struct ").removesuffix(".")
    lines = next(struct.lines for struct in STRUCTS if struct.name == name)
    declared = (one for line, _ in lines for one in _declared(line))
    made._fields_ = [(one, _ctype(kind) * n if n else _ctype(kind)) for one, kind, n in declared]
    _structs[name] = made
    return made


@_declare
class NativeWeight(ctypes.Structure):
    """struct nk_weight."""


@_declare
class NativeKVLayer(ctypes.Structure):
    """struct nk_kv_layer."""


@_declare
class NativeImages(ctypes.Structure):
    """struct nk_images."""


@_declare
class NativeSegment(ctypes.Structure):
    """struct nk_segment."""


@_declare
class NativeRouting(ctypes.Structure):
    """struct nk_routing."""


@_declare
class NativeOp(ctypes.Structure):
    """struct nk_op."""


@_declare
class NativeProgram(ctypes.Structure):
    """struct nk_program."""


def signature(function: Function) -> tuple[Any, tuple[Any, ...]]:
    """The ctypes result type and parameter types of a function."""
    kinds = [_declared(each)[0][1] for each in filter(None, function.parameters.split(", "))]
    return _ctype(function.result), tuple(map(_ctype, kinds))
