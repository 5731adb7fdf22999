"""A base model only continues text; the loaded model says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest

import tiny
from engine.loading.loader import load


@pytest.mark.parametrize("template", [tiny.CHATML, None])  # None: that of its family
def test_model_with_a_chat_template_is_no_base_model(tmp_path: Path, template: str | None) -> None:
    assert not load(tiny.write(tmp_path / "m.gguf", template=template)).base


@pytest.mark.parametrize(
    "metadata",
    [
        {"tokenizer.ggml.eot_token_id": None},  # its texts end in </s> and not in <|im_end|>
        {"tokenizer.chat_template": tiny.CHATML, "general.finetune": "Base"},
    ],
)
def test_model_that_was_not_trained_to_chat_is_a_base_model(
    tmp_path: Path, metadata: dict[str, Any]
) -> None:
    path = tiny.write(tmp_path / "m.gguf", architecture="gemma3", template=None, metadata=metadata)
    assert load(path).base


def test_model_that_gets_the_plain_dialogue_is_a_base_model(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", architecture="gemma3", template=None)
    field = gguf.GGUFReader(path).fields["tokenizer.ggml.tokens"]
    tokens = [str(token).replace("<|im_", "<|other_") for token in field.contents()]
    keys = {"tokenizer.ggml.tokens": tokens}
    assert load(tiny.rewrite(path, tmp_path / "plain.gguf", keys)).base


def test_gemma_without_its_template_is_a_base_model(gemma_model: Path) -> None:
    assert load(gemma_model).base
