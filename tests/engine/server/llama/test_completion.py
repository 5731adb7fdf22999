"""llama.cpp's own completions: what a response repeats, prompts in parts, biases of texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serving import Served, chat

PATH = "/completion"


def body(prompt: Any = "hello there", **options: Any) -> dict[str, Any]:
    return {"prompt": prompt, "n_predict": 6, "temperature": 0} | options


def events(served: Served, **options: Any) -> list[dict[str, Any]]:
    with served.http.stream("POST", PATH, json=body(stream=True, **options)) as response:
        return [json.loads(line[6:]) for line in response.iter_lines() if line]


def test_the_settings_of_a_request_are_repeated(served: Served) -> None:
    found = served.post(PATH, body(seed=7, top_k=3, stop=["zz"], logit_bias=[[5, False], [6, 1]]))
    settings = found["generation_settings"]
    assert (settings["n_predict"], settings["top_k"], settings["stop"]) == (6, 3, ["zz"])
    assert settings["logit_bias"] == [{"token": 5, "bias": None}, {"token": 6, "bias": 1.0}]
    forbidden = served.post(PATH, body(ignore_eos=True))["generation_settings"]["logit_bias"]
    assert [one["bias"] for one in forbidden] == [None]
    assert not served.post(PATH, body())["generation_settings"]["logit_bias"]


def test_tokens_are_returned_when_asked_for(served: Served) -> None:
    found = served.post(PATH, body(return_tokens=True))
    assert len(found["tokens"]) == 6
    assert "completion_probabilities" not in found
    text = served.post("/detokenize", {"tokens": found["tokens"]})["content"]
    assert text == found["content"]
    assert served.post(PATH, body())["tokens"] == []
    parts = events(served, return_tokens=True)
    assert [token for one in parts for token in one["tokens"]] == found["tokens"]


def test_only_the_wanted_fields_are_sent(served: Served) -> None:
    names = ["content", "generation_settings/n_predict", "none/such"]
    found = served.post(PATH, body(response_fields=names))
    assert list(found) == names
    assert found["generation_settings/n_predict"] == 6
    assert found["none/such"] is None


def test_a_full_context_and_a_stop_string_are_told(served: Served) -> None:
    tokens = [5] * 2040
    found = served.post(PATH, body(tokens, n_predict=-1, ignore_eos=True))
    assert (found["truncated"], found["stop_type"]) == (True, "limit")
    whole = served.post(PATH, body())["content"]
    found = served.post(PATH, body(stop=[whole[2:4]]))
    assert (found["truncated"], found["stop_type"]) == (False, "word")
    assert found["stopping_word"] == whole[2:4]


def test_prompts_in_parts(served: Served) -> None:
    ids = served.post("/tokenize", {"content": "hello there", "add_special": True})["tokens"]
    same = ["hello there", ids, {"prompt_string": "hello there"}]
    texts = [one["content"] for one in served.post(PATH, body(same))]
    assert texts == [texts[0]] * 3
    tail = served.post("/tokenize", {"content": " old tree"})["tokens"]
    mixed = served.post(PATH, body([*ids, " old tree"]))
    assert mixed["tokens_evaluated"] == len(ids) + len(tail)
    assert mixed["content"] == served.post(PATH, body([*ids, *tail]))["content"]
    picture = {"prompt_string": "hello", "multimodal_data": "AAAA"}
    assert served.error(PATH, body(picture))["error"]["param"] == "prompt.multimodal_data"


def test_probabilities_after_sampling_are_of_what_may_be_drawn(served: Served) -> None:
    options = {"n_probs": 5, "top_k": 3, "temperature": 2.0, "min_p": 0, "top_p": 1, "seed": 3}
    found = served.post(PATH, body(post_sampling_probs=True, **options))["completion_probabilities"]
    own = served.post(PATH, body(**options))["completion_probabilities"]
    assert [one["id"] for one in found] == [one["id"] for one in own]
    for sampled, plain in zip(found, own, strict=True):
        assert sum(one["prob"] for one in sampled["top_probs"]) == pytest.approx(1)
        ids = [one["id"] for one in sampled["top_probs"]]
        assert ids == [one["id"] for one in plain["top_logprobs"][:3]]
        assert (
            sampled["prob"]
            == dict(zip(ids, sampled["top_probs"], strict=True))[sampled["id"]]["prob"]
        )
        assert "logprob" not in sampled
    (one, *_) = served.post(PATH, body(post_sampling_probs=True, n_probs=5))[
        "completion_probabilities"
    ]
    assert one["prob"] == 1.0
    assert len(one["top_probs"]) == 1


def test_timings_of_every_part(served: Served) -> None:
    parts = events(served, timings_per_token=True)
    counts = [one["timings"]["predicted_n"] for one in parts]
    assert counts == [1, 2, 3, 4, 5, 6, 6]
    assert all("timings" not in one for one in events(served)[:-1])
    chunks = served.stream("/v1/chat/completions", chat(timings_per_token=True))
    assert "timings" not in chunks[0]
    assert all(one["timings"]["prompt_n"] >= 0 for one in chunks[1:])


@pytest.mark.parametrize("path", [PATH, "/v1/completions", "/v1/chat/completions"])
def test_a_bias_of_a_text_is_one_of_its_tokens(served: Served, path: str) -> None:
    text = "quick brown"
    tokens = served.post("/tokenize", {"content": text})["tokens"]
    assert len(set(tokens)) > 1
    found = []
    for biases in ([[text, 90]], [[token, 90] for token in tokens], {text: 90}):
        asked = chat(prompt="hello", temperature=0, logit_bias=biases)
        response = served.post(path, asked)
        rest = response["choices"][0] if "choices" in response else response
        found.append(rest.get("message", rest))
    contents = [one.get("content", one.get("text")) for one in found]
    assert contents == [contents[0]] * 3
    assert set(served.post("/tokenize", {"content": contents[0]})["tokens"]) <= set(tokens)


def test_progress_comes_before_the_text(served: Served) -> None:
    prompt = served.post("/tokenize", {"content": "the quick brown fox " * 30})["tokens"]
    parts = events(served, prompt=prompt, return_progress=True)
    progress = [one["prompt_progress"] for one in parts if "prompt_progress" in one]
    assert progress == [one["prompt_progress"] for one in parts[: len(progress)]]
    assert progress[-1]["processed"] == progress[-1]["total"] == len(prompt)
    timings = [one["timings"] for one in parts[: len(progress)]]
    assert [one["predicted_n"] for one in timings] == [0] * len(timings)


def test_speed_leaves_out_the_first_token(served: Served) -> None:
    """It comes with the prompt, and takes no time of its own."""
    one = served.post(PATH, body(n_predict=1))["timings"]
    assert (one["predicted_n"], one["predicted_per_second"]) == (1, 0.0)
    several = served.post(PATH, body(ignore_eos=True))["timings"]
    seconds = several["predicted_ms"] / 1e3
    assert several["predicted_per_second"] == pytest.approx(5 / seconds)


def test_a_prompt_that_does_not_fit_in_llamas_words(served: Served) -> None:
    """Routes without the prefix /v1 are llama.cpp's."""
    long = [5] * 3000
    error = served.error(PATH, body(long))["error"]
    assert error["type"] == "exceed_context_size_error"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (3000, 2048)
    assert "exceeds the available context size" in error["message"]
    error = served.error("/v1/completions", {"model": "", "prompt": long})["error"]
    assert error["type"] == "invalid_request_error"
    assert error["code"] == "context_length_exceeded"


def test_the_prompt_is_shown_on_request(served: Served) -> None:
    found = served.post("/chat/completions", chat("how are you", verbose=True))
    assert "how are you" in found["__verbose"]["prompt"]
    assert "__verbose" not in served.post("/chat/completions", chat())
