"""Recorded programs with states of fixed size and operations on heads: bits of the ops, in any batch.

A page's state after a pass is that of the ops too, and the state before the pass stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import blocks
import paging
from kernels.backends import BACKENDS
from kernels.cpu import library, program, weights
from kernels.ops import (
    Activation,
    Add,
    AddRows,
    AddToStreams,
    Attend,
    Columns,
    Embed,
    Gate,
    GaussianTopK,
    HeadGate,
    HeadLinear,
    HeadNorm,
    Instruction,
    Join,
    Linear,
    LoraDelta,
    MatchMagnitude,
    MixStreams,
    Multiply,
    Norm,
    PositionScale,
    Recurrence,
    Scale,
    ScaleChannels,
    Segment,
    ShortConv,
    Xielu,
)
from kernels.ops.hadamard_rotation import HadamardRotation
from kernels.programs.interpreter import Interpreter
from kernels.programs.not_lowerable import NotLowerable
from kernels.programs.program import Program
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, PageTable
from kernels.states.layer_state import AT_END, ConvState, LayerShape, RecurrentState, SharedState
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

pytestmark = [pytest.mark.sweep, pytest.mark.usefixtures("instruction_set")]

WIDTH, VOCABULARY = 96, 40
HEADS, KEY_HEADS, KEY, VALUE = 4, 2, 24, 40  # of the recurrence
ATTENDING, KV_HEADS, HEAD = 4, 2, 32

LAYERS = [
    ConvState(WIDTH, 3),
    ConvState(HEADS * VALUE, 4),
    RecurrentState(HEADS, KEY, VALUE),
    LayerShape(KV_HEADS, HEAD),
    LayerShape(KV_HEADS, HEAD, 300),
    SharedState(3),
    ConvState(HEADS * VALUE, 4),
    RecurrentState(HEADS, KEY, VALUE),
]


class Rows:
    """A table in memory, which notes how often rows are read."""

    def __init__(self, values: Tensor) -> None:
        self.values, self.reads = values, 0

    def rows(self, ids: Tensor) -> Tensor:
        self.reads += 1
        return self.values[ids]


class Parts:
    """Seeded weights, and the instructions made of them."""

    def __init__(self, random: torch.Generator) -> None:
        self.random = random

    def values(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.random)

    def matrix(self, rows: int, columns: int, name: str = "F32") -> Weight:
        format = by_name(name)
        data = blocks.similar_scale_blocks(format, rows * columns // format.block, self.random)
        return weights.prepare(Weight(data.view(rows, -1), format, (rows, columns)))

    def norm(self, out: str = "n") -> Norm:
        return Norm("x", self.values(WIDTH), 1e-5, out)

    def product(self, x: str, outs: dict[str, int], columns: int, name: str = "F32") -> Linear:
        matrices = tuple(self.matrix(rows, columns, name) for rows in outs.values())
        return Linear(x, matrices, tuple(outs))

    def convolved(self) -> list[Instruction]:
        """A gated short convolution, as in LFM2."""
        inputs = dict.fromkeys(("b", "c", "w"), WIDTH)
        return [
            self.norm(),
            self.product("n", inputs, WIDTH, "Q8_0"),
            Multiply("w", "b"),
            ShortConv("w", self.values(WIDTH, 3), 0),
            Multiply("w", "c"),
            self.product("w", {"d": WIDTH}, WIDTH, "Q4_0"),
            Add("x", "d"),
        ]

    def recurrent(self, layer: int = 1, **more: Any) -> list[Instruction]:
        """A gated delta net."""
        keys, values = KEY_HEADS * KEY, HEADS * VALUE
        outs = {"q": keys, "k": keys, "v": values, "decay": HEADS, "strength": HEADS, "g": values}
        options: dict[str, Any] = {"epsilon": 1e-6, "strength": "strength", **more}
        rate, bias = -self.values(HEADS).abs(), self.values(HEADS)
        activation = Activation.SILU
        return [
            self.norm(),
            self.product("n", outs, WIDTH),
            ShortConv("v", self.values(values, 4), layer, self.values(values), activation),
            Recurrence(
                *"qkv",
                decay="decay",
                out="r",
                layer=layer + 1,
                rate=rate,
                decay_bias=bias,
                scale=0.4,
                **options,
            ),
            HeadNorm("r", self.values(HEADS, VALUE), 1e-5, centred=False),
            Gate("g", "r", activation, "g"),
            self.product("g", {"d": WIDTH}, values, "Q8_0"),
            Add("x", "d", 0.5),
        ]

    def attending(self, layer: int, window: int, **more: Any) -> list[Instruction]:
        """Attention, gated by channel or by head."""
        widths = {"aq": ATTENDING * HEAD, "ak": KV_HEADS * HEAD, "av": KV_HEADS * HEAD}
        options: dict[str, Any] = {
            "k": "ak",
            "v": "av",
            "query_norm": self.values(HEAD),
            "key_norm": self.values(HEAD),
            **more,
        }
        if not options["k"]:
            widths, options["key_norm"] = {"aq": ATTENDING * HEAD}, None
        return [
            self.norm(),
            self.product("n", {**widths, "o": ATTENDING * HEAD, "h": ATTENDING}, WIDTH),
            PositionScale("aq", 0.1, 70.0, 1.0),
            Attend(
                "aq",
                out="a",
                layer=layer,
                head_width=HEAD,
                epsilon=1e-5,
                frequencies=torch.rand(HEAD // 4, generator=self.random),
                interleaved=False,
                rope_scale=1.0,
                scale=HEAD**-0.5,
                window=window,
                **options,
            ),
            Gate("o", "a", Activation.SIGMOID, "a"),
            HeadGate("a", "h", Activation.SIGMOID),
            self.product("a", {"d": WIDTH}, ATTENDING * HEAD),
            Add("x", "d"),
        ]

    def with_rows(self) -> list[Instruction]:
        """Embeddings for layers, of which a layer reads some columns, as in Gemma 4."""
        table = Rows(self.values(VOCABULARY, 144))
        return [
            self.product("x", {"joined": 144}, WIDTH, "Q8_0"),
            AddRows("joined", table, 3.0),
            AddRows("joined", Rows(self.values(VOCABULARY, 144))),
            Columns("joined", 48, 48, "part"),
            self.product("part", {"d": WIDTH}, 48),
            Add("x", "d"),
            AddRows("x", Rows(self.values(VOCABULARY, WIDTH)), 0.5),
        ]

    def by_head(self, name: str) -> list[Instruction]:
        """Products of single heads, joined with columns, as in latent attention."""
        matrices = tuple(self.matrix(32, 32, name) for _ in range(3))
        return [
            self.norm(),
            Columns("n", 5, 48, "part"),
            Scale("part", 0.7),
            HeadLinear("n", matrices, "long"),
            HeadLinear("long", matrices, "heads"),
            Join(("part", "heads"), "joined", 3),
            Xielu("joined", 0.8, 0.4, 0.5, -1e-6),
            self.product("joined", {"d": WIDTH}, 144),
            Add("x", "d"),
        ]

    def streamed(self) -> list[Instruction]:
        """Three residual streams of 48 channels, as in Gemma 3n."""
        parts = dict.fromkeys(("part", "second", "third"), 48)
        return [
            self.norm(),
            self.product("n", {**parts, "mixing": 9, "shares": 3}, WIDTH),
            MatchMagnitude("second", "part", 1e-5),
            Join(("part", "second", "third"), "joined"),
            MixStreams("joined", "mixing"),
            Columns("joined", 48, 48, "part"),
            AddToStreams("joined", "part", "shares"),
            ScaleChannels("part", self.values(48)),
            AddToStreams("joined", "part", first=1),
            GaussianTopK("joined", 0.3),
            self.product("joined", {"d": WIDTH}, 144),
            Add("x", "d"),
        ]

    def rotated(self, name: str) -> list[Instruction]:
        """Matrices whose inputs are rotated, in one way or in several, as in Bonsai 2."""
        signs = self.values(HEADS * VALUE).sign()
        one, other = HadamardRotation(16, signs[:WIDTH]), HadamardRotation(32, heads=(3, 2))
        inner, wide = HadamardRotation(32, signs), HEADS * VALUE
        outs = {"w": WIDTH, "b": WIDTH, "c": WIDTH}
        three = self.product("n", outs, WIDTH, name)
        gates = replace(
            self.product("n", {"g": wide, "v": wide}, WIDTH, name), rotations=(one, one)
        )
        return [
            self.norm(),
            gates,
            Gate("g", "v", Activation.SILU, "g"),
            replace(self.product("g", {"d": WIDTH}, wide, name), rotations=(inner,)),
            Add("x", "d"),
            self.norm(),
            replace(
                three,
                rotations=(one, None, other),
                biases=(self.values(WIDTH), None, None),
                scales=(0.5, 1.0, 2.0),
            ),
            Multiply("w", "b"),
            Multiply("w", "c"),
            self.product("w", {"d": WIDTH}, WIDTH, name),
            Add("x", "d"),
        ]

    def rotated_program(self) -> Program:
        made = self.program(self.rotated("Q8_0"), self.rotated("F32"))
        first, *others = made.body
        assert isinstance(first, Embed)
        signs = HadamardRotation(32, self.values(WIDTH).sign())
        return replace(made, body=(replace(first, rotation=signs, scale=0.7), *others))

    def program(self, *blocks_: list[Instruction]) -> Program:
        embedding = Embed(self.matrix(VOCABULARY, WIDTH), "x")
        body = (embedding, *(one for block in blocks_ for one in block))
        widths = dict.fromkeys(("x", "n", "d", "b", "c", "w", "long", "heads"), WIDTH)
        widths |= {"q": KEY_HEADS * KEY, "k": KEY_HEADS * KEY, "decay": HEADS, "strength": HEADS}
        widths |= dict.fromkeys("vgr", HEADS * VALUE) | {"part": 48, "joined": 144}
        widths |= dict.fromkeys(("aq", "o", "a"), ATTENDING * HEAD) | {"h": ATTENDING}
        widths |= {"second": 48, "third": 48, "mixing": 9, "shares": 3}
        widths |= dict.fromkeys(("ak", "av"), KV_HEADS * HEAD) | {"logits": VOCABULARY}
        layout = KVLayout(LAYERS, torch.float32)
        return Program(body, (0,), (), "x", "logits", widths, layout)


def programs(random: torch.Generator) -> dict[str, Program]:
    parts = Parts(random)
    sinks = parts.values(ATTENDING)
    return {
        "convolved": parts.program(parts.convolved()),
        "recurrent": parts.program(parts.recurrent(), parts.recurrent(6, tiled=True)),
        "state_space": parts.program(
            parts.recurrent(strength="", corrected=False, epsilon=-1.0, skip=parts.values(HEADS))
        ),
        "attending": parts.program(
            parts.attending(3, 0, sinks=sinks),
            parts.attending(4, 300, norms_rotated=True),
            parts.attending(5, 0, k="", v=""),
        ),
        "by_head": parts.program(parts.by_head("Q8_0"), parts.by_head("F32")),
        "with_rows": parts.program(parts.with_rows(), parts.attending(4, 300)),
        "streamed": parts.program(parts.streamed()),
        "rotated": parts.rotated_program(),
        "mixed": parts.program(parts.convolved(), parts.recurrent(), parts.attending(4, 300)),
    }


NAMES = (
    *("convolved", "recurrent", "state_space", "attending", "by_head"),
    *("with_rows", "streamed", "rotated", "mixed"),
)
THREADS = pytest.mark.parametrize("threads", [1, 2, 3])


class Pages:
    """A sequence in pages, whose state after a pass takes the place of the one before."""

    def __init__(self, layout: KVLayout, tokens: Sequence[int]) -> None:
        self.tokens, self.done = tokens, 0
        self.layout = layout
        self.tables = paging.tables(layout, len(tokens) + PAGE_TOKENS)

    def segment(self, count: int) -> Segment:
        return Segment(self.tokens[self.done : self.done + count], self.done, self.tables)

    def commit(self, count: int) -> None:
        group = self.layout.windows.index(AT_END)
        current, inside = divmod(self.done, PAGE_TOKENS)
        if inside:
            self.tables[group].remove(current)
            size = self.layout.page_bytes[group]
            page = torch.full((size,), paging.POISON, dtype=torch.uint8)
            self.tables[group].append(page)
        self.done += count


def some_tokens(count: int, random: torch.Generator) -> list[int]:
    return torch.randint(VOCABULARY, (count,), generator=random).tolist()


def bytes_of(tables: Sequence[PageTable]) -> list[Tensor]:
    return [page.clone() for table in tables for page in table.pages if page is not None]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 40, 600])
def test_a_pass_equals_its_ops_bit_for_bit(name: str, count: int, random: torch.Generator) -> None:
    made, tokens = programs(random)[name], some_tokens(count, random)
    found, wanted = Pages(made.kv, tokens), Pages(made.kv, tokens)
    recorded = program.record(made)
    hidden = recorded.hidden([found.segment(count)])
    assert hidden.isfinite().all()
    expected = Interpreter(made, BACKENDS["cpu"].ops).hidden([wanted.segment(count)])
    assert torch.equal(hidden, expected)
    assert all(map(torch.equal, bytes_of(found.tables), bytes_of(wanted.tables)))


@pytest.mark.parametrize("name", NAMES)
@THREADS
def test_pieces_give_the_bits_of_the_whole(
    name: str, threads: int, random: torch.Generator
) -> None:
    library.set_threads(threads)
    made, tokens = programs(random)[name], some_tokens(620, random)
    recorded = program.record(made)
    wanted = recorded.hidden([Pages(made.kv, tokens).segment(620)])
    cut = Pages(made.kv, tokens)
    found: list[Tensor] = []
    ends = [1, 2, 5, 37, 250, 255, 256, 257, 300, 512, 513, 619, 620]
    for start, end in zip([0, *ends], ends, strict=False):
        found.append(recorded.hidden([cut.segment(end - start)]))
        cut.commit(end - start)
    assert torch.equal(torch.cat(found), wanted)


@pytest.mark.parametrize("name", NAMES)
@THREADS
def test_segments_do_not_change_each_other(
    name: str, threads: int, random: torch.Generator
) -> None:
    library.set_threads(threads)
    made = programs(random)[name]
    recorded = program.record(made)
    sequences = [Pages(made.kv, some_tokens(count, random)) for count in (330, 90, 3)]
    found: list[list[Tensor]] = [[] for _ in sequences]
    for counts in ([260, 0, 1], [50, 60, 0], [1, 1, 1], [10, 2, 1]):
        some = [(at, count) for at, count in enumerate(counts) if count]
        hidden = recorded.hidden([sequences[at].segment(count) for at, count in some])
        for (at, count), rows in zip(some, hidden.split([count for _, count in some]), strict=True):
            found[at].append(rows)
            sequences[at].commit(count)
    for one, parts in zip(sequences, found, strict=True):
        alone = Pages(made.kv, one.tokens)
        assert torch.equal(torch.cat(parts), recorded.hidden([alone.segment(one.done)]))


@pytest.mark.parametrize("name", ["mixed", "rotated"])
@pytest.mark.parametrize("count", [1, 40])
def test_adapters_apply_to_hybrids(name: str, count: int, random: torch.Generator) -> None:
    parts = Parts(random)
    made, tokens = programs(random)[name], some_tokens(count, random)

    def changed(one: Instruction) -> Instruction:
        if isinstance(one, Embed):
            low = parts.matrix(VOCABULARY, 8), parts.matrix(WIDTH, 8), torch.ones(8)
            return replace(one, delta=LoraDelta(*low))
        if not isinstance(one, Linear):
            return one
        deltas = tuple(
            LoraDelta(parts.matrix(8, each.columns), parts.matrix(each.shape[0], 8), torch.ones(8))
            for each in one.weights
        )
        return replace(one, deltas=deltas)

    adapted = replace(made, body=tuple(map(changed, made.body)))
    found = [
        run.hidden([Pages(made.kv, tokens).segment(count)])
        for run in (program.record(adapted), Interpreter(adapted, BACKENDS["cpu"].ops))
    ]
    assert torch.equal(*found)
    plain = program.record(made)
    assert not torch.equal(plain.hidden([Pages(made.kv, tokens).segment(count)]), found[0])


def test_the_state_before_a_pass_stays(random: torch.Generator) -> None:
    made = programs(random)["mixed"]
    recorded = program.record(made)
    one = Pages(made.kv, some_tokens(300, random))
    recorded.hidden([one.segment(100)])
    one.commit(100)
    group = made.kv.windows.index(AT_END)
    before = one.tables[group].pages[0]
    assert before is not None
    kept, first = before.clone(), recorded.hidden([one.segment(200)])
    assert torch.equal(before, kept)
    assert torch.equal(recorded.hidden([one.segment(200)]), first)


def test_a_missing_page_of_a_state_is_noticed(random: torch.Generator) -> None:
    made = programs(random)["recurrent"]
    recorded = program.record(made)
    group = made.kv.windows.index(AT_END)
    one = Pages(made.kv, some_tokens(300, random))
    one.tables[group].set(1, None)
    with pytest.raises(AssertionError):
        recorded.hidden([one.segment(300)])


def test_rows_of_tables_are_read_once_a_pass(random: torch.Generator) -> None:
    made, tokens = programs(random)["with_rows"], some_tokens(40, random)
    made = replace(
        made, head=(Scale("x", 1.0), Linear("x", (Parts(random).matrix(40, WIDTH),), ("logits",)))
    )
    recorded = program.record(made)
    tables = [one.table for one in made.body if isinstance(one, AddRows)]
    assert all(isinstance(one, Rows) for one in tables)
    one = Pages(made.kv, tokens)
    recorded.logits(recorded.hidden([one.segment(40)]))
    assert [one.reads for one in tables] == [1, 1, 1]  # type: ignore[attr-defined]
    recorded.step([one.segment(40)])
    assert [one.reads for one in tables] == [2, 2, 2]  # type: ignore[attr-defined]


def test_rows_of_tables_in_a_head_are_interpreted(random: torch.Generator) -> None:
    made = programs(random)["with_rows"]
    last = AddRows("x", Rows(torch.zeros(VOCABULARY, WIDTH)))
    with pytest.raises(NotLowerable):
        program.record(replace(made, head=(last,)))


def test_what_native_operations_lack_is_interpreted(random: torch.Generator) -> None:
    parts = Parts(random)
    *before, last = parts.attending(3, 0)
    made = parts.program([*before, last])
    program.record(made)
    changed = [replace(one, chunk=256) if isinstance(one, Attend) else one for one in made.body]
    with pytest.raises(NotLowerable):
        program.record(replace(made, body=tuple(changed)))
