"""Scenes of the page of the servers of tools and of their questions, for tests/pictures/shots.py."""

from __future__ import annotations

from app.domain.forms import fields_of
from app.domain.tool_servers import (
    FormQuestion,
    ImportPreview,
    Offered,
    PageQuestion,
    SamplingQuestion,
    ServerDraft,
    ServerPhase,
    ServerRow,
    StartQuestion,
)
from app.system.translation import tr
from scenes_chat import Scene, ready
from stage import Stage, flush, until

ROWS = (
    ServerRow(
        "files", "notes-disk", "npx -y @modelcontextprotocol/server-filesystem /home/ada/notes",
        phase=ServerPhase.READY, is_on=True, asks_first=False, was_allowed=True, with_app=True,
        program="secure-filesystem-server 0.6.3",
        tools=(
            Offered("read_file", "Read file", "Reads a file.\nOnly within the allowed folders."),
            Offered("write_file", "Write file", "Creates a file, or replaces what it has."),
        ),
        resources=(Offered("file:///home/ada/notes/todo.md", "todo.md"),),
        prompts=(Offered("tidy", "Tidy notes", "Sorts the notes of a week."),),
    ),
    ServerRow(
        "tracker", "Tracker", "https://tracker.example.org/mcp", is_http=True,
        phase=ServerPhase.LOGIN, is_on=True, asks_first=False, was_allowed=True,
    ),
    ServerRow(
        "db", "Database", "uvx postgres-mcp --read-only", phase=ServerPhase.FAILED, is_on=True,
        asks_first=False, was_allowed=True,
        problem="The program “uvx” was not found.", remedy="Install it, or enter its full path.",
    ),
    ServerRow("old", "Weather", "python weather.py --key-file /tmp/k", was_allowed=True),
    ServerRow("new", "Imported", "docker run -i --rm mcp/fetch"),
)  # fmt: skip
LOG = (
    "Secure MCP Filesystem Server running on stdio",
    "Client does not support MCP Roots, using allowed directories set from server args",
    "Files: ready",
)
START = StartQuestion(
    1, "old", "Weather",
    ("python", "weather.py", "--key-file", "/tmp/k", '"--note=two words\\u202egpj.exe"'),
    "/home/ada/weather", ("API_KEY", "NODE_OPTIONS"),
    differences=("- python weather.py", "+ python weather.py --key-file /tmp/k"),
)  # fmt: skip
FORM = FormQuestion(
    2, "Tracker", "Where should the new issue go?",
    fields_of({
        "properties": {
            "project": {"title": "Project", "enum": ["web", "app"], "enumNames": ["Web", "App"]},
            "count": {"type": "integer", "title": "Copies", "minimum": 1, "maximum": 9},
            "mail": {"title": "Tell", "format": "email", "description": "Who hears of it."},
            "urgent": {"type": "boolean", "title": "Urgent", "description": "By this evening."},
        },
        "required": ["project"],
    }),
)  # fmt: skip


def empty(stage: Stage) -> None:
    """The first visit."""
    ready(stage)
    stage.window.servers.open()
    until(lambda: stage.states.tool_servers.is_read)
    flush()


def busy(stage: Stage) -> None:
    """Servers in every state; the first is opened."""
    empty(stage)
    state, page = stage.states.tool_servers, stage.window.servers.page
    assert page is not None
    state.set_rows(ROWS)
    flush()
    page.cards["files"].details_button.click()
    stage.controller.tools.servers.open_log("")  # it has none: nothing runs in a scene
    state.set_log(LOG)
    flush()


def states(stage: Stage) -> None:
    """The same, folded."""
    empty(stage)
    stage.states.tool_servers.set_rows(ROWS)
    flush()


def editor(stage: Stage) -> None:
    empty(stage)
    draft = ServerDraft(
        "db", "Database", "uvx", ("postgres-mcp", "--read-only"), "",
        (("DATABASE_URI", None), ("LOG_LEVEL", "debug")),
    )  # fmt: skip
    stage.states.tool_servers.set_draft(draft)
    words = tr("Another server is named “{name}”.", name="Database")
    stage.states.tool_servers.set_draft(draft, words)
    flush()


def imported(stage: Stage) -> None:
    empty(stage)
    preview = ImportPreview("{}", ROWS[3:], ("“Fetch” uses the transport SSE of 2024.",))
    stage.states.tool_servers.set_preview(preview)
    flush()


def start(stage: Stage) -> None:
    states(stage)
    stage.states.tool_servers.set_questions((START,))
    flush()


def form(stage: Stage) -> None:
    """A form above a chat."""
    ready(stage)
    stage.states.tool_servers.set_questions((FORM, START))
    flush()
    stage.window.resize(stage.window.width(), stage.window.height() + 1)
    flush()


def page(stage: Stage) -> None:
    ready(stage)
    address = "https://login.example.org/authorize?client_id=tokonoma&state=5f3b"
    text = "Tracker asks you to log in at login.example.org."
    stage.states.tool_servers.set_questions((PageQuestion(3, "Tracker", address, text),))
    flush()


def sampling(stage: Stage) -> None:
    ready(stage)
    messages = (
        ("system", "Answer in one line."),
        ("user", "Summarise these three issues for the weekly letter."),
    )
    question = SamplingQuestion(4, "Tracker", messages)
    stage.states.tool_servers.set_questions((question,))
    flush()


def narrow(stage: Stage) -> None:
    stage.window.resize(480, 700)
    start(stage)


SCENES: dict[str, Scene] = {
    "tool_servers_empty": empty,
    "tool_servers": states,
    "tool_servers_open": busy,
    "tool_servers_editor": editor,
    "tool_servers_import": imported,
    "tool_servers_start": start,
    "tool_servers_form": form,
    "tool_servers_page": page,
    "tool_servers_sampling": sampling,
    "tool_servers_narrow": narrow,
}
