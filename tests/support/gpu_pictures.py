"""Texts with pictures on a GPU backend: what is recorded against the same program, op by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from engine.models.forward_parts import STREAM
from engine.models.seeing import AXES, Seeing
from engine.state import sequence as state
from engine.state.pages import PagePool
from gpu_products import MakeRows, weight_of
from gpu_results import check_close
from kernels.backend.backend import Backend
from kernels.ops import Add, Attend, Embed, ImageRows, Instruction, Linear, Norm, Segment, Spans
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program, Recorded
from kernels.states.kv_pages import KVLayout, LayerShape
from kernels.weights.weight import Weight

BEFORE, IMAGE, AFTER = 3, 6, 2  # tokens of a prompt with one image, of two lines
TEXT = BEFORE + IMAGE + AFTER
WIDTH, HEAD = 64, 32
# RoPE of three axes with deep stacking, and spans that attend both ways.
KINDS = {
    "axes": Seeing(WIDTH, torch.arange(HEAD // 2, dtype=torch.int32) % AXES, deep=2),
    "whole spans": Seeing(WIDTH, spans=Spans.WHOLE),
    "windowed spans": Seeing(WIDTH, spans=Spans.WINDOWED),
}


def programs(
    backend: Backend, seeing: Seeing, rows: MakeRows, random: torch.Generator
) -> tuple[Program, Program]:
    """A program of two layers, of which one has a window, and the same one that reads images."""

    def matrix(count: int) -> Weight:
        return backend.prepare(weight_of("Q8_0", count, WIDTH, rows))

    def norm() -> Norm:
        weight = torch.rand(WIDTH, generator=random) + 0.5
        return Norm(STREAM, weight.to(backend.device), 1e-6, "n")

    frequencies = (1.0 / torch.arange(1, HEAD // 2 + 1)).to(backend.device)
    heads = HEAD, None, None, 1e-6, frequencies, False, 1.0, 1e-6  # of large scores
    windows = (0, 4)
    body: list[Instruction] = [Embed(matrix(WIDTH), STREAM)]
    sees: list[Instruction] = [*body, *seeing.after_embedding()]
    for index, window in enumerate(windows):
        layer = [
            norm(),
            Linear("n", (matrix(WIDTH), matrix(HEAD), matrix(HEAD)), ("q", "k", "v")),
            Attend("q", "k", "v", "y", index, *heads, window),
            Linear("y", (matrix(WIDTH),), ("d",)),
            Add(STREAM, "d", 1e-4),
        ]
        body += layer
        sees += seeing.layer(index, layer)
    head = Linear(STREAM, (matrix(WIDTH),), ("y",))
    layout = KVLayout(
        [LayerShape(1, HEAD, window, backend.name) for window in windows], torch.float16
    )
    widths = dict.fromkeys((STREAM, "n", "q", "y", "d"), WIDTH) | dict.fromkeys(("k", "v"), HEAD)
    plain = Program(tuple(body), (0,), (head,), STREAM, "y", widths, layout)
    return plain, replace(plain, body=tuple(sees))


class Sighted:
    """A program that reads images, recorded and op by op, and sequences with one."""

    def __init__(
        self, program: Program, seeing: Seeing, backend: Backend, recorded: Recorded, most: float
    ) -> None:
        """`most` is the normalized mean square error that a result may have."""
        layout = program.kv
        self.pool = PagePool(layout, {backend.name: backend.memory}, 1 << 30)
        self.seeing, self.recorded = seeing, recorded
        self.interpreter = Interpreter(program, backend.ops)
        self._most = most

    def empty(self) -> state.Sequence:
        """A sequence without tokens."""
        return state.Sequence(self.pool, 600)

    def prompt(self, sequence: state.Sequence) -> Segment:
        """The first tokens of a text, some of which are an image's."""
        sequence.reserve(TEXT)
        segment = sequence.segment([*range(4, 4 + BEFORE), *[0] * IMAGE, *range(9, 9 + AFTER)])
        span = range(BEFORE, BEFORE + IMAGE)
        place = torch.arange(IMAGE)
        positions = torch.arange(TEXT)[:, None].expand(-1, AXES).clone()
        positions[span] = BEFORE + torch.stack((0 * place, place // 3, place % 3), 1)
        positions[span.stop :] -= IMAGE - 3
        random = torch.Generator().manual_seed(5)
        images = ImageRows(
            100 * torch.randn(IMAGE, self.seeing.width * (1 + self.seeing.deep), generator=random),
            torch.arange(span.start, span.stop),
            None if self.seeing.axes is None else positions,
            [span] if self.seeing.spans else (),
        )
        images.check(TEXT)
        return replace(segment, images=images)

    def sequence(self) -> state.Sequence:
        """A sequence that has read the prompt."""
        made = self.empty()
        segment = self.prompt(made)
        self.interpreter.hidden([segment])
        made.commit(list(segment.tokens))
        return made

    def next(self, sequence: state.Sequence, token: int) -> Segment:
        """One more token, whose RoPE positions are less than its place in the text."""
        sequence.reserve(1)
        segment = sequence.segment([token])
        if self.seeing.axes is None:
            return segment
        place = torch.full((1, AXES), segment.position - (IMAGE - 3))
        return replace(segment, images=ImageRows(positions=place))

    def check_prompt(self) -> None:
        """A prompt as the backend reads it has the logits of the interpreter's."""
        found, wanted = (
            run.step([self.prompt(self.empty())]) for run in (self.recorded, self.interpreter)
        )
        check_close(found, wanted, self._most)

    def check_step(self, batch: Sequence[Segment]) -> None:
        """A recorded step has the logits of the interpreter's."""
        wanted = self.interpreter.step(batch)
        check_close(self.recorded.step(batch), wanted, self._most)

    def check_steps(self, count: int) -> None:
        """So many steps after an image, beside a text without one, as the interpreter runs them."""
        seen, other = self.sequence(), self.empty()
        other.reserve(count)
        for token in range(7, 7 + count):
            self.check_step([self.next(seen, token), other.segment([token])])
            seen.commit([token])
            other.commit([token])


Record = Callable[[Program], Recorded]


def sighted(
    backend: Backend,
    kind: str,
    rows: MakeRows,
    random: torch.Generator,
    record: Record,
    most: float,
) -> tuple[Sighted, Recorded]:
    """A program that reads images in this way, and the recorded one that does not."""
    plain, sees = programs(backend, KINDS[kind], rows, random)
    return Sighted(sees, KINDS[kind], backend, record(sees), most), record(plain)
