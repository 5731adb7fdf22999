"""Search results open at their message, in its branch, with the words highlighted."""

from __future__ import annotations

from pathlib import Path

from fakes import MODEL
from stage import Stage


def ask(stage: Stage, question: str, answer: str) -> None:
    stage.controller.send(question)
    stage.engine.write(answer)
    stage.engine.finish()
    stage.wait_until_idle()


def search(stage: Stage, query: str) -> None:
    stage.window.sidebar.search.setText(query)
    stage.wait_until_idle()


def open_first(stage: Stage) -> None:
    stage.window.sidebar.search.returnPressed.emit()
    for _ in range(4):  # the message is looked up, then its branch
        stage.wait_until_idle()


def count(stage: Stage) -> str:
    return stage.window.chat.find_bar.count.text()


def test_enter_right_after_typing_opens_the_first_result_not_the_first_chat(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "What is tea?", "A drink.")
    (tea,) = stage.state.conversations
    stage.controller.new_conversation()
    ask(stage, "Hello", "Hello!")
    stage.controller.new_conversation()
    stage.window.sidebar.search.setText("drink")
    open_first(stage)
    assert stage.state.current == tea.id


def test_result_opens_at_its_message(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "What is tea?", "A drink made of leaves. " * 200)
    ask(stage, "And coffee?", "Beans, roasted. " * 200)
    stage.controller.new_conversation()
    ask(stage, "Hello", "Hello!")
    search(stage, "LEAVES drink")
    (result,) = stage.state.found
    assert stage.state.hits[result.id].snippet.startswith("A drink made of leaves.")
    open_first(stage)
    assert stage.state.current == result.id
    bar = stage.window.chat.find_bar
    assert bar.isVisible()
    assert bar.field.text() == "LEAVES drink"
    assert count(stage) == "1 of 400"
    spots = stage.window.transcript.finder.current_spots()
    assert spots is not None
    assert spots[0][0] == 1  # in the first answer, although the chat opens at its end


def test_result_in_a_chat_of_an_earlier_run_opens_at_its_message(tmp_path: Path) -> None:
    before = Stage(tmp_path)
    before.ready(MODEL)
    ask(before, "What is tea?", "A drink made of leaves. " * 200)
    before.close()
    again = Stage(tmp_path)
    again.ready(MODEL)
    again.controller.new_conversation()
    search(again, "leaves")
    open_first(again)
    assert [message.text[:7] for message in again.state.messages] == ["What is", "A drink"]
    assert count(again) == "1 of 200"
    again.close()


def test_result_in_another_branch_shows_that_branch(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "A colour?", "Magenta.")
    stage.controller.regenerate(stage.state.messages[-1].id)
    stage.engine.write("Turquoise.")
    stage.engine.finish()
    stage.wait_until_idle()
    search(stage, "magenta")
    open_first(stage)
    assert stage.state.messages[-1].text == "Magenta."
    assert count(stage) == "1 of 1"
    search(stage, "turquoise")
    open_first(stage)
    assert stage.state.messages[-1].text == "Turquoise."
    assert count(stage) == "1 of 1"


def test_result_by_title_opens_without_the_find_bar(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "A colour?", "Magenta.")
    stage.controller.conversations.rename(stage.state.conversations[0].id, "Paint")
    search(stage, "paint")
    assert not stage.state.hits
    open_first(stage)
    assert stage.window.chat.find_bar.isHidden()
    search(stage, "")
    assert stage.state.shown_conversations == stage.state.conversations


def test_answer_being_written_keeps_its_branch(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "A colour?", "Magenta.")
    stage.controller.regenerate(stage.state.messages[-1].id)
    stage.engine.write("Turqu")
    search(stage, "magenta")
    open_first(stage)
    assert stage.state.messages[-1].text == "Turqu"
    assert count(stage) == "Not found"
    stage.engine.finish()
    stage.wait_until_idle()


def test_message_deleted_meanwhile_is_no_error(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "A colour?", "Magenta.")
    search(stage, "magenta")
    stage.controller.new_conversation()
    stage.controller.deletions.delete_message(stage.state.hits[stage.state.found[0].id].message)
    open_first(stage)
    assert stage.state.current == stage.state.found[0].id
    assert not stage.state.notices
