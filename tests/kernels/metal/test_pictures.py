"""Texts with pictures: recorded steps after one, and prompts, as the same program op by op."""

from __future__ import annotations

import pytest
import torch

from gpu_pictures import KINDS, Sighted, sighted
from gpu_products import MakeRows
from kernels import metal
from kernels.metal.program import Recorded

pytestmark = pytest.mark.sweep

BACKEND = metal.backend_on(torch.device("cpu"))


def made(
    kind: str, rows: MakeRows, random: torch.Generator, patch: pytest.MonkeyPatch
) -> tuple[Sighted, Recorded]:
    """A program that reads images, and what it is recorded as, which never runs a step op by op."""
    found, _ = sighted(BACKEND, kind, rows, random, BACKEND.record, 1e-6)
    recorded = found.recorded
    assert isinstance(recorded, Recorded)
    patch.setattr(recorded._interpreter, "step", lambda *of: pytest.fail("op by op"))
    return found, recorded


@pytest.mark.parametrize("kind", KINDS)
def test_steps_after_a_picture_are_recorded(
    kind: str, even_rows: MakeRows, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(kind, even_rows, random, monkeypatch)[0].check_steps(2)


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_with_a_picture(
    kind: str, even_rows: MakeRows, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, recorded = made(kind, even_rows, random, monkeypatch)
    monkeypatch.undo()
    found.check_prompt()
    attended = recorded._attending([found.prompt(found.empty())])
    assert attended is not None
