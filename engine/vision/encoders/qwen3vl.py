"""qwen3vl_merger: Qwen3-VL, Qwen3.5 to 3.8, Bonsai-27B.

Patches in squares, each by two kernels that are summed; learned positions, resized bilinearly, and
RoPE by row and column. Four patches become a row. With deep stacking the rows of some layers become
further columns, which the first layers of the text model add.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from torch import Tensor

from engine.models.forward_parts import STREAM, norm
from engine.models.weights import Weights
from engine.vision.encoder import Wiring
from engine.vision.patches import Grid, coordinates, resized_positions, square_order
from engine.vision.projector_file import VisionConfig
from engine.vision.tower import (
    PATCHES,
    Blocks,
    added_positions,
    axial_rope,
    instructions_of,
    merging_mlp,
    patch_embedding,
    program,
    square_positions,
    tower_block,
    tower_norm,
)
from kernels import ops
from kernels.ops import Activation, Instruction
from kernels.programs.program import Program

_ROPE_BASE = 10_000.0


def build(weights: Weights, config: VisionConfig) -> Wiring:
    """Wire the parts; raises ModelFileError naming a tensor that is missing or misshapen."""
    D, square = config.width, config.merge**2
    how = Blocks(Activation.GELU_TANH, centred=True, rope=axial_rope(config, _ROPE_BASE))
    body = [
        *patch_embedding(weights, config, ("v.patch_embd.weight", "v.patch_embd.weight.1")),
        added_positions(config),
    ]
    for index in range(config.layers):
        body += instructions_of(tower_block(weights, config, index, how))
        if index in config.deep:
            body.append(ops.Columns(STREAM, 0, D, _deep(index)))
    last = tower_norm(weights, config, "v.post_ln", D, centred=True)
    body.append(norm(last, STREAM, STREAM))
    tower = _joined(body, (STREAM, *map(_deep, config.deep)), {PATCHES: config.pixels})
    return Wiring(
        config,
        tower,
        _mergers(weights, config),
        merged=partial(_merged, parts=1 + len(config.deep), square=square),
        positions=partial(resized_positions, square_positions(weights, D), corners=True),
        axes=coordinates,
        order=partial(square_order, side=config.merge),
    )


def _merged(hidden: Tensor, grid: Grid, parts: int, square: int) -> Tensor:
    """[T, parts * D] in squares → the patches of a square beside each other, by part."""
    del grid
    by_part = hidden.view(len(hidden) // square, square, parts, -1)
    return by_part.transpose(1, 2).reshape(len(hidden) // square, -1)


def _joined(body: list[Instruction], parts: tuple[str, ...], given: Mapping[str, int]) -> Program:
    """A program whose result are these buffers beside each other."""
    if len(parts) == 1:
        return program(body, parts[0], given)
    return program([*body, ops.Join(parts, "joined")], "joined", given)


def _mergers(weights: Weights, config: VisionConfig) -> Program:
    """The merger of the last layer, and one with a norm for each of the deep layers."""
    wide = config.merge**2 * config.width
    body: list[Instruction] = []
    deep = (f"v.deepstack.{index}" for index in config.deep)
    names = [("mm.0", "mm.2", ""), *((f"{one}.fc1", f"{one}.fc2", f"{one}.norm") for one in deep)]
    rows = tuple(f"row {at}" for at in range(len(names)))
    for at, (first, second, normed) in enumerate(names):
        body.append(ops.GivenRows("merged", at * wide))
        if normed:
            one = tower_norm(weights, config, normed, wide, centred=True)
            body.append(norm(one, "merged", "merged"))
        body += merging_mlp(weights, config, (first, second), ("merged", wide), rows[at])
    return _joined(body, rows, {"merged": wide})


def _deep(index: int) -> str:
    return f"deep {index}"
