"""Page of the servers of tools, and the question whether one may start."""

from __future__ import annotations

import sys
from pathlib import Path

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLabel, QLineEdit

from app.domain.tool_servers import ImportPreview, ServerDraft, ServerPhase, ServerRow
from app.ui.tools.code_text import CodeText
from app.ui.tools.servers import ServersPage
from fakes import MODEL
from scenes_tool_servers import LOG, ROWS, START
from stage import Stage, flush, until


def opened(stage: Stage, *rows: ServerRow) -> ServersPage:
    stage.ready(MODEL)
    page = stage.window.servers.open()
    until(lambda: stage.states.tool_servers.is_read)
    stage.states.tool_servers.set_rows(rows)
    flush()
    return page


def texts(page: ServersPage, id: str) -> list[str]:
    """All that a card says."""
    labels = page.cards[id].findChildren(QLabel)
    return [each.text() for each in labels if each.isVisibleTo(page)]


def test_an_empty_page_says_what_a_server_is_and_what_it_may_do(stage: Stage) -> None:
    page = opened(stage)
    assert page.none.isVisible()
    assert "can do all that you can" in page.hint.text()
    stage.states.tool_servers.set_rows(ROWS)
    assert not page.none.isVisible()


def test_each_server_says_where_and_how_it_is(stage: Stage) -> None:
    page = opened(stage, *ROWS)
    said = {id: card.words.text() for id, card in page.cards.items()}
    assert said["files"] == "Running. 2 tools, 1 resource, 1 prompt."
    assert said["tracker"] == "Waits for your login in the browser."
    assert said["db"] == "The program “uvx” was not found. Install it, or enter its full path."
    assert "changed since you allowed it" in said["old"]
    assert said["new"] == "Off."
    on = [id for id, card in page.cards.items() if card.switch.isChecked()]
    assert on == ["files", "tracker", "db"]
    assert page.cards["tracker"].cancel.isVisible()
    assert page.cards["old"].restart.isHidden()


def test_an_opened_server_shows_what_it_offers_in_full_and_its_log(stage: Stage) -> None:
    page = opened(stage, *ROWS)
    logs: list[str] = []
    page.log_requested.connect(logs.append)
    assert "read_file" not in texts(page, "files")
    page.cards["files"].details_button.click()
    stage.states.tool_servers.set_log(LOG)
    assert "Reads a file.\nOnly within the allowed folders." in texts(page, "files")
    assert page.cards["files"].details.log.text() == "\n".join(LOG)
    page.cards["db"].details_button.click()
    assert not page.cards["files"].details.isVisible()
    assert logs == ["files", "db"]


def test_the_buttons_of_a_server_ask_for_what_they_say(stage: Stage) -> None:
    page = opened(stage, *ROWS)
    asked: list[tuple[object, ...]] = []
    for name in ("switched", "restarted", "cancelled", "deleted", "logged_out", "with_app_changed"):
        signal = getattr(page, name)
        signal.disconnect()
        signal.connect(lambda *values, name=name: asked.append((name, *values)))
    page.cards["files"].switch.click()
    page.cards["files"].restart.click()
    page.cards["tracker"].cancel.click()
    page.cards["tracker"].details.log_out.click()
    page.cards["files"].details.with_app.switch.click()
    page.cards["db"].delete.click()
    assert asked == [
        ("switched", "files", False),
        ("restarted", "files"),
        ("cancelled", "tracker"),
        ("logged_out", "tracker"),
        ("with_app_changed", "files", False),
        ("deleted", "db"),
    ]


def test_a_server_is_entered_by_hand_and_its_secrets_are_dots(stage: Stage) -> None:
    page = opened(stage)
    page.add.click()
    editor = page.editor
    assert editor.isVisible()
    editor._line("name").setText("Notes")
    editor._line("command").setText(sys.executable)
    editor.rows["arguments"].field.editor.insert_text('-c\nprint(1)\n"two\\nlines"')  # type: ignore[union-attr]
    editor.environment.add_button.click()
    name, value, _ = editor.environment.lines[0]
    name.setText("TOKEN")
    value.setText("s3cret")
    assert value.echoMode() is QLineEdit.EchoMode.Password
    assert editor.edited() == ServerDraft(
        "", "Notes", sys.executable, ("-c", "print(1)", "two\nlines"),
        environment=(("TOKEN", "s3cret"),),
    )  # fmt: skip
    editor.save.click()
    until(lambda: bool(page.cards))
    assert editor.isHidden()
    assert not (stage.folder / "tool servers.json").read_text(encoding="utf-8").count("s3cret")


def test_what_is_edited_shows_no_secret_and_keeps_one_that_is_not_typed(stage: Stage) -> None:
    page = opened(stage)
    draft = ServerDraft(
        "a", "A", "prog", ("x y", "", "a\nb", '"q"'), environment=(("KEY", None), ("OLD", None))
    )
    stage.states.tool_servers.set_draft(draft)
    assert page.editor.edited() == draft
    assert [value.text() for _, value, _ in page.editor.environment.lines] == ["", ""]
    page.editor.environment._take(1)
    assert page.editor.edited().environment == (("KEY", None),)
    stage.states.tool_servers.set_draft(draft, "Wrong.")
    assert page.editor.problem.isVisible()


def test_the_exact_command_is_shown_and_starting_is_not_what_return_does(stage: Stage) -> None:
    opened(stage, *ROWS)
    answers: list[tuple[int, object]] = []
    stage.window.activateWindow()
    stage.states.tool_servers.set_questions((START,))
    flush()
    view = stage.window.questions.view
    assert view is not None
    view.answered.disconnect()
    view.answered.connect(lambda *values: answers.append(values))
    card = view.card
    assert card is not None
    shown = [each.toPlainText() for each in card.findChildren(CodeText)]
    assert shown[0] == "\n".join(START.command)
    assert shown[1:] == [START.folder, "\n".join(START.environment), "\n".join(START.differences)]
    assert stage.window.focusWidget() is card.no
    card.yes.click()
    assert answers == [(1, True)]


def test_a_server_that_the_user_is_asked_about_says_so_and_the_focus_comes_back(
    stage: Stage,
) -> None:
    page = opened(stage, *ROWS)
    stage.window.activateWindow()
    asked = page.cards[START.server]
    before = asked.words.text()
    asked.switch.setFocus()
    stage.states.tool_servers.set_questions((START,))
    flush()
    assert stage.window.focusWidget() is not asked.switch
    assert asked.switch.isChecked()
    assert asked.words.text() == "It starts when you allow it above."
    stage.states.tool_servers.set_questions(())
    flush()
    assert stage.window.focusWidget() is asked.switch
    assert asked.words.text() == before


def test_a_preview_says_what_is_added_and_what_is_not(stage: Stage) -> None:
    page = opened(stage)
    ended: list[bool] = []
    page.import_ended.disconnect()
    page.import_ended.connect(ended.append)
    stage.states.tool_servers.set_preview(ImportPreview("{}", ROWS[3:], ("“X” uses SSE.",)))
    flush()
    labels = [each.text() for each in page.preview.findChildren(QLabel)]
    assert "2 servers are added. They stay off until you start them." in labels
    assert "“X” uses SSE." in labels
    page.preview.add.click()
    stage.states.tool_servers.set_preview(ImportPreview("{}"))
    assert page.preview.add.isHidden()
    page.preview.cancel.click()
    assert ended == [True, False]


def test_a_dropped_file_and_a_pasted_text_are_previewed(stage: Stage, tmp_path: Path) -> None:
    page = opened(stage)
    text = '{"mcpServers": {"Pasted": {"command": "true"}}}'
    QGuiApplication.clipboard().setText(text)
    page.paste.click()
    until(lambda: stage.states.tool_servers.preview is not None)
    page.preview.cancel.click()
    assert stage.states.tool_servers.preview is None
    file = tmp_path / "mcp.json"
    file.write_text(text.replace("Pasted", "Dropped"), encoding="utf-8")
    page.drops.files_dropped.emit([file])
    until(lambda: stage.states.tool_servers.preview is not None)
    preview = stage.states.tool_servers.preview
    assert preview is not None
    assert [row.name for row in preview.servers] == ["Dropped"]
    assert stage.states.tool_servers.rows == ()
    page.preview.add.click()
    until(lambda: "Off." in [card.words.text() for card in page.cards.values()])


def test_the_page_is_reached_from_the_panel_the_settings_activity_and_connections(
    stage: Stage,
) -> None:
    page = opened(stage)
    window = stage.window
    window.open_panel("tools")
    flush()
    content = window.panel.content
    assert content is not None
    for button in (
        content.tools.servers_button,
        window.preferences.open().tools.servers_button,
        window.activity.open().servers_button,
        window.connections.open().tool_servers,
    ):
        window.close_page()
        button.click()
        assert window.shown_page is page


def test_a_server_in_a_phase_that_ends_by_itself_can_be_cancelled(stage: Stage) -> None:
    page = opened(stage, ServerRow("a", "A", "prog", phase=ServerPhase.STARTING))
    assert page.cards["a"].cancel.isVisible()
    stage.states.tool_servers.set_rows((ServerRow("a", "A", "prog"),))
    assert page.cards["a"].cancel.isHidden()
