"""A model without a chat template, its own or its family's, only continues text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tiny
from engine.chat.builtin import PLAIN
from engine.chat.template import ChatTemplate
from engine.loading.loader import load


@pytest.mark.parametrize("template", [tiny.CHATML, None])  # None: that of its family
def test_model_with_a_chat_template_is_no_base_model(tmp_path: Path, template: str | None) -> None:
    assert not load(tiny.write(tmp_path / "m.gguf", template=template)).base


def test_model_that_gets_the_plain_dialogue_is_a_base_model(tmp_path: Path) -> None:
    model = load(tiny.write(tmp_path / "m.gguf", template=None))
    plain = ChatTemplate(PLAIN.source, bos="", eos="", built_in=PLAIN.name)
    assert replace(model, template=plain).base
