"""Reasoning of an answer: apart from its content, without markers, streamed and whole."""

from __future__ import annotations

from pathlib import Path

import pytest

import thinkers
from serving import Served, chat
from thinkers import FAMILIES, WORD

PATH = "/v1/chat/completions"


@pytest.mark.parametrize("family", ["Qwen3", "gpt-oss", "DeepSeek-R1"])
def test_reasoning_is_apart_from_the_content(family: str, tmp_path: Path) -> None:
    served = Served(thinkers.write(tmp_path / "thinker.gguf", FAMILIES[family]))
    try:
        body = chat(max_tokens=5, thinking_budget=7)
        message = served.post(PATH, body)["choices"][0]["message"]
        assert message["reasoning_content"].strip() == WORD * 7
        assert message["content"] == WORD * 5
        deltas = [chunk["choices"][0]["delta"] for chunk in served.stream(PATH, body)]
        thought = "".join(delta.get("reasoning_content") or "" for delta in deltas)
        assert thought.strip() == WORD * 7
        assert "".join(delta.get("content") or "" for delta in deltas) == WORD * 5
    finally:
        served.close()
