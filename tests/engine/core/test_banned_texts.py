"""Banned texts: the rule alone on scripted tokens, and answers of tiny models with the scheduler."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import tiny
from answers import Request, answer, answered, run_all
from engine import FinishReason, PromptProgress, RequestError, Sampling, Text
from engine.frontend.banned_texts import BannedTexts, TakenBack
from engine.loading.loader import LoadedModel, load
from engine.sampling import Sampler
from hybrids import HYBRIDS

PROMPT = [9, 8, 7, 6, 5]
# Only printable ASCII is drawn. The tiny model has three control tokens, then every byte.
ILLEGIBLE = [0, 1, 2, *(3 + byte for byte in range(256) if not 32 <= byte < 127)]
LEGIBLE = tuple((token, -float("inf")) for token in ILLEGIBLE)
FREE = Sampling(
    temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=3, ignore_end=True, logit_bias=LEGIBLE
)
GREEDY = replace(FREE, temperature=0.0)
MIROSTAT = replace(FREE, mirostat=2, temperature=1.2)


def letters(token: int) -> bytes:
    return (b"a", b"b", b"ab", b"", b"ba", "ß".encode()[:1], "ß".encode()[1:])[token]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load(tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf", context=900))


def test_the_token_that_began_the_text_is_excluded_there() -> None:
    banned = BannedTexts(["abba"], letters)
    assert banned.push(1, 0.5) is None
    assert banned.settled() == [1]
    assert banned.push(2, 1.5) is None
    assert banned.push(3, 2.5) is None  # without text
    assert banned.settled() == []
    assert banned.push(4, 3.5) == TakenBack(3, 1.5)
    assert list(banned.excluded) == [2]
    assert banned.push(0, 4.5) is None
    assert list(banned.excluded) == []
    assert banned.push(1, 5.5) is None
    assert banned.push(4, 6.5) == TakenBack(3, 4.5)
    assert set(banned.excluded) == {0, 2}
    assert banned.push(1, 7.5) is None
    assert banned.settled() == [1]
    assert list(banned.excluded) == []


def test_of_two_texts_the_one_that_began_last_is_taken_back() -> None:
    banned = BannedTexts(["aab", "b"], letters)
    assert [banned.push(0, 0.0), banned.push(0, 0.0)] == [None, None]
    assert banned.push(1, 0.0) == TakenBack(1, 0.0)
    assert banned.flush() == [0, 0]


def test_exclusions_hold_for_one_beginning_of_the_answer() -> None:
    banned = BannedTexts(["aab", "ba"], letters)
    assert [banned.push(0, 0.0), banned.push(0, 0.0)] == [None, None]
    assert banned.push(4, 0.0) == TakenBack(1, 0.0)
    assert banned.push(1, 0.0) == TakenBack(3, 0.0)
    assert list(banned.excluded) == [0]
    assert [banned.push(1, 0.0), banned.push(1, 0.0)] == [None, None]
    assert list(banned.excluded) == []  # "ba" was excluded after "aa"


def test_what_was_shown_stays_where_it_begins_a_text_after_going_back() -> None:
    banned = BannedTexts(["aaa", "baa"], letters)
    for token in (0, 0, 4):
        assert banned.push(token, 0.0) is None
    assert banned.settled() == [0, 0]  # "aa" does not go on
    assert banned.push(0, 1.0) == TakenBack(2, 0.0)
    assert banned.push(0, 1.0) == TakenBack(1, 1.0)  # now it does
    assert set(banned.excluded) == {0, 4}
    assert banned.push(1, 0.0) is None
    assert banned.flush() == [1]


def test_characters_are_compared_by_their_bytes() -> None:
    banned = BannedTexts(["ß"], letters)
    assert banned.push(5, 0.0) is None
    assert banned.settled() == []
    assert banned.push(6, 0.0) == TakenBack(2, 0.0)
    assert list(banned.excluded) == [5]


def test_without_texts_every_token_is_settled_at_once() -> None:
    banned = BannedTexts(["", "xyz"], letters)
    for token in (0, 1, 5, 3):
        assert banned.push(token, 0.0) is None
        assert banned.settled() == [token]


@given(
    st.lists(st.integers(0, 6), max_size=30),
    st.lists(st.text("abß", min_size=1, max_size=5), min_size=1, max_size=3),
)
def test_what_is_settled_never_has_a_banned_text(tokens: list[int], texts: list[str]) -> None:
    banned, kept, shown = BannedTexts(texts, letters), list[int](), list[int]()
    patterns = [text.encode() for text in texts]
    for token in tokens:
        if token in banned.excluded:
            continue
        kept.append(token)
        try:
            taken_back = banned.push(token, 0.0)
        except RequestError:
            break
        spelled = b"".join(map(letters, kept))
        assert (taken_back is not None) == any(text in spelled for text in patterns)
        if taken_back:
            del kept[-taken_back.tokens :]
        shown += banned.settled()
        assert kept[: len(shown)] == shown
        spelled = b"".join(map(letters, kept))
        suffixes = [spelled[at:] for at in range(len(spelled))]
        is_open = any(text.startswith(suffix) for text in patterns for suffix in suffixes)
        assert is_open or kept == shown
    assert not any(text in b"".join(map(letters, shown)) for text in patterns)


def best(model: LoadedModel, logits: Tensor, excluded: Collection[int] = ()) -> int:
    """The most likely token that is legible and not excluded."""
    never = [*model.tokenizer.end_tokens, *excluded, *ILLEGIBLE]
    return int(logits.index_fill(0, torch.tensor(never), -float("inf")).argmax())


def defined(
    model: LoadedModel, texts: tuple[str, ...], count: int, sampling: Sampling = GREEDY
) -> list[int]:
    """The answer by the definition, each token from the beginning of the text."""
    sampler = Sampler(sampling, model.tokenizer)
    made: list[int] = []
    mus: list[float] = []
    excluded: dict[int, set[int]] = {}
    shown = 0  # tokens that are not taken back any more
    piece = model.tokenizer.shown_piece
    while len(made) < count:
        logits = model.new_session().read([*PROMPT, *made])
        mus.append(sampler.mu)
        made.append(sampler.draw(logits, [*PROMPT, *made], None, excluded.get(len(made), ())))
        spelled = b"".join(map(piece, made))
        starts = [spelled.rfind(text.encode()) for text in texts]
        if max(starts) >= 0:
            ends = list(itertools.accumulate(len(piece(token)) for token in made))
            at = max(next(at for at, end in enumerate(ends) if end > max(starts)), shown)
            excluded = {key: ids for key, ids in excluded.items() if key <= at}
            excluded.setdefault(at, set()).add(made[at])
            sampler.mu = mus[at]
            del made[at:], mus[at:]
        else:
            first = next(at for at in range(len(spelled) + 1) if begins(spelled[at:], texts))
            closed = sum(end <= first for end in itertools.accumulate(map(len, map(piece, made))))
            shown = max(shown, closed)
    return made


def begins(spelled: bytes, texts: tuple[str, ...]) -> bool:
    return any(text.encode().startswith(spelled) for text in texts)


@pytest.mark.parametrize("sampling", [GREEDY, FREE, MIROSTAT])
@pytest.mark.parametrize("start", [0, 3, 8])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_answers_agree_with_the_definition(
    model: LoadedModel, start: int, length: int, sampling: Sampling
) -> None:
    text = answer(model, PROMPT, sampling, max_tokens=24).text
    texts = (text[start : start + length], text[start + 12 : start + 14])
    made = answer(model, PROMPT, replace(sampling, banned=texts), max_tokens=24)
    assert made.tokens == defined(model, texts, 24, sampling)
    assert not any(one in made.text for one in texts)
    assert made.text == model.tokenizer.decode(made.tokens)
    assert made.finished.reason is FinishReason.LENGTH
    assert made.finished.generated_tokens == 24


def shown(events: list[object]) -> Iterator[str]:
    """The text after each event."""
    text = ""
    for event in events:
        text += event.text if isinstance(event, Text) else ""
        yield text


def test_no_part_of_a_completed_text_is_shown(model: LoadedModel) -> None:
    plain = answer(model, PROMPT, GREEDY, max_tokens=20)
    banned = plain.text[4:9]
    made = answer(model, PROMPT, replace(GREEDY, banned=(banned,)), max_tokens=20)
    assert made.text.startswith(plain.text[:3])
    assert all(made.text.startswith(text) for text in shown(list(made.events)))
    progress = [event for event in made.events if isinstance(event, PromptProgress)]
    assert made.events[: len(progress)] == progress  # none comes after the first text


def test_a_text_at_the_beginning_of_the_answer(model: LoadedModel) -> None:
    plain = answer(model, PROMPT, GREEDY, max_tokens=20)
    made = answer(model, PROMPT, replace(GREEDY, banned=(plain.text[:3],)), max_tokens=20)
    assert made.tokens[0] != plain.tokens[0]
    assert made.tokens == defined(model, (plain.text[:3],), 20)
    progress = [event for event in made.events if isinstance(event, PromptProgress)]
    assert made.events[: len(progress)] == progress


def test_a_text_that_is_not_completed_is_shown_at_the_end(model: LoadedModel) -> None:
    plain = answer(model, PROMPT, GREEDY, max_tokens=10)
    sampling = replace(GREEDY, banned=(plain.text[-2:] + "and more",))
    assert answer(model, PROMPT, sampling, max_tokens=10).text == plain.text


@pytest.mark.parametrize("sampling", [FREE, MIROSTAT])
def test_answers_with_banned_texts_are_the_same_together_and_after_a_preemption(
    model: LoadedModel, sampling: Sampling
) -> None:
    letters_banned = replace(sampling, banned=("e", "th", "a"))
    requests = [
        Request([*PROMPT, number], replace(letters_banned, seed=number), max_tokens=40, count=count)
        for number, count in ((1, 1), (2, 3), (3, 1))
    ]
    alone = [model.new_scheduler().run(replace(request)).answers for request in requests]
    scheduler = model.new_scheduler()
    tickets = [scheduler.submit(replace(request)) for request in requests]
    steps = itertools.count()
    while scheduler.is_busy:
        if next(steps) % 9 == 8 and scheduler.running > 1:
            scheduler._preempt()  # pyright: ignore[reportPrivateUsage]
        scheduler.step()
    assert [ticket.answers for ticket in tickets] == alone
    for ticket in tickets:
        for number in ticket.answers:
            assert not set("ea") & set(answered(ticket, number).text)


@pytest.mark.parametrize("name", HYBRIDS)
def test_models_with_states_of_fixed_size_go_back_too(model: LoadedModel, name: str) -> None:
    hybrid = replace(model, decoder=HYBRIDS[name](model.config.vocabulary))
    prompt = [5 + at * 11 % 180 for at in range(300)]
    plain = answer(hybrid, prompt, GREEDY, max_tokens=20)
    banned = replace(GREEDY, banned=(plain.text[6:9],))
    made = answer(hybrid, prompt, banned, max_tokens=20)
    assert plain.text[6:9] not in made.text
    session = hybrid.new_session()
    logits = session.read([*prompt, *made.tokens[:-1]])
    assert made.tokens[-1] == best(hybrid, logits)


def test_an_answer_that_has_nothing_left_ends_with_a_sentence(model: LoadedModel) -> None:
    everything = tuple(map(chr, range(32, 127)))
    scheduler = model.new_scheduler()
    (ticket,) = run_all(scheduler, Request(PROMPT, replace(FREE, banned=everything), max_tokens=40))
    assert isinstance(ticket.error, RequestError)
    assert "banned texts" in str(ticket.error)
    assert answer(scheduler, PROMPT, FREE, max_tokens=4).finished.generated_tokens == 4


def test_stop_strings_are_found_in_what_was_held(model: LoadedModel) -> None:
    plain = answer(model, PROMPT, GREEDY, max_tokens=20)
    stop = plain.text[10:14]
    banned = replace(GREEDY, banned=(stop + "never",))
    made = answer(model, PROMPT, banned, max_tokens=20, stop=(stop,))
    assert made.text == plain.text[: plain.text.index(stop)]
    assert made.finished.reason is FinishReason.STOP


@pytest.mark.parametrize("sampling", [FREE, MIROSTAT])
def test_a_resumed_answer_goes_on_as_if_it_had_not_stopped(
    model: LoadedModel, sampling: Sampling
) -> None:
    sampling = replace(sampling, banned=("e", "th", "a"), seed=-1)
    scheduler, steps = model.new_scheduler(), itertools.count()
    first = Request(PROMPT, sampling, max_tokens=40, cancelled=lambda: next(steps) > 30)
    found = answered(scheduler.run(first))
    assert 0 < len(found.tokens) < 40
    seed = found.finished.seed
    whole = answer(model, PROMPT, replace(sampling, seed=seed), max_tokens=40)
    rest = answer(scheduler, [*PROMPT, *found.tokens], sampling, max_tokens=40 - len(found.tokens))
    assert [*found.tokens, *rest.tokens] == whole.tokens
    assert rest.finished.seed == seed
