"""Recorded programs of encoders: whole texts, read in both directions, several in one pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import blocks
from kernels.backends import BACKENDS
from kernels.cpu import library, program, weights
from kernels.ops import Activation, Add, Attend, Embed, Gate, Instruction, Linear, Norm, Segment
from kernels.programs.interpreter import Interpreter
from kernels.programs.not_lowerable import NotLowerable
from kernels.programs.program import Program
from kernels.states.kv_pages import KVLayout
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

pytestmark = pytest.mark.usefixtures("instruction_set")

WIDTH, INNER, VOCABULARY, CONTEXT, SEPARATOR = 96, 160, 40, 600, 7
LENGTHS = (1, 40, 300, 16, 2, 257)


def matrix(rows: int, columns: int, random: torch.Generator, name: str) -> Weight:
    format = by_name(name)
    data = blocks.similar_scale_blocks(format, rows * columns // format.block, random)
    return weights.prepare(Weight(data.view(rows, -1), format, (rows, columns)))


def encoder(
    random: torch.Generator,
    format: str = "Q8_0",
    heads: tuple[int, int] = (3, 3),
    types: int = 2,
    gated: bool = False,
    rotated: bool = False,
    window: int = 0,
) -> Program:
    """Two layers as BERT has them, or with gates and RoPE as nomic-bert."""
    query, key = heads[0] * 32, heads[1] * 32

    def vector(width: int) -> Tensor:
        return torch.randn(width, generator=random)

    def products(x: str, **outs: int) -> Linear:
        made = tuple(matrix(rows, columns[x], random, format) for rows in outs.values())
        biases = tuple(vector(rows) for rows in outs.values()) if not gated else ()
        return Linear(x, made, tuple(outs), biases=biases)

    columns = {"x": WIDTH, "a": query, "g": INNER}
    positions = matrix(CONTEXT, WIDTH, random, "F32") if not rotated else None
    table = matrix(types, WIDTH, random, "F32") if types else None
    body: list[Instruction] = [
        Embed(
            matrix(VOCABULARY, WIDTH, random, format),
            "x",
            positions=positions,
            types=table,
            separator=SEPARATOR,
        ),
        Norm("x", vector(WIDTH), 1e-5, "x", True, vector(WIDTH)),
    ]
    for _ in range(2):
        norms = [Norm("x", vector(WIDTH), 1e-5, "x", True, vector(WIDTH)) for _ in "am"]
        body += [
            products("x", q=query, k=key, v=key),
            Attend(
                *("q", "k", "v", "a"),
                layer=0,
                head_width=32,
                query_norm=None,
                key_norm=None,
                epsilon=0.0,
                frequencies=torch.rand(16 if rotated else 0, generator=random),
                interleaved=False,
                rope_scale=1.0,
                scale=32**-0.5,
                window=window,
                causal=False,
            ),
            products("a", d=WIDTH),
            Add("x", "d"),
            norms[0],
            products("x", g=INNER, u=INNER) if gated else products("x", g=INNER),
            Gate("g", "u" if gated else "", Activation.SILU if gated else Activation.GELU, "g"),
            products("g", d=WIDTH),
            Add("x", "d"),
            norms[1],
        ]
    widths = {"x": WIDTH, "q": query, "k": key, "v": key, "a": query, "d": WIDTH, "g": INNER}
    widths |= {"u": INNER} if gated else {}
    head = Norm("x", vector(WIDTH), 1e-5, "out", True, vector(WIDTH))
    layout = KVLayout([], torch.float16)
    return Program(tuple(body), (2,), (head,), "x", "out", widths | {"out": WIDTH}, layout)


def texts(random: torch.Generator) -> list[Segment]:
    made = [torch.randint(VOCABULARY, (n,), generator=random).tolist() for n in LENGTHS]
    return [Segment(tokens, 0, ()) for tokens in made]


def recorded_of(made: Program) -> program.Recorded:
    return program.record(made)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"format": "F16", "types": 1},
        {"heads": (3, 1), "window": 20, "types": 0},
        {"gated": True, "rotated": True},
        {"format": "Q4_0", "heads": (6, 2), "rotated": True},
    ],
    ids=str,
)
def test_a_pass_of_texts_equals_its_ops_bit_for_bit(
    options: dict[str, object], random: torch.Generator
) -> None:
    made, batch = encoder(random, **options), texts(random)  # type: ignore[arg-type]
    wanted = Interpreter(made, BACKENDS["cpu"].ops).hidden(batch)
    assert wanted.isfinite().all()
    recorded = recorded_of(made)
    for threads in (1, 2, 3):
        library.set_threads(threads)
        assert torch.equal(recorded.hidden(batch), wanted)
    assert torch.equal(
        recorded.logits(wanted), Interpreter(made, BACKENDS["cpu"].ops).logits(wanted)
    )


def test_a_text_has_its_bits_whatever_is_read_with_it(random: torch.Generator) -> None:
    recorded, batch = recorded_of(encoder(random)), texts(random)
    wanted = [recorded.hidden([one]).clone() for one in batch]
    for order in (range(6), (5, 3, 1, 0, 2, 4), (2, 2, 5, 2)):
        some = [batch[at] for at in order]
        found = recorded.hidden(some).split([len(one.tokens) for one in some])
        assert all(torch.equal(each, wanted[at]) for each, at in zip(found, order, strict=True))


def test_only_tokens_behind_the_first_separator_are_of_the_second_type(
    random: torch.Generator,
) -> None:
    made = encoder(random)
    embed = replace(made, body=made.body[:1], layers=())
    recorded, plain = recorded_of(embed), Interpreter(embed, BACKENDS["cpu"].ops)
    batch = [
        Segment(tokens, 0, ())
        for tokens in ([SEPARATOR], [1, SEPARATOR, 2, SEPARATOR, 3], [4, 5], [SEPARATOR, 1], [1])
    ]
    wanted = plain.hidden(batch)
    for threads in (1, 2, 3):
        library.set_threads(threads)
        assert torch.equal(recorded.hidden(batch), wanted)


def test_a_model_without_a_head_gives_its_hidden_states(random: torch.Generator) -> None:
    made = replace(encoder(random), head=(), logits="x")
    recorded, batch = recorded_of(made), texts(random)
    wanted = Interpreter(made, BACKENDS["cpu"].ops).hidden(batch)
    assert torch.equal(recorded.step(batch), wanted)
    assert torch.equal(recorded.logits(recorded.hidden(batch)), wanted)


def test_a_text_is_read_as_a_whole(random: torch.Generator) -> None:
    recorded = recorded_of(encoder(random))
    with pytest.raises(ValueError, match="size"):
        recorded.hidden([Segment([1, 2, 3], 4, ())])


@pytest.mark.parametrize(
    "options", [{"cap": 5.0}, {"sinks": torch.ones(3)}, {"chunk": 256}], ids=str
)
def test_what_full_attention_lacks_is_interpreted(
    options: dict[str, object], random: torch.Generator
) -> None:
    made = encoder(random)
    body = tuple(
        replace(one, **options) if isinstance(one, Attend) else one  # type: ignore[arg-type]
        for one in made.body
    )
    with pytest.raises(NotLowerable):
        program.record(replace(made, body=body))
