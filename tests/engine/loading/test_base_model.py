"""A model without a chat template, its own or its family's, only continues text."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny
from engine.loading.loader import load


@pytest.mark.parametrize(
    ("architecture", "template", "base"),
    [("llama", tiny.CHATML, False), ("llama", None, True), ("gemma3", tiny.CHATML, False)],
)
def test_base_model(tmp_path: Path, architecture: str, template: str | None, base: bool) -> None:
    path = tiny.write(tmp_path / "m.gguf", architecture=architecture, template=template)
    assert load(path).base is base
