"""Completions of texts: one or several prompts, echoed, scored, streamed."""

from __future__ import annotations

import math

import pytest

from serving import Served

PATH = "/v1/completions"


def body(prompt: object = "hello there", **options: object) -> dict[str, object]:
    return {"model": "", "prompt": prompt, "max_tokens": 6, "temperature": 0} | options


def test_a_text_is_continued(served: Served) -> None:
    found = served.post(PATH, body())
    (choice,) = found["choices"]
    assert found["object"] == "text_completion"
    assert choice["text"]
    assert choice["finish_reason"] == "length"
    assert found["usage"]["completion_tokens"] == 6
    assert served.post(PATH, body(max_tokens=None))["usage"]["completion_tokens"] == 16
    limit = {"max_tokens": None, "max_new_tokens": 3}
    assert served.post(PATH, body(**limit))["usage"]["completion_tokens"] == 3


def test_token_ids_are_the_text_that_they_stand_for(served: Served) -> None:
    ids = served.post("/tokenize", {"content": "hello there", "add_special": True})["tokens"]
    assert served.post(PATH, body(ids))["choices"][0]["text"] == text(served)


def text(served: Served, **options: object) -> str:
    return served.post(PATH, body(**options))["choices"][0]["text"]


def test_several_prompts_have_choices_in_order(served: Served) -> None:
    prompts = ["hello there", "the quick brown fox", "one two three"]
    found = served.post(PATH, body(prompts, n=2))
    assert [choice["index"] for choice in found["choices"]] == list(range(6))
    alone = [text(served, prompt=one) for one in prompts]
    assert [choice["text"] for choice in found["choices"][::2]] == alone
    assert found["usage"]["completion_tokens"] == 36


def test_an_echoed_prompt_has_log_probabilities(served: Served) -> None:
    found = served.post(PATH, body(echo=True, logprobs=2, max_tokens=1))
    (choice,) = found["choices"]
    scores = choice["logprobs"]
    prompt_tokens = found["usage"]["prompt_tokens"]
    assert choice["text"].startswith("hello there")
    assert len(scores["tokens"]) == prompt_tokens + 1
    assert scores["token_logprobs"][0] is None
    assert all(value < 0 for value in scores["token_logprobs"][1:])
    assert all(2 <= len(row) <= 3 for row in scores["top_logprobs"][1:])
    for value, row in zip(scores["token_logprobs"][1:], scores["top_logprobs"][1:], strict=True):
        assert value in row.values()
    offsets = scores["text_offset"]
    assert offsets == sorted(offsets)


def test_a_prompt_is_scored_without_an_answer(served: Served) -> None:
    scored = served.post(PATH, body(echo=True, logprobs=1, max_tokens=0))
    (choice,) = scored["choices"]
    assert choice["text"] == "hello there"
    assert scored["usage"]["completion_tokens"] == 0
    longer = served.post(PATH, body(echo=True, logprobs=1, max_tokens=3))["choices"][0]
    count = len(choice["logprobs"]["tokens"])
    assert longer["logprobs"]["token_logprobs"][:count] == choice["logprobs"]["token_logprobs"]


def test_the_scores_of_an_answer_are_those_it_was_drawn_with(served: Served) -> None:
    answer = served.post(PATH, body(logprobs=1))["choices"][0]
    whole = served.post(
        PATH, body("hello there" + answer["text"], echo=True, logprobs=1, max_tokens=0)
    )
    drawn, scored = answer["logprobs"]["token_logprobs"], whole["choices"][0]["logprobs"]
    assert scored["token_logprobs"][-len(drawn) :] == drawn
    assert math.isfinite(sum(drawn))


def test_the_scores_are_those_of_the_text_before_a_stop_string(served: Served) -> None:
    whole = text(served, max_tokens=20)
    assert len(whole) > 8
    stopped = body(max_tokens=20, logprobs=1, stop=whole[5:8])
    (choice,) = served.post(PATH, stopped)["choices"]
    tokens = choice["logprobs"]["tokens"]  # the last one may go on into the stop string
    assert whole.startswith("".join(tokens))
    assert len("".join(tokens[:-1])) < len(choice["text"]) <= len("".join(tokens))
    chunks = served.stream(PATH, stopped)
    found = [one["choices"][0]["logprobs"] for one in chunks]
    assert [name for one in found if one for name in one["tokens"]] == tokens


def test_a_stream_gives_the_same_text(served: Served) -> None:
    for options in ({}, {"echo": True}, {"logprobs": 1}, {"echo": True, "logprobs": 1}):
        chunks = served.stream(PATH, body(stream_options={"include_usage": True}, **options))
        (*parts, usage) = chunks
        assert "".join(one["choices"][0]["text"] for one in parts) == text(served, **options)
        assert parts[-1]["choices"][0]["finish_reason"] == "length"
        assert usage["usage"]["completion_tokens"] == 6
        if "logprobs" in options:
            whole = served.post(PATH, body(**options))["choices"][0]["logprobs"]
            found = [one["choices"][0]["logprobs"] for one in parts]
            for name in ("tokens", "token_logprobs", "text_offset"):
                assert [value for one in found if one for value in one[name]] == whole[name]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 3, None]}, "prompt[2]"),
        ({"prompt": [[1, None]]}, "prompt[0][1]"),
        ({"prompt": {"content": "a"}}, "prompt"),
        ({"suffix": "end", "echo": True}, "echo"),
        ({"suffix": "end", "prompt": [3, 4]}, "suffix"),
        ({"best_of": 4}, "best_of"),
        ({"logprobs": "many"}, "logprobs"),
    ],
)
def test_a_wrong_field_is_named(served: Served, change: dict, field: str) -> None:
    assert served.error(PATH, body() | change)["error"]["param"] == field


def test_a_token_outside_the_vocabulary_is_refused(served: Served) -> None:
    for options in ({}, {"echo": True, "logprobs": 1}):
        error = served.error(PATH, body([1, 999_999], **options))["error"]
        assert "999999" in error["message"]


def test_llamas_own_route_says_why_it_stopped(served: Served) -> None:
    asked = {"prompt": "hello there", "n_predict": 6, "temperature": 0}
    found = served.post("/completion", asked)
    assert found["content"] == text(served)
    assert (found["stop"], found["stop_type"]) == (True, "limit")
    assert found["tokens_predicted"] == 6
    with served.http.stream("POST", "/completion", json=asked | {"stream": True}) as response:
        import json

        parts = [json.loads(line[6:]) for line in response.iter_lines() if line]
    assert "".join(one["content"] for one in parts) == text(served)
    assert [one["stop"] for one in parts] == [False] * (len(parts) - 1) + [True]
    rows = served.post("/completion", asked | {"n_probs": 3})["completion_probabilities"]
    assert [len(row["top_logprobs"]) for row in rows] == [3] * 6
    assert served.post("/completion", asked | {"n_predict": 0})["tokens_evaluated"] > 0
