"""What was written reaches the model: through the engine, from the template to the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny
from engine import Chat, Failed, Finished, Load, ModelLoaded, Role, Sampling, Turn
from engine_bench import Bench


@pytest.mark.parametrize("question", ["Hi", "What is the capital of France, please?"])
def test_what_is_asked_is_in_the_prompt_or_the_load_says_so(tmp_path: Path, question: str) -> None:
    each = "{% for m in messages %}[{{ m.role }}]CONTENT{% endfor %}"
    parts = "{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}"
    path = tiny.write(tmp_path / "parts.gguf", template=each.replace("CONTENT", parts))
    plain = tiny.write(tmp_path / "plain.gguf", template=each.replace("CONTENT", "{{ m.content }}"))
    lost = tiny.write(tmp_path / "lost.gguf", template=each.replace("CONTENT", "{{ m.words }}"))
    turns = (Turn(Role.USER, question),)
    counts: list[int] = []
    for at, model in enumerate((path, plain, lost), 1):
        bench = Bench()
        bench.send(at, Load(model))
        loaded = bench.until(ModelLoaded, Failed)[-1]
        bench.send(9, Chat(turns, Sampling(temperature=0), max_tokens=2))
        ended = bench.until(Finished, Failed)[-1]
        bench.engine.stop()
        assert isinstance(loaded, ModelLoaded)
        if model is lost:
            assert "leaves out the user's text" in loaded.template_problem
            assert isinstance(ended, Failed)
            assert "leaves out the user's text" in ended.message
        else:
            assert loaded.template_problem == ""
            assert isinstance(ended, Finished)
            counts.append(ended.prompt_tokens)
    assert counts[0] == counts[1]
