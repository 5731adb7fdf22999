"""What a server of tools asks for and offers: forms, answers of the model, resources and prompts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

import tool_servers
from app.domain.parts import FilePart
from app.domain.tool_servers import (
    FormQuestion,
    PageQuestion,
    SamplingQuestion,
    ServerDraft,
    ServerPhase,
)
from app.domain.tools import CallContext, ToolError, ToolOutcome
from engine import Role
from fakes import Cancel
from server_stage import ServerStage
from stage import flush, until

pytestmark = pytest.mark.usefixtures("qapp")
HONEST = Path(tool_servers.__file__).with_name("sdk_tools.py")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, qapp: object) -> Iterator[ServerStage]:
    """One for all: the server takes seconds to start."""
    del qapp
    stage = ServerStage(tmp_path_factory.mktemp("requests") / "data")
    stage.begin()
    stage.look()
    stage.servers.save(ServerDraft("", "Honest", sys.executable, (str(HONEST),)))
    until(lambda: bool(stage.shown.rows))
    stage.allow("Honest")
    until(lambda: bool(stage.row("Honest").prompts))
    yield stage
    stage.close()


def begin(stage: ServerStage, tool: str) -> Future[ToolOutcome]:
    """Call a tool that asks something."""
    source, id = stage.servers.source(), f"{stage.row('Honest').id}/{tool}"
    return asyncio.run_coroutine_threadsafe(
        source.call(id, {}, CallContext(1)), stage.controller.tools.thread_of_tools.loop
    )


def test_a_form_is_filled_in_and_checked_in_the_window(stage: ServerStage) -> None:
    called = begin(stage, "book")
    question = stage.question()
    assert isinstance(question, FormQuestion)
    assert (question.name, question.text) == ("Honest", "Where to?")
    flush()
    view = stage.window.questions.view
    assert view is not None
    card = view.card
    assert card is not None
    assert card.form is not None
    assert stage.window.questions.isVisible()
    city, days = card.form.fields
    assert city.line is not None
    assert days.line is not None
    assert city.line.text() == "Rome"
    days.line.setText("many")
    card.yes.click()
    assert stage.shown.questions  # what is wrong is said, and nothing is sent
    assert days.problem.text() == "Enter a whole number."
    days.line.setText("3")
    card.yes.click()
    until(called.done)
    assert called.result().text.startswith("3 days in Rome")
    flush()
    assert stage.window.questions.isHidden()


def test_a_declined_form_and_a_stopped_call_leave_no_question(stage: ServerStage) -> None:
    called = begin(stage, "book")
    stage.servers.answer(stage.question().number, None)
    until(called.done)
    assert called.result().failed
    called = begin(stage, "book")
    stage.question()
    called.cancel()
    until(lambda: not stage.shown.questions)


def test_the_model_answers_a_server_only_after_consent_and_is_read_before(
    stage: ServerStage,
) -> None:
    called = begin(stage, "name")
    question = stage.question()
    assert isinstance(question, SamplingQuestion)
    assert question.messages == (("user", "Name it."),)
    assert not stage.engine.unfinished
    flush()
    view = stage.window.questions.view
    assert view is not None
    assert view.card is not None
    view.card.yes.click()
    asked = stage.engine.last_generate
    assert [(turn.role, turn.content) for turn in asked.turns] == [(Role.USER, "Name it.")]
    assert asked.max_tokens == 9
    stage.engine.write("Rex")
    stage.drain()
    assert not view.card.yes.isEnabled()  # it is not at its end
    stage.engine.finish()
    stage.drain()
    assert view.card.answer is not None
    assert view.card.answer.text() == "Rex"
    assert not called.done()  # nothing was sent
    view.card.yes.click()
    until(called.done)
    assert called.result().text.startswith("named Rex")


def test_a_refused_request_stops_the_model_and_tells_the_server(stage: ServerStage) -> None:
    called = begin(stage, "name")
    number = stage.question().number
    stage.servers.sampling.write(number)
    assert stage.engine.unfinished
    stage.servers.answer(number, None)
    until(called.done)
    assert called.exception() is not None or called.result().failed
    [asked] = stage.engine.unfinished
    assert stage.engine.commands[-1] == Cancel(asked.request)
    stage.engine.finish()
    stage.drain()


def test_a_prompt_with_values_is_put_into_the_message_field(stage: ServerStage) -> None:
    stage.window.composer.set_text("")
    stage.window.prompt_list.offer_all()
    words = [offer.words for offer in stage.window.prompt_list._offers("greet")]
    assert words == ["greet · Honest"]
    stage.window.prompt_list._offers("greet")[0].use()
    question = stage.question()
    assert isinstance(question, FormQuestion)
    assert [field.name for field in question.fields] == ["who"]
    stage.servers.answer(question.number, {"who": "Ada"})
    until(lambda: "Ada" in stage.window.composer.editor.text())
    assert stage.window.composer.editor.text() == "Greet Ada."
    stage.window.composer.set_text("")


def test_a_resource_is_attached_with_its_name_and_text(stage: ServerStage) -> None:
    row = stage.row("Honest")
    assert [(each.id, each.is_template) for each in row.resources] == [
        ("memo://one", False),
        ("memo://{day}/raw", True),
    ]
    stage.window.attaching.resource_requested.emit(row.id, "memo://one")
    until(lambda: bool(stage.controller.attachments.parts(stage.state.current)))
    [part] = stage.controller.attachments.parts(stage.state.current)
    assert isinstance(part, FilePart)
    assert (part.name, part.text) == ("one.txt", "Buy milk.")
    stage.controller.attachments.clear(stage.state.current)


def test_a_resource_that_is_no_text_says_so(stage: ServerStage) -> None:
    row = stage.row("Honest")
    stage.window.attaching.resource_requested.emit(row.id, "memo://{day}/raw")
    stage.servers.answer(stage.question().number, {"day": "a/b"})
    until(lambda: "server resource" in stage.state.notices)
    stage.state.set_notice("server resource", None)


def test_a_page_is_opened_only_after_consent(
    stage: ServerStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def open_link(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr("app.tool_server_wiring.open_link", open_link)
    loop = stage.controller.tools.thread_of_tools.loop
    answers: list[bool] = []
    for agrees in (False, True):
        asked = asyncio.run_coroutine_threadsafe(
            stage.servers._open_page("Honest", "https://login.example.org/a", "why"), loop
        )
        question = stage.question()
        assert isinstance(question, PageQuestion)
        flush()
        view = stage.window.questions.view
        assert view is not None
        assert view.card is not None
        (view.card.yes if agrees else view.card.no).click()
        until(asked.done)
        answers.append(asked.result())
    assert answers == [False, True]
    assert opened == ["https://login.example.org/a"]


def test_a_server_that_is_switched_off_has_no_tools_and_takes_its_questions_along(
    stage: ServerStage,
) -> None:
    called = begin(stage, "book")
    stage.question()
    stage.servers.switch(stage.row("Honest").id, False)
    stage.reaches(ServerPhase.OFF, "Honest")
    until(called.done)
    assert isinstance(called.exception(), ToolError)
    until(lambda: not stage.shown.questions)
    assert not stage.servers.source().tools()
    assert not stage.row("Honest").prompts
