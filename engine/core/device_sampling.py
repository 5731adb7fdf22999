"""Draws of tokens on the device of the logits, so that one number for each answer leaves it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.core.generate import Generation
from kernels.draw import UNDECIDED, Draw, Drawer


def draw_on_device(
    drawer: Drawer | None, answers: Sequence[Generation], logits: Sequence[Tensor]
) -> list[int | None]:
    """The next token of each answer whose draw the device can make; None: the host draws.

    `logits` are those of a pass, [wanted, V] each; an answer whose prompt goes on has none.
    """
    found: list[int | None] = [None] * len(answers)
    if drawer is None:
        return found
    draws: dict[int, Draw] = {}
    for at, one in enumerate(answers):
        draw = one.device_draw() if len(logits[at]) == 1 else None
        if draw is not None:
            draws[at] = draw
    if draws:
        rows = torch.cat([logits[at] for at in draws])
        for at, token in zip(draws, drawer.draw(rows, list(draws.values())), strict=True):
            found[at] = None if token == UNDECIDED else token
    return found
