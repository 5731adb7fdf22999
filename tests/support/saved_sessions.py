"""Helpers for snapshot tests: generate with a tiny model's session, save it, expect a refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import Finished, Sampling, SnapshotError
from engine.inference.generate import Answer
from engine.inference.session import Session
from engine.loading.loader import LoadedModel
from engine.snapshot.capture import capture, restore, write

SHA = "a" * 64
GREEDY = Sampling(temperature=0)
SEEDED = Sampling(temperature=0.8, seed=3, repeat_penalty=1.1)
PROMPT = list(range(5, 60))


def answer(
    model: LoadedModel, session: Session, prompt: list[int], tokens: int, sampling: Sampling
) -> list[int]:
    made = Answer(session, model.tokenizer, prompt, sampling, max_tokens=tokens)
    assert isinstance(list(made.events())[-1], Finished)
    return made.tokens


def save(session: Session, path: Path, **names: str) -> Path:
    write(capture(session, model="Tiny", architecture="llama", **names), path, SHA)
    return path


def refusal(
    model: LoadedModel, path: Path, sha256: str = SHA, session: Session | None = None
) -> str:
    """Restore a file that must be refused; returns the message, the session checked unchanged."""
    session = session or model.new_session()
    answer(model, session, [9, 8, 7], 2, GREEDY)
    tokens, logits = session.all_tokens, session.last_logits
    with pytest.raises(SnapshotError) as refused:
        restore(path, session, sha256)
    assert session.all_tokens == tokens
    assert session.last_logits is logits
    assert refused.value.remedy
    return str(refused.value)
