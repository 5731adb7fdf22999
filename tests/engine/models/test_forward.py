"""Recorded programs equal the decoder bit for bit, with and without adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import tiny
import tiny_lora
from chosen_backend import ops
from engine import CacheType, Cancelled
from engine.adapters.stack import NO_ADAPTERS, Stack, load_adapter
from engine.core.runner import Runner
from engine.core.session import Session
from engine.models.forward import forward_program
from engine.models.layers import Decoder
from engine.state.sequence import Sequence
from interpreter import Interpreter
from kernels.ops import Attend, Linear, Norm
from kernels.programs.program import Program, Recorded
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, PagedKV, PageTable
from kernels.states.quantized_kv import QuantizedKV
from sessions import open_session

ARCHITECTURES = ("llama", "qwen3", "gemma3")
CAP = {"gemma3.final_logit_softcapping": 5.0}


@pytest.fixture(scope="module", params=ARCHITECTURES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    architecture: str = request.param
    # Seven layers: gemma3's sixth has full attention, the others a sliding window.
    return tiny.write(
        tmp_path_factory.mktemp("model") / "tiny.gguf",
        architecture=architecture,
        layers=7 if architecture == "gemma3" else 2,
        metadata=CAP if architecture == "gemma3" else {},
    )


@pytest.fixture(scope="module")
def decoder(path: Path) -> Decoder:
    return open_session(path).runner.model


def adapters(path: Path, decoder: Decoder, folder: Path) -> Stack:
    """A stack of two adapters, one of which also changes embedding and head."""
    targets = (*tiny_lora.EVERY, "token_embd", "output")
    files = [
        tiny_lora.write(folder / f"{seed}.gguf", path, seed=seed, targets=some)
        for seed, some in enumerate((tiny_lora.EVERY, targets))
    ]
    return Stack([(load_adapter(file, decoder.base), 0.5) for file in files])


def sessions(decoder: Decoder, type: CacheType) -> tuple[Session, Session, Interpreter]:
    """A session that runs op by op, one that runs a recorded program, and its interpreter."""
    made: list[Interpreter] = []

    def recorder(recorded: Program) -> Interpreter:
        made.append(Interpreter(recorded))
        return made[-1]

    plain = session_with(decoder, type, Interpreter)
    recorded = session_with(decoder, type, recorder)
    assert not recorded.runner.is_recorded  # records the program without adapters
    return plain, recorded, made[0]


def session_with(
    decoder: Decoder, type: CacheType, recorder: Callable[[Program], Recorded] | None = None
) -> Session:
    runner = Runner(decoder, type, recorder)
    return Session(runner, runner.new_pool(), 256)


def cached(session: Session) -> list[torch.Tensor]:
    """Every stored key and value, and the scales."""
    return stored_rows(session.runner.layout, session.sequence)


def stored_rows(layout: KVLayout, sequence: Sequence) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for layer in layout.layers:
        table = PageTable()
        for pages in sequence.pages:
            page = pages[layer.group]
            table.append(None if page is None else page.data)
        window = layer.shape.window
        first = max(len(sequence) - window + 1, 0) // PAGE_TOKENS * PAGE_TOKENS if window else 0
        for rows in PagedKV(layer, table).rows(first, len(sequence)):
            is_coded = isinstance(rows, QuantizedKV)
            found += [rows.codes, rows.scales] if is_coded else [rows]
    return found


@pytest.mark.parametrize("type", list(CacheType))
def test_recorded_passes_equal_the_decoder_bit_for_bit(decoder: Decoder, type: CacheType) -> None:
    plain, recorded, interpreter = sessions(decoder, type)
    tokens = [(7 * at + 3) % 200 for at in range(60)]
    for piece in (tokens[:37], tokens[37:38], tokens[38:]):
        ours = [plain.logits(hidden) for hidden in plain.prefill(piece)]
        theirs = [recorded.logits(hidden) for hidden in recorded.prefill(piece)]
        assert torch.equal(torch.cat(ours), torch.cat(theirs))
    for token in tokens[:5]:
        assert torch.equal(plain.step(token), recorded.step(token))
    assert interpreter.steps == 5
    assert plain.tokens == recorded.tokens
    assert len(plain.sequence) == len(recorded.sequence) == 65
    for one, other in zip(cached(plain), cached(recorded), strict=True):
        assert torch.equal(one, other)


def test_adapters_are_recorded(path: Path, decoder: Decoder, tmp_path: Path) -> None:
    stack = adapters(path, decoder, tmp_path)
    plain, recorded, before = sessions(decoder, CacheType.F32)
    unchanged = plain.step(5)
    assert torch.equal(recorded.step(5), unchanged)
    assert plain.set_stack(stack) == recorded.set_stack(stack) == 1
    changed = recorded.step(5)
    assert torch.equal(plain.step(5), changed)
    assert not torch.equal(changed, unchanged)
    assert before.steps == 1  # a new program was recorded for the stack
    recorded.set_stack(NO_ADAPTERS)
    assert torch.equal(recorded.step(5), unchanged)


def test_a_program_lists_its_layers_and_buffer_widths(decoder: Decoder) -> None:
    recorded = forward_program(decoder, KVLayout(decoder.layer_states, torch.float32))
    kinds = [type(recorded.body[at]) for at in recorded.layers]
    assert kinds == [Norm] * len(decoder.blocks)
    attending = [one for one in recorded.body if isinstance(one, Attend)]
    assert [one.layer for one in attending] == list(range(len(decoder.blocks)))
    assert recorded.widths[recorded.hidden] == decoder.embedding.columns
    assert recorded.widths[recorded.logits] == decoder.head.weight.shape[0]
    assert not [one for one in recorded.body if isinstance(one, Linear) and one.deltas]


def test_a_pass_cancelled_between_layers_changes_nothing(decoder: Decoder) -> None:
    plain, recorded, _ = sessions(decoder, CacheType.F32)
    plain.step(4)
    recorded.step(4)
    calls: list[int] = []

    def cancel() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        list(recorded.prefill([9, 8, 7], cancel))
    assert recorded.tokens == [4]
    assert len(recorded.sequence) == 1
    assert torch.equal(recorded.step(6), plain.step(6))


def test_a_cancelled_pass_changes_nothing(decoder: Decoder) -> None:
    _, recorded, interpreter = sessions(decoder, CacheType.F32)

    def cancel() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        recorded.read((4, 5), cancel)  # the pass of one token is too brief to be cancelled
    assert (recorded.tokens, interpreter.steps) == ([], 0)


def test_trim_then_append_equals_a_fresh_session(decoder: Decoder) -> None:
    plain, recorded, _ = sessions(decoder, CacheType.F16)
    for token in (3, 4, 5, 6):
        plain.step(token)
    for token in (3, 4, 9, 9, 9, 9):
        recorded.step(token)
    recorded.rewind(2)
    for token in (5, 6):
        recorded.step(token)
    assert torch.equal(plain.step(7), recorded.step(7))


# --- backends that record ------------------------------------------------------------------------

RECORDING = [name for name in ops.BACKENDS if name != "reference"]


@contextmanager
def threads_set(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    ops.set_threads(threads)
    try:
        yield
    finally:
        ops.set_threads(before)


def both(decoder: Decoder, type: CacheType) -> tuple[Session, Session]:
    """A session that runs op by op, and one that runs the active backend's recorded program."""
    plain, _, _ = sessions(decoder, type)
    recorded = session_with(decoder, type)
    assert recorded.runner.is_recorded
    return plain, recorded


def same_bits(plain: Session, recorded: Session, vocabulary: int) -> None:
    """Compare prefills of several chunk sizes, a single token, and decode steps."""
    tokens = [(37 * at + 11) % vocabulary for at in range(120)]
    for piece in (tokens[:70], tokens[70:71], tokens[71:]):
        for one, other in zip(plain.prefill(piece), recorded.prefill(piece), strict=True):
            assert torch.equal(one, other)
            logits = plain.logits(one[-1:])[0]
            assert torch.equal(logits, recorded.logits(other[-1:])[0])
    for _ in range(12):
        token = int(logits.argmax())
        logits = plain.step(token)
        assert torch.equal(logits, recorded.step(token))
    for one, other in zip(cached(plain), cached(recorded), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("backend", RECORDING)
@pytest.mark.parametrize("type", list(CacheType))
@pytest.mark.parametrize("threads", [1, 2])
def test_a_backends_program_equals_its_ops_bit_for_bit(
    path: Path, backend: str, type: CacheType, threads: int
) -> None:
    with ops.only(backend), threads_set(threads):
        same_bits(*both(open_session(path).runner.model, type), vocabulary=200)


@pytest.mark.parametrize("backend", RECORDING)
@pytest.mark.parametrize("format", ["F16", "Q4_0", "Q8_0", "Q4_K", "Q6_K", "Q1_0"])
def test_a_program_over_packed_weights_equals_its_ops_bit_for_bit(
    backend: str, format: str, tmp_path: Path
) -> None:
    file = tiny.write(tmp_path / "tiny.gguf", format=format, kv_heads=1)
    with ops.only(backend):
        same_bits(*both(open_session(file).runner.model, CacheType.F16), vocabulary=200)


@pytest.mark.sweep
@pytest.mark.parametrize("backend", RECORDING)
@pytest.mark.parametrize(("format", "hidden", "ffn"), [("F16", 256, 6_176), ("Q1_0", 1_024, 256)])
def test_large_matrix_products_are_bit_identical_on_any_number_of_threads(
    backend: str, format: str, hidden: int, ffn: int, tmp_path: Path
) -> None:
    """Row counts that are no multiple of a group, so threads compete for the last rows."""
    file = tiny.write(
        tmp_path / "tiny.gguf", format=format, hidden=hidden, ffn=ffn, vocabulary=46_003
    )
    answers: list[list[int]] = []
    with ops.only(backend):
        decoder = open_session(file).runner.model
        for threads in (1, 2, 3):
            with threads_set(threads):
                plain, recorded = both(decoder, CacheType.F16)
                same_bits(plain, recorded, vocabulary=40_000)
                answers.append(recorded.tokens)
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("backend", RECORDING)
def test_a_session_with_adapters_equals_its_ops_bit_for_bit(
    path: Path, backend: str, tmp_path: Path
) -> None:
    with ops.only(backend):
        decoder = open_session(path).runner.model
        plain, recorded = both(decoder, CacheType.F32)
        stack = adapters(path, decoder, tmp_path)
        for session in (plain, recorded):
            session.set_stack(stack)
        same_bits(plain, recorded, vocabulary=200)


@pytest.mark.sweep
@pytest.mark.real
@pytest.mark.parametrize("backend", RECORDING)
@pytest.mark.parametrize("name", ["starter_model", "gemma_model"])
def test_programs_of_real_models_equal_their_ops_bit_for_bit(
    backend: str, name: str, request: pytest.FixtureRequest
) -> None:
    file: Path = request.getfixturevalue(name)
    with ops.only(backend):
        decoder = open_session(file).runner.model
        answers: list[list[int]] = []
        for threads in (1, 2):
            with threads_set(threads):
                plain, recorded = both(decoder, CacheType.F16)
                same_bits(plain, recorded, vocabulary=40_000)
                answers.append(recorded.tokens)
        assert answers[0] == answers[1]
