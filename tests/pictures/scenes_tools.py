"""Scenes of tools: the section of the panel, and the page of their activity, for tests/pictures/shots.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QPoint

from app.domain.chat_settings import NO_SETTINGS, AnswerFormat, ChatSettings
from app.domain.tool_activity import Allowed, CallState, ToolActivity
from app.state.tools import PathKind
from app.ui.settings.page import Preferences
from app.ui.tools.page import ActivityPage
from scenes_chat import Scene, ready
from scenes_panel import open_panel
from stage import Stage, flush
from tool_rows import CALCULATE, CLOCK, ISSUES, PYTHON, READ, ROWS, WRITE, call, grant, many

_FILE = Path("/home/ada/Desktop/fish tax 2026.xlsx")
_FOLDER = Path("/home/ada/Harbour")
_GONE = Path("/media/ada/Library of the harbour authority/Books and papers, scanned")
_ON = ChatSettings(
    tools=(CALCULATE.id, CLOCK.id, READ.id, WRITE.id),
    readable=(_FILE, _GONE),
    writable=(_FOLDER,),
)


def _paths(stage: Stage) -> None:
    kinds = {_FILE: PathKind.FILE, _FOLDER: PathKind.FOLDER, _GONE: PathKind.GONE}
    stage.wait_until_idle()
    stage.states.tools.set_paths(kinds)
    flush()


def _panel(stage: Stage) -> None:
    """Four are on."""
    ready(stage)
    stage.states.tools.set_rows(ROWS, "")
    stage.controller.chat_settings.change_shown(_ON)
    open_panel(stage, "tools")
    _paths(stage)


def tools_panel_files(stage: Stage) -> None:
    """The files and folders below them."""
    _panel(stage)
    content = stage.window.panel.content
    content.area.ensureWidgetVisible(content.tools.servers_button, 0, 24)
    flush()


def tools_panel_reason(stage: Stage) -> None:
    """The model cannot use tools; the window is narrow."""
    stage.window.resize(420, 680)
    _panel(stage)
    stage.states.tools.set_rows(ROWS, "This model was not trained to use tools.")
    flush()


def tools_panel_many(stage: Stage) -> None:
    """A server with a thousand, while answers have a format."""
    ready(stage)
    stage.states.tools.set_rows((*ROWS, *many(1000)), "")
    stage.controller.chat_settings.change_shown(NO_SETTINGS.with_format(AnswerFormat.JSON))
    open_panel(stage, "tools")


def tools_settings(stage: Stage) -> None:
    """The settings of tools, with a service that needs a key."""
    ready(stage)
    stage.controller.change_settings(search_provider="brave")
    page = stage.window.preferences.open()
    stage.wait_until_idle()
    page.tools.show_key("brave", kept=True)
    _scroll(page)


def _scroll(page: Preferences) -> None:
    flush()
    top = page.headings["tools"].mapTo(page.column, QPoint()).y()
    page.view.verticalScrollBar().setValue(top)
    flush()


def _calls() -> tuple[ToolActivity, ...]:
    script = '{"source": "import os\\nprint(os.listdir(\'/\'))"}'
    listing = "\n".join(f"#{n} Wall {n} of the harbour leaks at high water" for n in range(90))
    return (
        call(9, WRITE, CallState.DENIED, Allowed.NOBODY, '{"path": "/home/ada/Harbour/costs.csv", '
             '"content": "year,cost\\n1926,12000\\n1927,14500"}', "The user denied this call.",
             title="What the harbour cost"),
        call(8, ISSUES, CallState.DONE, Allowed.CHAT, '{"project": "harbour", "state": "open"}',
             listing, title="What the harbour cost"),
        call(7, CALCULATE, arguments='{"expression": "2384 * 17.5 %"}', title="A sum and a date"),
        call(6, CLOCK, arguments='{"add_days": 90}', result="Saturday, 27 February 2027",
             title="A sum and a date"),
        call(5, PYTHON, CallState.FAILED, Allowed.ONCE, script, "PermissionError: \u202e/",
             title="لماذا السماء زرقاء؟"),
        call(4, READ, CallState.STOPPED, Allowed.ALWAYS, '{"path": "fish tax 2026.xlsx"}', "",
             title=""),
        call(3, ISSUES, CallState.RUNNING, Allowed.ONCE, "{}", "", title="Nightly"),
        call(2, ISSUES, CallState.REFUSED, Allowed.NOBODY, '{"project', "The arguments are wrong.",
             title="Nightly"),
    )  # fmt: skip


def _activity(stage: Stage) -> ActivityPage:
    ready(stage)
    stage.states.tools.set_rows(ROWS, "")
    stage.states.tools.set_activity(_calls(), 8)
    page = stage.window.activity.open()
    flush()
    return page


def activity_open(stage: Stage) -> None:
    """One call in full."""
    page = _activity(stage)
    page.calls.list.setCurrentRow(1)
    page.calls.open_call()
    flush()


def activity_narrow(stage: Stage) -> None:
    """One call in full, in the smallest window."""
    stage.window.resize(420, 360)
    page = _activity(stage)
    page.calls.list.setCurrentRow(0)
    page.calls.open_call()
    flush()


def activity_allowed(stage: Stage) -> None:
    """What was allowed."""
    page = _activity(stage)
    grants = (
        grant(ISSUES, scope="tracker.example.org"),
        replace(grant(READ), digest=""),
        grant(WRITE, conversation=stage.state.conversations[0].id),
    )
    stage.states.tools.set_grants(grants, frozenset({WRITE.id}))
    page.show_allowed()
    page.allowed.list.setFocus()
    flush()


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        tools_panel_files,
        tools_panel_reason,
        tools_panel_many,
        tools_settings,
        activity_open,
        activity_narrow,
        activity_allowed,
    )
}
