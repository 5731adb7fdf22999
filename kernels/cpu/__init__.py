"""Native CPU backend: its table of kernels by op and format."""

from __future__ import annotations

from kernels.backend import reference
from kernels.cpu import library, listing, ops, program, timing, weights
from kernels.cpu.memory import memory
from kernels.cpu.operations import kind_of
from kernels.ops.in_place import InPlace, op_name
from kernels.weights import formats

# Formats with kernels in native/formats; the others run on the reference.
FORMATS = tuple(
    row.name
    for row in formats.FORMATS.values()
    if library.available() and weights.group_rows(row) > 0
)


def macs_per_100_ms() -> int:
    """Multiply-adds in 100 ms on two cores; measured: 200 to 250 billion a second per core."""
    return 40_000_000_000


def read_bandwidth(size: int) -> float:
    """Read bandwidth in bytes/s: the best of five."""
    return library.read_bandwidth(size, 5)


_OF_WEIGHTS = (
    *(weights.prepare, weights.held_bytes, weights.empty, weights.fill),
    *(weights.group_rows, ops.linear, ops.embed),
)
_OF_FLOATS = (
    *(ops.rms_norm, ops.layer_norm, ops.rope, ops.attention, ops.full_attention, ops.gated),
    *(ops.route, ops.short_conv, ops.recurrence, ops.mix_streams, ops.add_to_streams),
    *(ops.hadamard, ops.attention_bytes, memory, macs_per_100_ms, read_bandwidth, program.record),
    *(listing.operations, timing.operation_times),
)
_OF_ANY = ops.attention, ops.gated, ops.route, ops.recurrence
KERNELS: dict[tuple[str, str], reference.Kernel] = {
    **{(op.__name__, format): op for op in _OF_WEIGHTS for format in FORMATS},
    **{(op.__name__, "F32"): op for op in _OF_FLOATS},
    **{(f"{op.__name__}_any", "F32"): op for op in _OF_ANY},
    **{
        (op_name(one), "F32"): ops.in_place
        for one in InPlace.__subclasses__()
        if kind_of(one) is not None
    },
}


def words() -> str:
    """Display name of the backend: "cpu avx512"."""
    return f"cpu {library.instruction_set()}"
