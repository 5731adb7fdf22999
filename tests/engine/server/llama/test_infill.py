"""The gap in a text: llama.cpp's /infill, and the suffix of OpenAI's and Ollama's completions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tiny
from engine_bench import with_printable_output
from serving import Served

PATH = "/infill"
MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    words = tiny.bpe("llama")
    tokens = [*words["tokenizer.ggml.tokens"], *MARKS]
    kinds = [*words["tokenizer.ggml.token_type"], *([tiny.USER_DEFINED] * 3)]
    path = tmp_path_factory.mktemp("coder") / "coder.gguf"
    keys = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    tiny.write(path, context=256, vocabulary=len(tokens), metadata=keys)
    made = Served(with_printable_output(path))
    yield made
    made.close()


def gap(**options: Any) -> dict[str, Any]:
    found = {"input_prefix": "int main() {", "input_suffix": "}", "n_predict": 4, "temperature": 0}
    return found | options


def tokens(served: Served, text: str) -> list[int]:
    return served.post("/tokenize", {"content": text})["tokens"]


def test_the_prompt_is_the_marked_gap(coder: Served) -> None:
    found = coder.post(PATH, gap(prompt=" x"))
    marked = "<|fim_prefix|>int main() {<|fim_suffix|>}<|fim_middle|>"
    assert found["tokens_evaluated"] == len(tokens(coder, marked)) + len(tokens(coder, " x"))
    ids = tokens(coder, "<|fim_prefix|>int main() {") + tokens(coder, " x")
    ids += tokens(coder, "<|fim_suffix|>}<|fim_middle|>")
    same = coder.post("/completion", {"prompt": ids, "n_predict": 4, "temperature": 0})
    assert found["content"] == same["content"]
    more = coder.post(PATH, gap(input_extra=[{"filename": "a.h", "text": "int a;"}]))
    assert more["tokens_evaluated"] > found["tokens_evaluated"]


def test_a_gap_that_is_read_first_is_cached(coder: Served) -> None:
    """Editors ask for no token while one types."""
    body = gap(input_prefix="the quick brown fox", n_predict=0)
    found = coder.post(PATH, body)
    assert (found["content"], found["tokens_predicted"]) == ("", 0)
    found = coder.post(PATH, body | {"n_predict": 2})
    assert found["timings"]["cache_n"] > 0


def test_a_long_text_is_cut_to_the_context(coder: Served) -> None:
    found = coder.post(PATH, gap(input_prefix="x " * 2000, input_suffix="y " * 2000))
    assert 200 < found["tokens_evaluated"] < 256


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"input_prefix": None}, "input_prefix"),
        ({"input_suffix": 3}, "input_suffix"),
        ({"prompt": 3}, "prompt"),
        ({"input_extra": {}}, "input_extra"),
        ({"input_extra": [{}]}, "input_extra[0].text"),
        ({"input_extra": [{"filename": 3, "text": "a"}]}, "input_extra[0].filename"),
    ],
)
def test_a_wrong_field_is_named(coder: Served, options: dict[str, Any], field: str) -> None:
    assert coder.error(PATH, gap(**options))["error"]["param"] == field


def test_a_model_that_fills_no_gaps_says_so(served: Served) -> None:
    error = served.error(PATH, gap(), 501)["error"]
    assert "no tokens that fill a gap" in error["message"]
    # Its fields are read first.
    assert served.error(PATH, {})["error"]["param"] == "input_prefix"


def test_a_suffix_is_the_text_behind_the_gap(coder: Served) -> None:
    wanted = coder.post(PATH, gap())["content"]
    body = {"model": "", "prompt": "int main() {", "suffix": "}", "max_tokens": 4, "temperature": 0}
    assert coder.post("/v1/completions", body)["choices"][0]["text"] == wanted
    ollama = {"model": "coder", "prompt": "int main() {", "suffix": "}", "stream": False}
    ollama |= {"options": {"num_predict": 4, "temperature": 0}}
    assert coder.post("/api/generate", ollama)["response"] == wanted
    for wrong in ({"echo": True}, {"prompt": [3, 4]}):
        coder.error("/v1/completions", body | wrong)
