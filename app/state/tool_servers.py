"""Observable state of the servers of tools: each of them, and what the user is asked about them.

Only `app.chat.tools.servers` changes it; values are immutable, as in `app.state.chat`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal

from app.state.observable import Observable, ReadOnly

if TYPE_CHECKING:  # they come with the first server
    from app.domain.tool_servers import ImportPreview, Question, ServerDraft, ServerRow


class ToolServersState(Observable):
    """Observable; each signal is sent after the value has changed."""

    changed = Signal()  # the rows, the fault, the edit, or what was deleted
    preview_changed = Signal()
    questions_changed = Signal()
    log_changed = Signal()

    rows: ReadOnly[tuple[ServerRow, ...]] = ReadOnly(())
    is_read = ReadOnly(False)  # the stored servers were read
    problem = ReadOnly("")  # of the last change, or of what is stored: one sentence each
    draft: ReadOnly[ServerDraft | None] = ReadOnly(None)  # that is being edited
    draft_problem = ReadOnly("")  # why it cannot be kept
    deleted = ReadOnly("")  # name of the server that Undo takes back
    preview: ReadOnly[ImportPreview | None] = ReadOnly(None)
    questions: ReadOnly[tuple[Question, ...]] = ReadOnly(())  # the oldest first
    log: ReadOnly[tuple[str, ...]] = ReadOnly(())  # of the opened server, the oldest line first

    def row(self, id: str) -> ServerRow | None:
        """The server with this id."""
        return next((row for row in self.rows if row.id == id), None)

    # --- changing: app.chat.tools.servers only --------------------------------------------------

    def set_rows(self, rows: Sequence[ServerRow]) -> None:
        """Set the servers."""
        self._set(self.changed, rows=tuple(rows), is_read=True)

    def set_problem(self, problem: str) -> None:
        """Set what is wrong."""
        self._set(self.changed, problem=problem)

    def set_draft(self, draft: ServerDraft | None, problem: str = "") -> None:
        """Set what is being edited, and why it cannot be kept."""
        self._set(self.changed, draft=draft, draft_problem=problem)

    def set_deleted(self, name: str) -> None:
        """Set the server that Undo takes back."""
        self._set(self.changed, deleted=name)

    def set_preview(self, preview: ImportPreview | None) -> None:
        """Set what would be imported."""
        self._set(self.preview_changed, preview=preview)

    def set_questions(self, questions: Sequence[Question]) -> None:
        """Set what the user is asked."""
        self._set(self.questions_changed, questions=tuple(questions))

    def set_log(self, lines: Sequence[str]) -> None:
        """Set the log of the opened server."""
        self._set(self.log_changed, log=tuple(lines))
