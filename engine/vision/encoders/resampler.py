"""resampler: MiniCPM-V and MiniCPM-o from 2.6 to 4.5: learned queries attend to a SigLIP tower's rows.

Keys know the row and column of their patch by sines and cosines. The queries are rows of the same
segment as the patches, where every row attends to every other: a channel more of each head makes
the scores of the queries' own keys so small that they weigh nothing.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from engine.errors import ModelFileError
from engine.gguf.values import DAMAGED
from engine.models.builder import projection
from engine.models.forward_parts import STREAM, norm, products
from engine.models.parts import Norm, Projection
from engine.models.rope import no_rope
from engine.models.weights import Weights
from engine.vision.encoder import Stage, Wiring
from engine.vision.encoders.siglip import siglip_tower
from engine.vision.patches import Grid, coordinates, nearest_positions
from engine.vision.projector_file import VisionConfig
from engine.vision.tower import PATCHES, no_deltas, program, square_positions, tower_norm
from kernels import ops
from kernels.ops import Instruction
from kernels.programs.program import Program

_HEAD = 128  # channels of a head
_MORE = 4  # channels that each head has besides
_UNSEEN = -1e6  # in a key, once its query's channel is 1: weighs 0 after the softmax
_BASE = 10_000.0
_NAME = "resampler"


def build(weights: Weights, config: VisionConfig) -> Wiring:
    """Wire the parts; raises ModelFileError naming a tensor that is missing or misshapen."""
    D, E = config.width, config.output
    if E % _HEAD:
        raise ModelFileError(
            f"The shape of queries, {[config.queries, E]}, is not whole heads of {_HEAD} channels.",
            DAMAGED,
        )
    weights.ignore(f"{_NAME}.pos_embed_k")  # is computed
    after = tower_norm(weights, config, f"{_NAME}.ln_post", E, centred=True)
    matrix = Projection(f"{_NAME}.proj.weight", weights.flat_matrix(f"{_NAME}.proj.weight", E, E))
    projector: list[Instruction] = [
        ops.GivenRows("attended"),
        products("attended", ((projection(weights, f"{_NAME}.attn.out", E, E), "out"),), no_deltas),
        norm(after, "out", "out"),
        products("out", ((matrix, "rows"),), no_deltas),
    ]
    queries = _queries(weights, config)
    return Wiring(
        config,
        program(siglip_tower(weights, config), STREAM, {PATCHES: config.pixels}),
        program(projector, "rows", {"attended": E}),
        merged=partial(_attended, count=len(queries)),
        positions=partial(nearest_positions, square_positions(weights, D)),
        stages=(Stage(_attention(weights, config), partial(_given, queries=queries, width=E)),),
    )


def _queries(weights: Weights, config: VisionConfig) -> Tensor:
    """The queries after their norm and product, by head and with a channel more: [n, H, C + 4]."""
    E, count = config.output, config.queries
    before = tower_norm(weights, config, f"{_NAME}.ln_q", E, centred=True)
    rows = weights.table(f"{_NAME}.query", count, E)
    normed = functional.layer_norm(rows, (E,), before.weight, before.bias, before.epsilon)
    matrix = weights.table(f"{_NAME}.attn.q.weight", E, E)
    made = functional.linear(normed, matrix, weights.vector(f"{_NAME}.attn.q.bias", E))
    by_head = functional.pad(made.view(count, -1, _HEAD), (0, _MORE))
    by_head[..., _HEAD] = 1.0
    return by_head


def _attention(weights: Weights, config: VisionConfig) -> Program:
    """From rows of patches, then of queries, to what each attends to."""
    D, E = config.width, config.output
    heads = E // _HEAD
    kernel = Projection(f"{_NAME}.kv.weight", weights.flat_matrix(f"{_NAME}.kv.weight", E, D))
    before: Norm = tower_norm(weights, config, f"{_NAME}.ln_kv", E, centred=True)
    key, value = (projection(weights, f"{_NAME}.attn.{one}", E, E) for one in ("k", "v"))
    attend = ops.Attend(
        q="queries",
        k="seen keys",
        v="seen values",
        out="mixed",
        layer=0,
        head_width=_HEAD + _MORE,
        query_norm=None,
        key_norm=None,
        epsilon=config.epsilon,
        frequencies=weights.beside(f"{_NAME}.attn.k", no_rope().frequencies),
        interleaved=False,
        rope_scale=1.0,
        scale=_HEAD**-0.5,
        causal=False,
    )
    body: list[Instruction] = [
        ops.GivenRows("patch"),
        products("patch", ((kernel, "kv"),), no_deltas),
        norm(before, "kv", "kv"),
        products("kv", ((value, "values"),), no_deltas),
        ops.GivenRows("kv", D, added=True),
        products("kv", ((key, "keys"),), no_deltas),
        ops.GivenRows("unseen", D + E),
        ops.Join(("keys", "unseen"), "seen keys", heads),
        ops.Join(("values", "unseen"), "seen values", heads),
        ops.GivenRows("queries", D + E + heads * _MORE),
        attend,
    ]
    given = {"patch": D, "unseen": heads * _MORE, "queries": heads * (_HEAD + _MORE)}
    return program(body, "mixed", given)


def _given(rows: Tensor, grid: Grid, queries: Tensor, width: int) -> Tensor:
    """Rows of the tower beside their positions, then those of the queries beside what hides them."""
    count, heads, _ = queries.shape
    unseen = queries.new_zeros(count, heads, _MORE)
    unseen[..., 0] = _UNSEEN
    patches = torch.cat((rows, _positions(grid, width).to(rows.device)), 1)
    hidden = torch.cat((unseen.flatten(1), queries.flatten(1)), 1)
    made = rows.new_zeros(len(rows) + count, patches.shape[1] + hidden.shape[1])
    made[: len(rows), : patches.shape[1]] = patches
    made[len(rows) :, patches.shape[1] :] = hidden
    return made


def _positions(grid: Grid, width: int) -> Tensor:
    """Sines, then cosines, of the column of each patch, then of its row: [T, width]."""
    quarter = width // 4
    frequencies = 1 / _BASE ** (torch.arange(quarter, dtype=torch.float32) / quarter)
    places = coordinates(grid).flip(1)[..., None] * frequencies
    return torch.cat((places.sin(), places.cos()), -1).flatten(1)


def _attended(rows: Tensor, grid: Grid, count: int) -> Tensor:
    """What the queries attend to, without the channels besides: [n, W]."""
    del grid
    return rows[-count:].view(count, -1, _HEAD + _MORE)[..., :_HEAD].flatten(1)
