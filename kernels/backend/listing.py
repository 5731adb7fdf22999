"""Listing of a program: its instructions as aligned text, and the operations it is lowered to.

A layer of each kind is printed once: the layers of a kind have equal buffers, weight formats, shapes
and options, and may differ in fractions. An instruction is described by the fields of its class, so
that a new one needs nothing here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import partial
from itertools import groupby, pairwise, zip_longest
from typing import Any

from torch import Tensor

from kernels.backend.backend import Backend
from kernels.backend.pipeline import split
from kernels.backend.placement import Placement
from kernels.ops import Embed, Experts, Instruction
from kernels.programs.program import Program
from kernels.weights.weight import Weight

WIDTH = 110  # columns of a line
_MOST_COLUMNS = (18, 34, 32)  # of name, buffers and weights; the options have the others
_SPACE = "\N{NO-BREAK SPACE}"  # within an item, which is not broken over lines
_PLACES = ("layer", "offloaded_layer", "upcoming")  # fields that differ in all layers
_NUMBERS = ("start",)  # fields that may differ in layers of one kind, as fractions may


@dataclass(frozen=True, slots=True)
class Line:
    """An instruction or a lowered operation in words, each item as "name=value"."""

    name: str
    buffers: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    options: tuple[str, ...] = ()  # that are not the default
    numbers: dict[str, str] = field(
        default_factory=dict[str, str]
    )  # may differ in layers of a kind
    places: tuple[str, ...] = ()  # options that differ in all layers
    once: bool = False  # an operation that runs once in a pass, for all layers

    @property
    def kind(self) -> tuple[object, ...]:
        """What it has in common with its like in other layers of the kind."""
        return self.name, self.buffers, self.weights, self.options, tuple(self.numbers)


Lowered = Callable[[Program], Sequence[Line]]  # the operations of a program


@dataclass(frozen=True, slots=True)
class _Section:
    """A part of a program, and what is said of the layers that are like it."""

    title: str
    program: Program
    lines: Sequence[Line]
    layers: Sequence[int] = ()  # of this kind
    like_it: str = ""


def placed_text(
    program: Program, placement: Placement, refused: Mapping[str, Collection[str]]
) -> str:
    """A program as text, each stage with the form its backend lowers it to; see `pipeline.record`."""
    backends = {one.name: one for one in placement.backends}
    stages = split(program, placement.embedding.name)
    texts: list[str] = []
    first = 0  # number of the first layer of a stage
    for stage in stages:
        backend = backends[stage.backend]
        texts += [f"on {backend.words}"] if len(stages) > 1 else []
        lowered = partial(_lowered, backend, refused.get(backend.name, ()))
        whole = lowered(stage.program)
        texts.append(program_text(stage.program, lowered if whole else None, first))
        texts += [] if whole else _wrapped(_unknown_words(backend), "")
        first += len(stage.program.layers)
    return "\n\n".join(texts)


def _lowered(backend: Backend, refused: Collection[str], program: Program) -> Sequence[Line]:
    """The operations that a backend lowers a program to, if it can name them."""
    operations = backend.kernels.get(("operations", "F32"))
    return operations(backend.record(program, refused)) if operations else ()


def _unknown_words(backend: Backend) -> str:
    """Why there are no operations."""
    if backend.records_programs() and ("operations", "F32") not in backend.kernels:
        return f"What {backend.words} lowers this to is known only to the device."
    return f"{backend.words} runs this instruction by instruction."


def program_text(program: Program, lowered: Lowered | None = None, first: int = 0) -> str:
    """A program as text, with the lowered form of each section below it.

    Its layers are numbered from `first`.
    """
    sections = _sections(program, first)
    operations = _divided(program, sections, lowered) if lowered else [()] * len(sections)
    columns = _columns([one for section in sections for one in section.lines])
    narrow = _columns([one for some in operations for one in some])
    widths = (f"{unbroken(name)}{_SPACE}[{width}]" for name, width in program.widths.items())
    out = _wrapped(f"buffers [columns]: {', '.join(widths)}", "")
    for section, some in zip(sections, operations, strict=True):
        if section.lines or some:
            out += ["", section.title, *_table(section.lines, columns, "  ")]
        if some:
            out += ["  lowered:", *_table(some, narrow, "    ")]
        out += _wrapped(section.like_it, "  ") if section.like_it else []
    return "\n".join(out).replace(_SPACE, " ")


def _divided(
    program: Program, sections: Sequence[_Section], lowered: Lowered
) -> list[Sequence[Line]]:
    """The operations of each section of a program, by how many it has if it is lowered alone.

    If operations are fused across layers, all are those of the first section.
    """
    every = lowered(program)
    counts = [sum(not one.once for one in lowered(section.program)) for section in sections]
    of_layers = {at: number for number, one in enumerate(sections) for at in one.layers}
    order = [0, *(of_layers[at] for at in range(len(program.layers))), len(sections) - 1]
    found: dict[int, Sequence[Line]] = {}
    at = sum(one.once for one in every)
    found[0] = every[: at + counts[0]]
    for number in order:
        found.setdefault(number, every[at : at + counts[number]])
        at += counts[number]
    if at != len(every):
        return [every, *[()] * (len(sections) - 1)]
    return [found[number] for number in range(len(sections))]


def instruction_line(one: Instruction, program: Program) -> Line:
    """An instruction in words, by the fields of its class."""
    values = {item.name: getattr(one, item.name) for item in fields(one)}
    defaults = {item.name: item.default for item in fields(one)}
    said = {name: value for name, value in values.items() if not _is(value, defaults[name])}
    buffers = {name: some for name, value in said.items() if (some := _names(value, program))}
    others = {name: value for name, value in said.items() if name not in buffers}
    weights = {name: value for name, value in others.items() if _has_values(value)}
    options = {name: value for name, value in others.items() if name not in weights}
    places = {name: value for name, value in options.items() if name in _PLACES}
    numbers = {
        name: value
        for name, value in options.items()
        if isinstance(value, float) or name in _NUMBERS
    }
    return Line(
        type(one).__name__,
        _items(buffers),
        _items(weights),
        _items({name: options[name] for name in options if name not in {*places, *numbers}}),
        {name: _words(value) for name, value in numbers.items()},
        _items(places),
    )


def bytes_read(one: Instruction, tokens: int) -> int:
    """Bytes of the weights that an instruction reads for some tokens; of experts the most."""
    size = sum(weight.size_bytes for weight in _weights(one))
    if isinstance(one, Embed):
        return size // one.table.shape[0] * tokens
    if isinstance(one, Experts):
        return size * min(one.routing.chosen * tokens, len(one.gates)) // len(one.gates)
    return size


def _sections(program: Program, first: int) -> list[_Section]:
    """The beginning, the first layer of each kind, and the head."""
    starts = [*program.layers, len(program.body)]
    layers = [program.body[a:b] for a, b in pairwise(starts)]
    lines = [[instruction_line(one, program) for one in layer] for layer in layers]
    kinds: dict[tuple[object, ...], list[int]] = {}
    for number, some in enumerate(lines):
        kinds.setdefault(tuple(one.kind for one in some), []).append(number)
    beginning = program.body[: starts[0]]
    alone = replace(program, body=beginning, layers=(), head=())
    made = [_Section("beginning", alone, [instruction_line(one, program) for one in beginning])]
    for numbers in kinds.values():
        at = numbers[0]
        alone = replace(program, body=layers[at], layers=(0,), head=())
        like_it = _like_it(numbers, lines, first)
        made.append(_Section(f"layer {first + at}", alone, lines[at], numbers, like_it))
    alone = replace(program, body=(), layers=())
    return [
        *made,
        _Section("head", alone, [instruction_line(one, program) for one in program.head]),
    ]


def _like_it(numbers: Sequence[int], lines: Sequence[Sequence[Line]], start: int) -> str:
    """A sentence on the layers of a kind beside the first: "layers 1-27 as layer 0"."""
    first, *others = numbers
    if not others:
        return ""
    runs = [
        [start + one for one in group]
        for _, group in groupby(others, lambda one: one - others.index(one))
    ]
    ranges = (str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    differing = {
        name
        for number in others
        for one, other in zip(lines[first], lines[number], strict=True)
        for name in one.numbers
        if one.numbers[name] != other.numbers[name]
    }
    but = f", with other values of {', '.join(sorted(differing))}" if differing else ""
    layers = "layer" if len(others) == 1 else "layers"
    return f"{layers} {', '.join(ranges)} as layer {start + first}{but}"


# --- values --------------------------------------------------------------------------------------


def _is(value: object, default: object) -> bool:
    """Whether a value is the default of its field; tensors are not compared."""
    if default is MISSING:
        return value in ("", ()) if isinstance(value, str | tuple) else value is None
    return value is default or (type(value) is type(default) and bool(value == default))


def _names(value: object, program: Program) -> str:
    """The buffers that a value names; "" if it names none."""
    names = value if isinstance(value, tuple) else (value,)
    known = [name for name in names if isinstance(name, str) and name in program.widths]
    return ", ".join(map(unbroken, known)) if len(known) == len(names) else ""


def _has_values(value: object) -> bool:
    """Whether a value holds weights or tensors."""
    return next(_tensors(value), None) is not None


def _tensors(value: object) -> Iterator[Weight | Tensor]:
    """The weights and tensors in a value, its parts included."""
    if isinstance(value, Weight | Tensor):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _tensors(one)
    elif is_dataclass(value):
        for item in fields(value):
            yield from _tensors(getattr(value, item.name))


def _weights(one: Instruction) -> Iterator[Weight]:
    return (value for value in _tensors(one) if isinstance(value, Weight))


def _words(value: Any) -> str:
    """A value in words: a weight by its format and shape, equal ones counted."""
    match value:
        case Weight():
            return f"{value.format.name}[{'x'.join(map(str, value.shape))}]"
        case Tensor():
            kind = str(value.dtype).removeprefix("torch.").replace("float", "f")
            return f"{kind}[{'x'.join(map(str, value.shape))}]"
        case Enum():
            return str(value.value)
        case float():
            return f"{value:.6g}"
        case bool() | int() | str() | None:
            return str(value)
        case tuple():
            runs = [(words, len(list(group))) for words, group in groupby(map(_words, value))]
            return ", ".join(words if count == 1 else f"{count}*{words}" for words, count in runs)
        case _ if is_dataclass(value):
            parts = {item.name: (getattr(value, item.name), item.default) for item in fields(value)}
            said = (
                f"{name}={_words(one)}" for name, (one, no) in parts.items() if not _is(one, no)
            )
            return f"{type(value).__name__}({', '.join(said)})"
        case _:
            return type(value).__name__


# --- text ----------------------------------------------------------------------------------------


def _items(values: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(f"{name}={_words(value)}" for name, value in values.items())


def _cells(one: Line) -> tuple[str, str, str, str]:
    """The columns of a line, each of items with a space between them."""

    options = (*one.places, *one.options, *_items(one.numbers))
    return one.name, " ".join(one.buffers), " ".join(one.weights), " ".join(options)


def _columns(lines: Sequence[Line]) -> tuple[int, ...]:
    """The widths of the first three columns."""
    cells = [_cells(one)[:3] for one in lines] or [("", "", "")]
    longest = (max(map(len, column)) for column in zip(*cells, strict=True))
    return tuple(map(min, longest, _MOST_COLUMNS))


def _table(lines: Sequence[Line], columns: Sequence[int], indent: str) -> list[str]:
    """Lines in columns; a cell that is too long goes on in the next line."""
    widths = (*columns, WIDTH - len(indent) - sum(columns) - 2 * len(columns))
    out: list[str] = []
    for one in lines:
        cells = zip(_cells(one), widths, strict=True)
        parts = [textwrap.wrap(cell, width, break_on_hyphens=False) for cell, width in cells]
        for row in zip_longest(*parts, fillvalue=""):
            padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            out.append((indent + "  ".join(padded)).rstrip())
    return out


def unbroken(text: str) -> str:
    """A text that is not broken over lines."""
    return text.replace(" ", _SPACE)


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
