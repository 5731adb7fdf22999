"""Embeddings of tokens, of their positions and of their types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.ops.hadamard import transform_of
from kernels.ops.hadamard_rotation import HadamardRotation, rotated_back
from kernels.ops.linear import LoraDelta, lora_term
from kernels.ops.running import Pass, Segment
from kernels.ops.table import Table, dtype_name
from kernels.weights.weight import Weight


@dataclass(frozen=True, slots=True, eq=False)
class Embed:
    """out = (rows of the table for the tokens, plus their LoRA terms) * scale.

    With a `rotation` the rows are rotated, and are rotated back first.
    Then adds the rows of learned position embeddings, if the model has them, and row 0 of the table
    of token types, or row 1 for the tokens after the first `separator` of their segment.
    """

    table: Weight  # [V, D]
    out: str
    scale: float = 1.0
    delta: LoraDelta | None = None
    positions: Weight | None = None  # [context, D]
    types: Weight | None = None  # [n, D]; with one row it is that of all tokens
    separator: int = -1  # a token id
    rotation: HadamardRotation | None = None

    def run(self, on: Pass) -> None:
        tokens, positions = on.rows_on(self.table.data.device)
        rows = checked_embed(on.ops, tokens, self.table)
        if self.rotation is not None:
            rows = rotated_back(rows, self.rotation, transform_of(on.ops))
        if self.delta is not None:
            rows = rows + lora_term(
                on.ops, checked_embed(on.ops, tokens, self.delta.down), self.delta
            )
        if self.scale != 1.0:
            rows = rows * self.scale
        if self.positions is not None:
            rows = rows + checked_embed(on.ops, positions, self.positions)
        if self.types is not None:
            rows = rows + checked_embed(on.ops, self._types(on.batch, self.types), self.types)
        on.set(self.out, rows)

    def _types(self, batch: Sequence[Segment], table: Weight) -> Tensor:
        """The type [T] i64 of each token: 1 after the first separator of its segment, else 0."""
        types: list[int] = []
        for segment in batch:
            tokens = list(segment.tokens)
            known = self.separator in tokens and table.shape[0] > 1
            first = tokens.index(self.separator) + 1 if known else len(tokens)
            types += [0] * first + [1] * (len(tokens) - first)
        return torch.tensor(types, device=table.data.device)


def checked_embed(ops: Table, ids: Tensor, weight: Weight) -> Tensor:
    """Rows of a table: ids [T] i64, weight [V, D] of any format → [T, D] f32.

    Raises IndexError for an id outside the table.
    """
    if len(weight.shape) != 2:
        raise ValueError(f"embed: the table is [V, D], got {list(weight.shape)}")
    if ids.dim() != 1 or ids.dtype != torch.int64:
        raise ValueError(f"embed: ids are int64 [T], got {dtype_name(ids)} {list(ids.shape)}")
    return ops.find("embed", weight.format.name)(ids, weight)


def embed(ids: Tensor, weight: Weight) -> Tensor:
    """y[t] = row ids[t] of weight."""
    return weight.rows(ids)
