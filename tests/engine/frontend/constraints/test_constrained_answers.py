"""Answers match their constraints, with any sampler, draft, preemption, and after a resume."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from llguidance import LLParserLimits

import tiny
import tiny_lora
from answers import (
    Answered,
    Request,
    answered,
    check_nothing_leaked,
    prompt,
    run_all,
    step_until,
    texts,
)
from drafters import PartlyRight, verify_every_draft
from engine.adapters.stack import NO_ADAPTERS, Stack, load_adapter
from engine.core.scheduler import Scheduler
from engine.errors import RequestError
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType, Constraint, ConstraintKind, FinishReason, Sampling
from engine.sampling import Sampler
from engine.speculative.drafter import Drafter
from engine.speculative.lookup import LookupDrafter

GREEDY = Sampling(temperature=0, seed=0)
SEEDED = Sampling(temperature=0.9, top_k=0, top_p=0.95, min_p=0.0, repeat_penalty=1.1, seed=3)
SCHEMA = {
    "type": "object",
    "properties": {
        "name_of_the_person": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "likes": {"type": "array", "items": {"enum": ["tea", "rain"]}, "maxItems": 3},
    },
    "required": ["name_of_the_person", "age", "likes"],
    "additionalProperties": False,
}
CONSTRAINTS = {
    "schema": Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA)),
    "regex": Constraint(ConstraintKind.REGEX, r"(the (dog|fox) [a-z]{3,8}, ){2,4}then [0-9]{1,3}!"),
    "gbnf": Constraint(
        ConstraintKind.GBNF,
        'root ::= "<" item ("," item){1,4} ">"\nitem ::= [a-z]{1,6} | "(" item ")"',
    ),
    "choices": Constraint(ConstraintKind.CHOICES, '["yes", "no, never", "yes and no"]'),
}


def matches(name: str, text: str) -> bool:
    if name == "schema":
        found = json.loads(text)
        return list(found) == list(SCHEMA["properties"])  # type: ignore[call-overload]
    if name == "choices":
        return text in ("yes", "no, never", "yes and no")
    if name == "gbnf":
        return re.fullmatch(r"<[a-z()]+(,[a-z()]+){1,4}>", text) is not None
    return re.fullmatch(CONSTRAINTS["regex"].text, text) is not None


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    path = tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf", context=600)
    return load(path, cache=CacheType.Q8_0)


@pytest.fixture
def scheduler(model: LoadedModel) -> Scheduler:
    made = model.new_scheduler()
    verify_every_draft(made)
    return made


def request_of(name: str, sampling: Sampling = GREEDY, **options: object) -> Request:
    made = Request(prompt(20), sampling, max_tokens=200, constraint=CONSTRAINTS[name])
    return dataclasses.replace(made, **options)  # pyright: ignore[reportArgumentType]


def plain(model: LoadedModel, request: Request) -> Answered:
    """The answer without drafts, in a scheduler of its own."""
    return answered(model.new_scheduler().run(dataclasses.replace(request, drafter=None)))


def known(model: LoadedModel, request: Request) -> Callable[[Sampler], Drafter]:
    """Drafters that know the answer to a request, and now and then propose a wrong token."""
    wanted = [*request.prompt, *plain(model, request).tokens]
    return lambda _: PartlyRight([wanted], model.config.vocabulary)


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_an_answer_matches_its_constraint(
    model: LoadedModel, scheduler: Scheduler, name: str, sampling: Sampling
) -> None:
    made = answered(scheduler.run(request_of(name, sampling)))
    assert matches(name, made.text), made.text
    assert made.finished.reason is FinishReason.END
    assert not made.finished.incomplete
    assert made.text == model.tokenizer.decode(made.tokens)
    check_nothing_leaked(scheduler)


@pytest.mark.sweep
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("kind", ["known", "lookup"])
def test_drafts_change_no_constrained_answer(
    model: LoadedModel, scheduler: Scheduler, kind: str, name: str, sampling: Sampling
) -> None:
    request = request_of(name, sampling)
    wanted = plain(model, request)
    request.drafter = known(model, request) if kind == "known" else lambda _: LookupDrafter()
    made = answered(scheduler.run(request))
    assert (made.tokens, made.text) == (wanted.tokens, wanted.text)
    assert made.finished.reason is wanted.finished.reason
    assert made.finished.accepted_tokens or kind == "lookup" or name == "choices"
    check_nothing_leaked(scheduler)


def test_forced_tokens_are_read_without_being_drawn(
    model: LoadedModel, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, drawn = 0, 0
    step = scheduler.runner.step

    def counted(*arguments: object) -> object:
        nonlocal passes
        passes += 1
        return step(*arguments)  # pyright: ignore[reportArgumentType]

    scheduler.runner.step = counted  # pyright: ignore[reportAttributeAccessIssue]
    made = answered(scheduler.run(request_of("schema")))
    finished = made.finished
    assert finished.forced_tokens > 15  # the names of the properties
    assert passes <= finished.generated_tokens - finished.forced_tokens + 1
    monkeypatch.setattr("engine.sampling.Sampler.draw", lambda *_: pytest.fail("a token was drawn"))
    only = Constraint(ConstraintKind.CHOICES, '["there is nothing to choose from here"]')
    request = Request(prompt(20), SEEDED, constraint=only)
    made = answered(scheduler.run(request))
    assert made.text == "there is nothing to choose from here"
    # As the tokenizer spells it, up to the last token, which may be a part of a longer one.
    assert made.tokens == model.tokenizer.encode_within(made.text)
    assert made.finished.forced_tokens == made.finished.generated_tokens
    assert drawn == 0


def test_a_long_forced_text_is_read_in_several_passes(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    only = Constraint(ConstraintKind.REGEX, "(ab ){150}")
    made = answered(scheduler.run(Request(prompt(20), GREEDY, constraint=only)))
    assert made.text == "ab " * 150
    check_nothing_leaked(scheduler)


@pytest.mark.parametrize("most", [1, 2, 5, 11, 20])
@pytest.mark.parametrize("drafts", [False, True])
def test_an_answer_cut_by_the_token_limit_is_incomplete(
    model: LoadedModel, scheduler: Scheduler, most: int, drafts: bool
) -> None:
    request = request_of("schema", max_tokens=most)
    whole = plain(model, request_of("schema"))
    if drafts:
        request.drafter = known(model, request_of("schema"))
    made = answered(scheduler.run(request))
    assert made.tokens == whole.tokens[:most]
    assert made.finished.reason is FinishReason.LENGTH
    assert made.finished.incomplete
    assert made.finished.generated_tokens == most
    check_nothing_leaked(scheduler)


def test_an_answer_that_is_complete_at_the_limit_has_ended(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    whole = plain(model, request_of("schema"))
    made = answered(scheduler.run(request_of("schema", max_tokens=len(whole.tokens))))
    assert made.finished.reason is FinishReason.END
    assert not made.finished.incomplete


@pytest.mark.parametrize("drafts", [False, True])
def test_several_answers_to_one_prompt_follow_the_constraint_each(
    model: LoadedModel, scheduler: Scheduler, drafts: bool
) -> None:
    request = request_of("schema", SEEDED, count=4)
    wanted = model.new_scheduler().run(dataclasses.replace(request)).answers
    if drafts:
        known_texts = [[*request.prompt, *tokens] for tokens in wanted.values()]
        request.drafter = lambda _: PartlyRight(known_texts, model.config.vocabulary)
    ticket = scheduler.run(request)
    assert ticket.answers == wanted
    made = [answered(ticket, number).text for number in range(4)]
    assert all(matches("schema", text) for text in made)
    assert len(set(made)) > 1
    check_nothing_leaked(scheduler)


def test_constrained_and_free_answers_run_together(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    requests = [
        Request(prompt(length, at), SEEDED if at % 2 else GREEDY, number=at, max_tokens=60)
        for at, length in enumerate((20, 250, 256, 300, 40))
    ]
    for request, name in zip(requests[1:], CONSTRAINTS, strict=True):
        request.constraint = CONSTRAINTS[name]
    wanted = [plain(model, request) for request in requests]
    for ticket, one in zip(run_all(scheduler, *requests), wanted, strict=True):
        assert answered(ticket).tokens == one.tokens
    check_nothing_leaked(scheduler)


def test_a_preempted_answer_keeps_the_state_of_its_grammar(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    request = request_of("schema", SEEDED)
    wanted = plain(model, request).tokens
    ticket = scheduler.submit(request)
    step_until(scheduler, lambda: texts(ticket) >= 9)
    scheduler._preempt()
    assert not scheduler.running
    step_until(scheduler, lambda: ticket.done)
    assert answered(ticket).tokens == wanted
    check_nothing_leaked(scheduler)


def test_a_pass_that_fails_does_not_disturb_the_grammar(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    request = request_of("schema", SEEDED)
    wanted = plain(model, request).tokens
    request.drafter = known(model, request)
    other = Request(prompt(30, 1), GREEDY, max_tokens=100)
    tickets = scheduler.submit(request), scheduler.submit(other)
    step_until(scheduler, lambda: texts(tickets[0]) >= 9)
    step, failed = scheduler.runner.step, False

    def once(*arguments: object) -> object:
        nonlocal failed
        if not failed:
            failed = True
            raise MemoryError
        return step(*arguments)  # pyright: ignore[reportArgumentType]

    scheduler.runner.step = once  # pyright: ignore[reportAttributeAccessIssue]
    while scheduler.is_busy:
        scheduler.step()
    assert failed
    assert answered(tickets[0]).tokens == wanted


@pytest.mark.sweep
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("at", [1, 3, 6])
def test_an_interrupted_answer_continues_under_its_constraint(
    model: LoadedModel, scheduler: Scheduler, name: str, sampling: Sampling, at: int
) -> None:
    wanted = plain(model, request_of(name, sampling))
    first = answered(scheduler.run(request_of(name, sampling, max_tokens=at)))
    if first.finished.reason is FinishReason.END:
        assert first.text == wanted.text
        return
    # The constraint is not given again: the answer is known to have one.
    go_on = Request([*prompt(20), *first.tokens], sampling, max_tokens=200)
    second = answered(scheduler.run(go_on))
    assert first.text + second.text == wanted.text
    assert not second.finished.incomplete


@pytest.mark.sweep
def test_an_answer_may_be_cut_anywhere(model: LoadedModel) -> None:
    wanted = plain(model, request_of("schema", SEEDED))
    for at in range(1, len(wanted.tokens)):
        scheduler = model.new_scheduler()
        first = answered(scheduler.run(request_of("schema", SEEDED, max_tokens=at)))
        go_on = Request([*prompt(20), *first.tokens], SEEDED, max_tokens=200)
        second = answered(scheduler.run(go_on))
        assert first.text + second.text == wanted.text


def test_a_cancelled_answer_is_incomplete_and_continues(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    wanted, pressed = plain(model, request_of("schema", SEEDED)), False
    ticket = scheduler.submit(request_of("schema", SEEDED, cancelled=lambda: pressed))
    step_until(scheduler, lambda: texts(ticket) >= 12)
    pressed = True
    scheduler.step()
    first = answered(ticket)
    assert first.finished.reason is FinishReason.CANCELLED
    assert first.finished.incomplete
    go_on = Request([*prompt(20), *first.tokens], SEEDED, max_tokens=200)
    assert first.text + answered(scheduler.run(go_on)).text == wanted.text


def test_the_text_so_far_is_read_where_nothing_else_is_known(model: LoadedModel) -> None:
    begun = '{"name_of_the_person":"the'
    tokens = [*prompt(20), *model.tokenizer.encode_within(begun)]
    request = request_of("schema", prompt=tokens, begun=begun)
    assert matches("schema", begun + answered(model.new_scheduler().run(request)).text)
    # A text that begins inside a token of the prompt.
    joined = model.tokenizer.encode_within("dog" + begun)
    request = request_of("schema", prompt=[*prompt(20), *joined], begun="og" + begun)
    with pytest.raises(RequestError, match="does not match the JSON schema, from its token 1 on"):
        model.new_scheduler().submit(request)
    inside = Constraint(ConstraintKind.REGEX, "og[{].*")
    request = Request([*prompt(20), *joined], GREEDY, constraint=inside, begun="og{", max_tokens=9)
    request.prompt = [*prompt(20), *model.tokenizer.encode_within("dog{")]
    assert answered(model.new_scheduler().run(request)).text


def test_no_pass_runs_for_a_grammar_that_is_refused(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    bad = Constraint(ConstraintKind.GBNF, 'root ::= "a"\nroot ::= "b"')
    with pytest.raises(RequestError, match=r"defined twice \(line 2, column 1\)"):
        scheduler.submit(Request(prompt(20), GREEDY, constraint=bad))
    assert not scheduler.is_busy


def test_an_answer_whose_grammar_reaches_a_limit_fails_alone(
    model: LoadedModel, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = LLParserLimits(step_max_items=400, verbose_errors=False)
    monkeypatch.setattr("engine.frontend.constraints.grammars.LIMITS", few)
    # Every split of the text so far is kept: the items grow with each character.
    worst = Constraint(ConstraintKind.LARK, "start: s\ns: s s | s s s | w\nw: /[a-z ]/")
    other = Request(prompt(30, 1), GREEDY, max_tokens=20)
    wanted = plain(model, other).tokens
    ambiguous = Request(prompt(20), GREEDY, constraint=worst, max_tokens=100)
    tickets = run_all(scheduler, ambiguous, other)
    assert answered(tickets[1]).tokens == wanted
    assert isinstance(tickets[0].error, RequestError)
    assert "too complex for the answer so far" in str(tickets[0].error)
    check_nothing_leaked(scheduler)


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("name", ["schema", "regex", "gbnf"])
def test_banned_texts_are_taken_back_under_a_constraint(
    model: LoadedModel, scheduler: Scheduler, name: str, sampling: Sampling
) -> None:
    free = plain(model, request_of(name, sampling)).text
    # Texts of the answer that the constraint does not force.
    begin, length = {"schema": (25, 3), "regex": (8, 3), "gbnf": (1, 2)}[name]
    banned = tuple({free[at : at + length] for at in (begin, begin + 2)})
    request = request_of(name, dataclasses.replace(sampling, banned=banned))
    wanted = plain(model, request)
    assert matches(name, wanted.text), wanted.text
    assert not any(text in wanted.text for text in banned)
    assert wanted.text != free
    request.drafter = known(model, request)
    made = answered(scheduler.run(request))
    assert (made.tokens, made.text) == (wanted.tokens, wanted.text)
    check_nothing_leaked(scheduler)


def test_a_banned_text_that_the_constraint_forces_is_an_error(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    request = request_of("schema", dataclasses.replace(SEEDED, banned=("person",)))
    ticket = scheduler.submit(request)
    step_until(scheduler, lambda: ticket.done)
    assert isinstance(ticket.error, RequestError)
    assert "banned texts" in str(ticket.error)
    check_nothing_leaked(scheduler)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(mirostat=2, seed=5),
        Sampling(mirostat=1, temperature=0.8, seed=5),
        Sampling(xtc_probability=0.5, dry_multiplier=0.8, top_n_sigma=1.0, seed=5),
        Sampling(temperature=1.0, temperature_range=0.5, typical_p=0.9, seed=5),
        Sampling(logit_bias=((40, 5.0), (41, -20.0)), presence_penalty=1.0, seed=5),
        Sampling(ignore_end=True, temperature=0, seed=5),
    ],
    ids=["mirostat 2", "mirostat 1", "xtc", "dynamic", "bias", "ignore end"],
)
def test_constraints_compose_with_every_sampler(
    model: LoadedModel, scheduler: Scheduler, sampling: Sampling
) -> None:
    request = request_of("schema", sampling)
    wanted = plain(model, request)
    assert matches("schema", wanted.text), wanted.text
    request.drafter = known(model, request)
    assert answered(scheduler.run(request)).tokens == wanted.tokens


@pytest.mark.sweep
@pytest.mark.parametrize("adapted", [False, True])
def test_forty_prompts_have_equal_answers_with_and_without_drafts(
    model: LoadedModel, scheduler: Scheduler, adapted: bool, tmp_path: Path
) -> None:
    stack = NO_ADAPTERS
    if adapted:
        file = tiny_lora.write(tmp_path / "a.gguf", model.path)
        stack = Stack([(load_adapter(file, model.decoder.base), 1.0)])
    names = list(CONSTRAINTS)
    for number in range(40):
        request = request_of(
            names[number % len(names)], prompt=prompt(10 + number, number), stack=stack
        )
        wanted = plain(model, request)
        request.drafter = known(model, request) if number % 2 else lambda _: LookupDrafter()
        assert answered(scheduler.run(request)).tokens == wanted.tokens
