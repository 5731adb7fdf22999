"""Sessions opened directly over a GGUF file, without a tokenizer or a memory plan, and run alone."""

from __future__ import annotations

from collections.abc import Generator
from collections.abc import Sequence as Tokens
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from engine.core.cancellation import Awaited
from engine.core.runner import Runner
from engine.core.scheduler import Scheduler
from engine.core.session import Session
from engine.gguf.reader import GGUFFile
from engine.messages import CacheType
from engine.models import architecture
from engine.models.config import read_config
from engine.models.layers import Decoder
from engine.models.weights import Weights

T = TypeVar("T")
TOKENS = [(37 * at + 11) % 90 for at in range(40)]


def open_decoder(path: Path, context: int = 256) -> Decoder:
    """The decoder of a file; raises ModelFileError."""
    with GGUFFile.open(path) as file:
        read_config(file)
        weights = Weights(file)
        decoder = architecture(file)(file, weights, context)
        weights.refuse_unused_tensors()
        return decoder


def open_session(path: Path, context: int = 256) -> Session:
    """An empty session over the file's decoder and f32 pages; raises ModelFileError."""
    return session_over(open_decoder(path, context), context)


def session_over(decoder: Decoder, context: int = 256, cache: CacheType = CacheType.F32) -> Session:
    """An empty session over a decoder, with pages of its own."""
    runner = Runner(decoder, cache)
    return Session(runner, runner.new_pool(), context)


def empty_like(session: Session) -> Session:
    """An empty session with the runner of another and pages of its own."""
    pool = session.runner.new_pool()
    return Session(session.runner, pool, session.context)


def greedy(session: Session, prompt: Tokens[int], tokens: int) -> list[int]:
    """Forget everything, read the prompt and append the most likely tokens."""
    session.rewind(0)
    logits, answer = session.read(prompt), list[int]()
    while len(answer) < tokens:
        answer.append(int(logits.argmax()))
        logits = session.step(answer[-1])
    return answer


def read(session: Session, steps: int = 6) -> Tensor:
    """Logits [T, V] after each of `TOKENS`, prefilled in two chunks, then greedily decoded."""
    rows = [
        session.logits(hidden)
        for piece in (TOKENS[:25], TOKENS[25:])
        for hidden in session.prefill(piece)
    ]
    for _ in range(steps):
        rows.append(session.step(int(rows[-1][-1].argmax()))[None])
    return torch.cat(rows)


def logits_at(session: Session, tokens: Tokens[int], positions: Tokens[int]) -> Tensor:
    """Prefill an empty session; returns logits [N, V] f32 after the N `positions` of `tokens`."""
    wanted = torch.tensor(sorted(set(positions)))
    rows: list[Tensor] = []
    start = 0
    for hidden in session.prefill(tokens):
        inside = wanted[(wanted >= start) & (wanted < start + len(hidden))] - start
        if len(inside):
            rows.append(session.logits(hidden[inside]))
        start += len(hidden)
    order = torch.searchsorted(wanted, torch.tensor(list(positions)))
    return torch.cat(rows)[order]


def finish(work: Generator[Awaited, None, T], scheduler: Scheduler) -> T:
    """Run work that awaits passes of a scheduler to its end."""
    while True:
        try:
            next(work)
        except StopIteration as stopped:
            return stopped.value
        scheduler.step()
