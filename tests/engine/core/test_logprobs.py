"""Log probabilities of an answer's tokens: the model's own, once for each token, whatever draws it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tiny
from answers import Request, answer, prompt
from drafters import PartlyRight, verify_every_draft
from engine import Constraint, ConstraintKind, RequestError, Sampling, Text, TokenLogprobs
from engine.core.logprobs import token_logprobs
from engine.core.request import SequenceGroup
from engine.loading.loader import LoadedModel, load

PROMPT = prompt(30)
SEEDED = Sampling(temperature=1.3, top_k=0, top_p=0.9, min_p=0.0, repeat_penalty=1.3, seed=4)
ILLEGIBLE = [3 + byte for byte in range(256) if not 32 <= byte < 127]
LEGIBLE = replace(
    SEEDED, ignore_end=True, logit_bias=tuple((token, -float("inf")) for token in ILLEGIBLE)
)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["house", "horse"]},
    },
    "required": ["name", "kind"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load(tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf", context=900))


def logprobs(ticket: SequenceGroup, answer: int = 0) -> list[TokenLogprobs]:
    texts = [one for one in ticket.request.events if isinstance(one, Text) and one.answer == answer]
    return [one for text in texts for one in text.logprobs]


def check_against_logits(
    model: LoadedModel, ticket: SequenceGroup, most: int, number: int = 0
) -> None:
    """Compare all of an answer with the softmax of logits that a session of its own computes."""
    tokens, found = ticket.answers[number], logprobs(ticket, number)
    assert [one.token for one in found] == tokens
    session = model.new_session()
    logits = session.read(ticket.request.prompt)
    for token, one in zip(tokens, found, strict=True):
        row = torch.log_softmax(logits.double(), 0)
        best = sorted(range(len(row)), key=lambda at: (-float(row[at]), at))[:most]
        assert [top.token for top in one.top] == best
        assert [top.logprob for top in one.top] == [float(row[at]) for at in best]
        assert one.logprob == float(row[token])
        assert one.text == model.tokenizer.piece(token).decode("utf-8", "replace")
        assert one.raw.encode("latin-1") == model.tokenizer.piece(token)
        logits = session.step(token)


@pytest.mark.parametrize("most", [1, 5, 400])
@pytest.mark.parametrize("sampling", [Sampling(temperature=0), SEEDED], ids=["greedy", "seeded"])
def test_each_token_has_the_models_own_log_probabilities(
    model: LoadedModel, sampling: Sampling, most: int
) -> None:
    request = Request(PROMPT, sampling, max_tokens=25, logprobs=most)
    ticket = model.new_scheduler().run(request)
    check_against_logits(model, ticket, min(most, model.config.vocabulary))
    plain = answer(model, PROMPT, sampling, max_tokens=25)
    assert plain.tokens == ticket.answers[0]
    without = model.new_scheduler().run(Request(PROMPT, sampling, max_tokens=25))
    assert logprobs(without) == []


def test_several_answers_with_drafts_have_the_same_log_probabilities(model: LoadedModel) -> None:
    request = Request(PROMPT, SEEDED, max_tokens=30, logprobs=3, count=3)
    plain = model.new_scheduler().run(replace(request))
    texts = [[*PROMPT, *tokens] for tokens in plain.answers.values()]
    scheduler = model.new_scheduler()
    verify_every_draft(scheduler)
    request.drafter = lambda _: PartlyRight(texts, model.config.vocabulary)
    drafted = scheduler.run(request)
    for number in range(3):
        check_against_logits(model, drafted, 3, number)
        assert logprobs(drafted, number) == logprobs(plain, number)


def test_tokens_of_banned_texts_have_none(model: LoadedModel) -> None:
    free = model.new_scheduler().run(Request(PROMPT, LEGIBLE, max_tokens=40))
    words = "".join(one.text for one in free.request.events if isinstance(one, Text))
    banned = replace(LEGIBLE, banned=(words[5:8], words[20:22]))
    ticket = model.new_scheduler().run(Request(PROMPT, banned, max_tokens=40, logprobs=2))
    assert ticket.answers != free.answers
    check_against_logits(model, ticket, 2)


def test_tokens_of_a_stop_string_have_none(model: LoadedModel) -> None:
    def run(*stop: str) -> tuple[str, list[str]]:
        request = Request(PROMPT, LEGIBLE, max_tokens=40, stop=stop, logprobs=1)
        ticket = model.new_scheduler().run(request)
        texts = [one.text for one in request.events if isinstance(one, Text)]
        return "".join(texts), [one.text for one in logprobs(ticket)]

    text, every = run()
    assert "".join(every) == text
    for length in (1, 3, 7):
        stop = text[20 : 20 + length]
        shown, named = run(stop)
        assert shown == text[: text.find(stop)]
        assert named == every[: len(named)]
        assert len("".join(named[:-1])) < len(shown) <= len("".join(named))
    assert run(text[20:22] + "\0") == (text, every)


def test_forced_tokens_have_them_too(model: LoadedModel) -> None:
    wanted = Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA))
    request = Request(PROMPT, SEEDED, max_tokens=200, constraint=wanted)
    plain = model.new_scheduler().run(replace(request))
    ticket = model.new_scheduler().run(replace(request, logprobs=2))
    assert ticket.answers == plain.answers
    check_against_logits(model, ticket, 2)


def test_an_answer_that_is_preempted_names_each_token_once(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    tickets = [
        scheduler.submit(Request(prompt(40 + number), SEEDED, max_tokens=60, logprobs=1))
        for number in range(3)
    ]
    for at in range(500):
        scheduler.step()
        if at in (10, 25) and scheduler.running > 1:
            scheduler._preempt()
    for ticket in tickets:
        assert ticket.done
        assert [one.token for one in logprobs(ticket)] == ticket.answers[0]


def test_a_negative_number_is_refused(model: LoadedModel) -> None:
    with pytest.raises(RequestError, match="Log probabilities of -1 tokens"):
        model.new_scheduler().submit(Request(PROMPT, logprobs=-1))


@given(
    values=st.lists(st.sampled_from([-3.0, 0.0, 0.5, 0.5, 2.0]), min_size=1, max_size=12),
    most=st.integers(1, 14),
    data=st.data(),
)
def test_equal_ones_are_in_the_order_of_their_ids(
    model: LoadedModel, values: list[float], most: int, data: st.DataObject
) -> None:
    token = data.draw(st.integers(0, len(values) - 1))
    found = token_logprobs(torch.tensor(values), token, most, model.tokenizer)
    order = sorted(range(len(values)), key=lambda at: (-values[at], at))[:most]
    assert [one.token for one in found.top] == order
    assert abs(sum(2.718281828459045**one.logprob for one in found.top) - 1) < 1e-9 or most < len(
        values
    )


@pytest.mark.parametrize("draws", [Sampling(temperature=0), SEEDED, replace(SEEDED, mirostat=2)])
def test_after_sampling_they_are_of_the_tokens_that_may_be_drawn(
    model: LoadedModel, draws: Sampling
) -> None:
    """The same tokens are drawn, also with a constraint, which forces some."""
    for constraint in (None, Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA))):
        request = Request(PROMPT, draws, max_tokens=30, logprobs=400, constraint=constraint)
        plain = model.new_scheduler().run(replace(request))
        ticket = model.new_scheduler().run(replace(request, sampled_logprobs=True))
        assert ticket.answers == plain.answers
        found = logprobs(ticket)
        assert [one.token for one in found] == ticket.answers[0]
        for one in found:
            chances = [math.exp(top.logprob) for top in one.top]
            assert sum(chances) == pytest.approx(1)
            assert chances == sorted(chances, reverse=True)
            assert one.logprob == {top.token: top.logprob for top in one.top}[one.token]
