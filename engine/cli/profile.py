"""Profile of a model: what `bench --profile` prints of the operations of a step and a chunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import torch

from engine.cli.options import Options
from engine.cli.output import print_json
from engine.cli.program import loaded, program_of
from engine.core.session import Session
from engine.errors import RequestError
from engine.loading.loader import LoadedModel
from kernels.backend.timing import Timed, operation_times, pass_seconds
from kernels.programs.program import Program

_DECODE_REPETITIONS = 10  # for each of -r: a step takes milliseconds
_NAME_COLUMNS = 60


@dataclass(frozen=True, slots=True)
class _Pass:
    """The operations of a pass, and how long it takes as a whole."""

    name: str
    tokens: int
    position: int
    operations: Sequence[Timed]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Row:
    """Operations of one name, or of these with weights of the same formats and shapes."""

    name: str
    calls: int
    seconds: float
    bytes: int


def profile(options: Options) -> None:
    """Time the operations of a decode step and of a prefill chunk, and print a table of each."""
    _check(options)
    options.context = options.context or options.depth + options.prompt + 1
    model = loaded(options)
    if model.decoder.streamer is not None:
        raise RequestError(
            "Layers of the model are read from the disk, which a profile does not time.",
            "Give it more memory.",
        )
    if options.depth + options.prompt + 1 > model.plan.context:
        raise RequestError(
            f"The context has {model.plan.context:,} tokens.", "Give -p or -d less, or -c more."
        )
    passes = _passes(model, options)
    if options.json:
        print_json(model=model.name, kernels=model.backends, passes=list(map(_data, passes)))
        return
    print(f"{model.name}, {model.backends}, {torch.get_num_threads()} threads")
    for one in passes:
        print()
        print("\n".join(_table(one)))


def _check(options: Options) -> None:
    if options.lora or options.ngram:
        raise RequestError("A profile is that of the model alone.", "Leave out --lora and --ngram.")
    if options.prompt < 1 or options.depth < 0 or options.repetitions < 1:
        raise RequestError(
            "A profile needs at least one prompt token and one repetition.",
            "Give -p and -r a value of 1 or more, and -d 0 or more.",
        )


def _passes(model: LoadedModel, options: Options) -> list[_Pass]:
    """A chunk of the prompt behind `depth` tokens, and a step behind the whole prompt."""
    session, program = model.new_session(), program_of(model)
    random = torch.Generator().manual_seed(0)
    needed = options.depth + options.prompt + 1
    ids = torch.randint(model.config.vocabulary, (needed,), generator=random).tolist()
    if model.decoder.is_encoder:  # which reads whole texts and generates nothing
        return [_timed(model, session, program, ids[: options.prompt], options.repetitions)]
    if options.depth:
        session.read(ids[: options.depth])
    chunk = ids[options.depth : -1][: session.runner.chunk]
    prefill = _timed(model, session, program, chunk, options.repetitions)
    session.read(ids[options.depth : -1])
    repetitions = _DECODE_REPETITIONS * options.repetitions
    return [_timed(model, session, program, ids[-1:], repetitions), prefill]


def _timed(
    model: LoadedModel, session: Session, program: Program, ids: list[int], repetitions: int
) -> _Pass:
    """The operations of a pass of some tokens behind those of a session, which stay out of it."""
    sequence, decoder = session.sequence, model.decoder
    sequence.reserve(len(ids))
    batch = [sequence.segment(ids)]
    with torch.inference_mode():
        recorded = session.runner.recorded(session.stack)
        before = pass_seconds(recorded, batch, repetitions)
        found = operation_times(program, decoder.placement, decoder.refused, batch, repetitions)
        seconds = min(before, pass_seconds(recorded, batch, repetitions))
    name = "decode" if len(ids) == 1 else "prefill"
    return _Pass(name, len(ids), len(sequence.tokens), found, seconds)


def _rows(operations: Iterable[tuple[str, Timed]]) -> list[_Row]:
    """Operations added up by the name that stands before each, the longest first."""
    found: dict[str, list[Timed]] = {}
    for name, one in operations:
        found.setdefault(name, []).append(one)
    rows = [
        _Row(name, len(some), sum(one.seconds for one in some), sum(one.size for one in some))
        for name, some in found.items()
    ]
    return sorted(rows, key=lambda row: -row.seconds)


def _by_name(one: _Pass) -> list[tuple[_Row, list[_Row]]]:
    """The rows of all names, each with those of its weights if they differ."""
    rows: list[tuple[_Row, list[_Row]]] = []
    for row in _rows((timed.name, timed) for timed in one.operations):
        own = (timed for timed in one.operations if timed.name == row.name)
        parts = _rows((timed.weights, timed) for timed in own)
        rows.append((row, parts if len(parts) > 1 else []))
    return rows


def _table(one: _Pass) -> list[str]:
    """A pass as a table, whose last line compares the sum with the time of the whole pass."""
    total = sum(timed.seconds for timed in one.operations)
    tokens = "one token" if one.tokens == 1 else f"{one.tokens:,} tokens"
    whole = "step" if one.name == "decode" else "chunk"
    lines = [
        f"{one.name}: {tokens} at position {one.position:,}",
        f"  {'operation':<{_NAME_COLUMNS}} {'calls':>5} {'us':>10} {'share':>7} {'MB':>8} {'GB/s':>6}",
    ]
    for row, parts in _by_name(one):
        lines.append(f"  {_cells(row, row.name, total)}")
        lines += [f"  {_cells(part, f'  {part.name}', total)}" for part in parts]
    return [*lines, f"  sum {1e3 * total:,.2f} ms, {whole} {1e3 * one.seconds:,.2f} ms"]


def _cells(row: _Row, name: str, total: float) -> str:
    short = name if len(name) <= _NAME_COLUMNS else f"{name[: _NAME_COLUMNS - 1]}…"
    figures = f"{row.calls:>5} {1e6 * row.seconds:>10,.0f} {row.seconds / total:>7.1%}"
    if not row.bytes or not row.seconds:
        return f"{short:<{_NAME_COLUMNS}} {figures}"
    speed = row.bytes / row.seconds / 1e9
    return f"{short:<{_NAME_COLUMNS}} {figures} {row.bytes / 1e6:>8,.1f} {speed:>6.1f}"


def _data(one: _Pass) -> dict[str, object]:
    """A pass as plain data."""
    return {
        "pass": one.name,
        "tokens": one.tokens,
        "position": one.position,
        "seconds": one.seconds,
        "operations": [
            {**asdict(row), "weights": [asdict(part) for part in parts]}
            for row, parts in _by_name(one)
        ],
    }
