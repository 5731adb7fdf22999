"""Reference backend: definitions of all ops in plain torch, against which kernels are tested.

Written for readability: float32 throughout, tokens first, optimised only to bound memory.
Shapes and errors are documented with the public ops in `kernels.ops`, which check them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kernels.ops.add_to_streams import add_to_streams
from kernels.ops.attend import attention, attention_bytes, full_attention, rope
from kernels.ops.embed import embed
from kernels.ops.experts import route
from kernels.ops.gate import gated
from kernels.ops.hadamard_rotation import hadamard
from kernels.ops.in_place import InPlace, defined, op_name
from kernels.ops.linear import PIECE, linear
from kernels.ops.mix_streams import mix_streams
from kernels.ops.norm import layer_norm, rms_norm
from kernels.ops.recurrence import recurrence
from kernels.ops.short_conv import short_conv
from kernels.ops.table import Kernel
from kernels.weights.formats import FORMATS, Format, by_name
from kernels.weights.weight import Weight, file_dtype

# Memory of a product that decodes its weight: one piece, the decoder's temporaries, its outputs.
DECODING_BYTES = 3 * 4 * PIECE


def prepare(
    weight: Weight,
    checkpoint: Callable[[], None],
    done: Callable[[int, int], None],
    device: torch.device | None = None,
) -> Weight:
    """Decode once to float32; F32 is copied too, so that the file can be closed.

    The result is on `device`, where it is decoded; None: where the weight is.
    """
    rows = weight.data.shape[0]
    dense = torch.empty(rows, weight.columns, device=device or weight.data.device)
    step = max(PIECE // weight.columns, 1)
    for start in range(0, rows, step):
        checkpoint()
        end = min(start + step, rows)
        stored = weight.data[start:end].to(dense.device)
        piece = Weight(stored, weight.format, (end - start, weight.columns), weight.layout)
        piece.decode(0, end - start, dense[start:end])
        done(start, end)
    return Weight(dense, by_name("F32"), weight.shape)


def held_bytes(format: Format, shape: Sequence[int]) -> int:
    """Bytes of a prepared weight: float32, whatever its format."""
    return 4 * math.prod(shape)


def copy(
    weight: Weight,
    checkpoint: Callable[[], None],
    done: Callable[[int, int], None],
    device: torch.device | None = None,
) -> Weight:
    """A copy of the packed bytes on `device`; every product decodes them again."""
    rows = weight.data.shape[0]
    data = torch.empty_like(weight.data, device=device or weight.data.device)
    step = max(PIECE // weight.columns, 1)
    for start in range(0, rows, step):
        checkpoint()
        end = min(start + step, rows)
        data[start:end] = weight.data[start:end].to(data.device)
        done(start, end)
    return Weight(data, weight.format, weight.shape)


def empty(format: Format, shape: Sequence[int], memory: Tensor) -> Weight:
    """A weight over the beginning of `memory` u8, packed as in a file; `fill` writes its rows."""
    rows, row_bytes = math.prod(shape[:-1]), format.row_bytes(shape[-1])
    data = memory[: rows * row_bytes].view(rows, row_bytes)
    return Weight(data.view(file_dtype(format)), format, tuple(shape))


def fill(weight: Weight, first: int, end: int, rows: Tensor) -> None:
    """Copy rows u8, as in a file, to the rows from `first` to before `end` of a weight."""
    stored = weight.data.view(torch.uint8)
    stored[first:end] = rows.view(end - first, stored.shape[1])


def group_rows(format: Format) -> int:
    """Rows that `fill` writes together."""
    return 1


def macs_per_100_ms() -> int:
    """Multiply-adds in 100 ms; measured: about 50 GFLOP/s of float32."""
    return 2_500_000_000


def memory(size: int, device: torch.device | None = None) -> Tensor:
    """Memory from torch's allocator for a device; None: for the processor."""
    try:
        return torch.empty(size, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError as error:  # of an accelerator
        raise MemoryError(str(error)) from error


def read_bandwidth(size: int, device: torch.device | None = None) -> float:
    """Bandwidth of a sum over the memory: the best of five."""
    block = torch.ones(size // 4, device=device)
    seconds: list[float] = []
    for _ in range(5):
        started = time.perf_counter()
        block.sum().item()  # waits for the device
        seconds.append(time.perf_counter() - started)
    return size / min(seconds)


WEIGHT_OPS: tuple[Kernel, ...] = (prepare, linear, embed)  # looked up by the weight's format
OTHER_OPS: tuple[Kernel, ...] = (rms_norm, layer_norm, rope, attention, gated, route)
STATE_OPS: tuple[Kernel, ...] = (short_conv, recurrence)  # of layers with a state of fixed size
ENCODER_OPS: tuple[Kernel, ...] = (full_attention,)  # of models that read a text in both directions
# Ops that few models have, and other ops for the operands that only some backends' kernels take:
# attention with sinks, any activation, a limit, any routing, a floor of decays.
RARE_OPS: dict[str, Kernel] = {
    "hadamard": hadamard,
    "mix_streams": mix_streams,
    "add_to_streams": add_to_streams,
    "attention_any": attention,
    "gated_any": gated,
    "route_any": route,
    "recurrence_any": recurrence,
}

# Entries of a backend that are not ops: memory estimates, measured speeds.
OTHERS: dict[tuple[str, str], Kernel] = {
    **{
        (entry.__name__, format.name): entry
        for entry in (held_bytes, empty, fill, group_rows)
        for format in FORMATS.values()
    },
    ("attention_bytes", "F32"): attention_bytes,
    ("read_bandwidth", "F32"): read_bandwidth,
    ("macs_per_100_ms", "F32"): macs_per_100_ms,
    ("memory", "F32"): memory,
}

# All ops that read no weights, by name.
OPS: dict[str, Kernel] = {
    **{op.__name__: op for op in (*OTHER_OPS, *STATE_OPS, *ENCODER_OPS)},
    **RARE_OPS,
    **{op_name(kind): defined for kind in InPlace.__subclasses__()},
}
KERNELS: dict[tuple[str, str], Kernel] = {
    **OTHERS,
    **{(op.__name__, format.name): op for op in WEIGHT_OPS for format in FORMATS.values()},
    **{(name, "F32"): op for name, op in OPS.items()},
}
