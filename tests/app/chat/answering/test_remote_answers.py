"""The window with a model that runs elsewhere: choose, ask, stop, continue, and every way to fail."""

from __future__ import annotations

import time
from typing import Any

import pytest
from PySide6.QtWidgets import QLineEdit

from app.domain.message import MessageState
from app.domain.model_ref import Local
from app.domain.parts import TextPart, ThoughtPart, prompt_text
from app.domain.remote_fault import RemoteFault, RemoteFaultKind
from app.system.translation import isolated
from app.ui.panel.content import PanelContent
from app.ui.settings.fields import NumberField
from app.ui.transcript.message.endings import ending
from app.ui.transcript.message.message_tools import tools_for
from engine import Chat
from fake_search import FakeSearch, manual, page
from fakes import MODEL
from hostile_server import (
    Reply,
    Server,
    Step,
    answer,
    chunk,
    error,
    event,
    stream,
)
from remote_stage import KEY, Elsewhere

OTHER = MODEL.with_name("other.gguf")


def line_of(content: PanelContent, name: str) -> QLineEdit:
    field = content.sampling.rows[name].field
    assert isinstance(field, NumberField)
    return field.line


def test_a_server_gets_the_passages_of_the_question(window: Elsewhere, server: Server) -> None:
    server.chat(answer("Two years [1]."))
    window.use()
    search = FakeSearch()
    window.controller.retrieval.search = search
    part = manual()
    assert window.controller.send((part, TextPart("How long is the warranty of the pump?")))
    assert server.asked == []
    search.found(page(part, 1))
    window.until(lambda: bool(server.asked))
    window.ended()
    (asked,) = server.asked[0]["messages"]
    assert asked["content"] == prompt_text(window.state.messages[0].parts)
    assert "two years" in asked["content"]
    assert "Clean the filter" not in asked["content"]


def test_model_is_chosen_and_answers_without_any_model_loaded(
    window: Elsewhere, server: Server
) -> None:
    usage = {"prompt_tokens": 12, "completion_tokens": 5}
    server.chat(answer("Because ", "of it.", usage=usage))
    window.use()
    assert window.window.top_bar.model_button.text() == "big"
    assert not window.window.chat.model_line.isVisible()
    assert window.states.connections.destination == f"127.0.0.1:{server.port}"
    assert window.window.chat.destination.isVisible()
    assert "127.0.0.1" in window.window.chat.destination.words.text()
    assert window.window.chat.empty_view.sentence.isHidden()
    assert window.window.chat.empty_view.facts.text() == f"{isolated('Office')} · 4,096 tokens"
    window.ask()
    message = window.ended()
    assert message.text == "Because of it."
    assert (message.state, message.model) == (MessageState.COMPLETE, "big")
    assert (message.prompt_tokens, message.generated_tokens) == (12, 5)
    assert message.details is not None
    assert message.details.model == "big"
    assert message.details.connection == "Office"
    assert message.details.server == f"127.0.0.1:{server.port}"
    assert server.asked[0]["model"] == "big"
    assert server.asked[0]["messages"] == [{"role": "user", "content": "Why?"}]
    assert "temperature" not in server.asked[0]
    assert not any(isinstance(each, Chat) for each in window.engine.commands)
    assert window.state.settings(window.state.current).model == window.ref
    assert not window.state.capabilities.adapters
    window.window.actions_by_id["adapters"].trigger()
    section = window.window.panel.adapters
    assert section.sentence.text() == window.state.capabilities.reason("adapters")
    assert not section.add_button.isEnabled()
    window.ask("And then?")
    window.ended()
    assert [each["role"] for each in server.asked[1]["messages"]] == ["user", "assistant", "user"]


def test_speed_and_context_are_those_that_the_server_reports(
    window: Elsewhere, server: Server
) -> None:
    usage = {"prompt_tokens": 3000, "completion_tokens": 500}
    slow = stream(chunk("One"), 0.1, chunk(" two"), chunk(finish="stop"), _used(usage))
    server.chat(slow, answer("Three."))
    window.use()
    line = window.window.chat.status_line
    assert line.words.text() == f"big on 127.0.0.1:{server.port}"
    assert line.context.text() == "0 of 4,096"
    window.ask()
    window.ended()
    assert "tokens/s" in line.words.text()
    assert line.context.text() == "3,500 of 4,096"
    assert "nearly full" in line.context.toolTip()
    assert "left out" not in line.context.toolTip()  # a server refuses a chat that is too long
    window.controller.new_conversation()
    window.use()
    window.ask()  # of this answer the server reports nothing
    window.ended()
    assert "tokens/s" not in line.words.text()
    assert line.meter.isHidden()
    assert line.context.isHidden()


def _used(usage: dict[str, int]) -> dict[str, Any]:
    return {**chunk(), "choices": [], "usage": usage}


def test_thoughts_are_a_part_of_their_own(window: Elsewhere, server: Server) -> None:
    server.chat(stream(chunk(None, reasoning_content="Hm"), chunk("Yes"), chunk(finish="stop")))
    window.use()
    window.ask()
    message = window.ended()
    assert [part.text for part in message.parts if isinstance(part, ThoughtPart)] == ["Hm"]
    assert message.text.endswith("Yes")


def test_chosen_sampling_and_instructions_are_sent(window: Elsewhere, server: Server) -> None:
    server.chat(answer("A"))
    window.use()
    window.controller.change_settings(
        system_prompt="Be brief.", temperature=0.3, own_sampling="temperature", max_tokens=50
    )
    window.ask()
    window.ended()
    sent = server.asked[0]
    assert (sent["temperature"], sent["max_tokens"]) == (0.3, 50)
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    assert "top_k" not in sent


def test_panel_leaves_values_to_the_server_and_says_so(window: Elsewhere, server: Server) -> None:
    server.chat(answer("One."), answer("Two."), answer("Three."))
    window.controller.change_settings(min_p=0.2, own_sampling="min_p")
    window.use()
    window.window.toggle_panel()
    content = window.window.panel.content
    assert content is not None
    line, min_p, seed = (line_of(content, name) for name in ("temperature", "min_p", "seed"))
    assert (line.text(), line.placeholderText()) == ("", "By the server")
    assert (min_p.text(), seed.text()) == ("0.2", "Random")  # one is chosen in the settings
    host = server.address.removeprefix("http://").removesuffix("/v1")
    assert content.model.line.text() == f"It runs on {isolated(host)}."
    assert not content.policy.choice.isEnabled()
    assert content.policy.note.text() == f"{host} refuses a chat that is longer than it takes."
    assert not content.thinking.choice.buttons["budget"].isEnabled()
    menu = [action.text() for action in content.model.menu_of_models().actions()]
    assert "big · Office" in menu
    window.ask()
    window.ended()
    assert "temperature" not in server.asked[-1]
    line.setText("0.7")  # also the value that models on this computer have
    line.setModified(True)
    line.editingFinished.emit()
    window.ask()
    window.ended()
    assert server.asked[-1]["temperature"] == 0.7
    line.clear()
    line.setModified(True)
    line.editingFinished.emit()
    window.ask()
    window.ended()
    assert "temperature" not in server.asked[-1]
    window.controller.new_conversation()
    window.controller.load_model(MODEL)
    window.engine.finish_load()
    window.wait_until_idle()
    assert (line.text(), line.placeholderText()) == ("0.7", "")
    assert content.policy.choice.isEnabled()
    assert content.thinking.choice.buttons["budget"].isEnabled()


def test_stop_keeps_the_text_and_closes_the_socket(window: Elsewhere, server: Server) -> None:
    server.chat(Reply([event(chunk("Half")), Step.HOLD]))
    window.use()
    window.ask()
    window.until(lambda: window.state.messages[-1].text == "Half")
    started = time.monotonic()
    window.controller.stop()
    window.until(lambda: not window.state.generations)
    window.until(server.received[-1].gone.is_set)
    assert time.monotonic() - started < 5
    message = window.ended()
    assert (message.text, message.state) == ("Half", MessageState.STOPPED)


def test_cut_line_keeps_the_text_and_can_be_continued(window: Elsewhere, server: Server) -> None:
    server.chat(Reply([event(chunk("One, two,")), 0.05, Step.CLOSE]))
    window.use()
    window.ask("Count")
    message = window.ended()
    assert message.state is MessageState.FAILED
    assert message.text == "One, two,"
    assert message.error is not None
    fault = message.error.fault
    assert isinstance(fault, RemoteFault)
    assert (fault.kind, fault.partial) == (RemoteFaultKind.CUT, True)
    assert "was cut in the middle" in ending(message)
    assert "continue" in [tool.name for tool in tools_for(message, busy=False)]
    server.chat(answer(" three."))
    window.controller.continue_answer(message.id)
    message = window.ended()
    assert message.text == "One, two, three."
    assert message.state is MessageState.COMPLETE
    assert server.asked[-1]["messages"][-1] == {"role": "assistant", "content": "One, two,"}
    assert server.asked[-1]["continue_final_message"]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (error("Invalid key", 401), "does not accept the key"),
        (error("Rate limit", 429, Retry_After="3600"), "limits the number of requests"),
        (error("The model `big` does not exist.", 404), "does not have the model big"),
        (error("This model's maximum context length is 4096 tokens. However, your request has "
               "5000 input tokens", 400),
         "This chat has 5,000 tokens, and the model can read 4,096 at once."),
        (Reply([b"<html><title>Sign in</title>"], headers={"Content-Type": "text/html"}),
         "answered with a web page: “Sign in”"),
        (Reply([Step.RESET]), "closed the connection before it answered"),
    ],
)  # fmt: skip
def test_every_error_is_one_sentence_under_the_message(
    window: Elsewhere, server: Server, reply: Reply, words: str
) -> None:
    server.chat(reply)
    window.use()
    window.ask()
    message = window.ended()
    assert message.state is MessageState.FAILED
    assert words in ending(message)
    assert KEY not in ending(message)
    assert "continue" not in [tool.name for tool in tools_for(message, busy=False)]
    server.chat(answer("Now"))
    window.ask("Again")
    assert window.ended().text == "Now"


def test_answer_says_that_its_server_loads_the_model(window: Elsewhere, server: Server) -> None:
    loading = error("Loading model", 503, 503, "unavailable_error")
    server.chat(loading, answer("Ready"))
    notes: list[str] = []
    window.state.waiting_changed.connect(lambda *_: notes.extend(window.state.waiting.values()))
    window.use()
    window.ask()
    assert window.ended().text == "Ready"
    assert any("still loading the model" in note for note in notes)
    assert not window.state.waiting


def test_other_chat_is_answered_by_the_loaded_model_meanwhile(
    window: Elsewhere, server: Server
) -> None:
    usage = {"prompt_tokens": 12, "completion_tokens": 5}
    timings = {"prompt_n": 12, "prompt_ms": 50, "predicted_n": 5, "predicted_ms": 200}
    last = {**chunk(finish="stop"), "usage": usage, "timings": timings}
    server.chat(stream(chunk("Fast"), last), Reply([event(chunk("Elsewhere")), Step.HOLD]))
    window.use()
    window.ask()
    assert window.ended().seconds == 0.25
    assert window.state.last_speed == 0  # the speed beside the loaded model is its own
    window.ask()
    first = window.state.current
    window.until(lambda: window.state.messages[-1].text == "Elsewhere")
    window.controller.new_conversation()
    for model in (MODEL, OTHER):  # neither waits for the answer elsewhere, nor stops it
        window.controller.load_model(model)
        window.engine.finish_load()
        window.wait_until_idle()
    window.controller.send("Here?")
    window.engine.write("Here.")
    window.engine.finish()
    window.wait_until_idle()
    assert window.state.messages[-1].text == "Here."
    assert [each.model for each in window.state.generations.values()] == [window.ref]
    assert window.state.settings(window.state.current).model == Local(OTHER)
    assert first is not None
    assert window.state.settings(first).model == window.ref


def test_deleted_connection_is_one_sentence(window: Elsewhere, server: Server) -> None:
    server.chat(answer("A"))
    window.use()
    window.ask()
    window.ended()
    window.controller.network.connections.delete(window.connection)
    window.until(lambda: not window.state.served)
    window.wait_until_idle()
    assert not window.controller.send("And now?")
    assert any("not set up here" in str(notice) for notice in window.state.notices.values())


def test_quitting_interrupts_an_answer_that_can_be_continued(
    window: Elsewhere, server: Server
) -> None:
    server.chat(Reply([event(chunk("Half")), Step.HOLD]))
    window.use()
    window.ask()
    window.until(lambda: window.state.messages[-1].text == "Half")
    window.controller.shut_down()
    assert window.state.messages[-1].state is MessageState.INTERRUPTED
    assert window.state.messages[-1].text == "Half"
    window.until(server.received[-1].gone.is_set)
