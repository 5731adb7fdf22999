"""Resume line above the composer: restored cached context, and the time to rebuild the rest.

It keeps its height while it is empty, so that the transcript does not move when text appears.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from app.state.faults import explain
from app.state.snapshots import Resume, ResumePhase, SessionState
from app.system.translation import number, tr
from app.ui.theme.theme import SMALL, figures
from app.ui.widgets.controls import label

SLOW_MILLISECONDS = 300  # a restore that takes less time shows no progress text
SHOWN_MILLISECONDS = 6000
SHORT_TOKENS = 256  # prefills of fewer tokens are too fast to mention
SHORT_SECONDS = 1.0  # a wait that needs no announcement
_HEIGHT = 24  # pixels


class ResumeLine(QWidget):
    """One line of text on `SessionState.resume`."""

    def __init__(self, session_state: SessionState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = session_state
        self.words = label("", "secondary", SMALL, wraps=True)
        self.words.setFont(figures(SMALL))
        self.words.setAlignment(Qt.AlignmentFlag.AlignCenter)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 2, 16, 4)
        layout.addWidget(self.words)
        self.setMinimumHeight(_HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        self._slow_timer = QTimer(self, singleShot=True, interval=SLOW_MILLISECONDS)
        self._slow_timer.timeout.connect(lambda: self._show_text(tr("Restoring this chat…")))
        self._hide_timer = QTimer(self, singleShot=True, interval=SHOWN_MILLISECONDS)
        self._hide_timer.timeout.connect(lambda: self._show_text(""))
        session_state.resume_changed.connect(self.refresh)
        self.refresh()

    @property
    def text(self) -> str:
        """The text shown now."""
        return self.words.text()

    def refresh(self) -> None:
        """Show the resume state; text that needs no attention is hidden after some seconds."""
        self._slow_timer.stop()
        self._hide_timer.stop()
        resume = self._state.resume
        if resume is None:
            self._show_text("")
        elif resume.phase is ResumePhase.RESTORING:
            self._show_text("")
            self._slow_timer.start()
        else:
            text = sentence(resume)
            self._show_text(text, exact(resume) if text else "")
            lasting = resume.refused or resume.full
            if text and not lasting and not _cost(resume):
                self._hide_timer.start()

    def _show_text(self, text: str, tip: str = "") -> None:
        self.words.setText(text)
        self.words.setToolTip(tip)


def sentence(resume: Resume) -> str:
    """The text for a restored conversation: whether it is ready, or the time of the next prefill."""
    if resume.full:
        return tr("This chat is full: the model cannot read all of it")
    cost = _cost(resume)
    if resume.refused:
        why = explain(resume.fault, "", resume.refused).sentence
        return f"{why}\n{cost}" if cost else ""
    if resume.total_tokens < SHORT_TOKENS:
        return ""
    if not resume.restored_tokens:
        return cost
    return cost or tr("Ready to continue")


def exact(resume: Resume) -> str:
    """The exact token counts, times and reasons, for the tooltip."""
    if not resume.unread_tokens:
        lines = [
            tr(
                "The model remembers the whole chat ({total} tokens)",
                total=number(resume.total_tokens),
            )
        ]
    elif not resume.ready_tokens:
        lines = [
            tr(
                "The model must reread the whole chat ({total} tokens)",
                total=number(resume.total_tokens),
            )
        ]
    else:
        lines = [
            tr(
                "The model must reread {unread} of the {total} tokens of this chat",
                unread=number(resume.unread_tokens),
                total=number(resume.total_tokens),
            )
        ]
    if resume.refused:
        lines.append(resume.refused)
    if resume.restored_tokens:
        lines.append(
            tr(
                "{count} tokens were restored from disk in {time}",
                count=number(resume.restored_tokens),
                time=_time(resume.seconds),
            )
        )
    if resume.unread_tokens and resume.remaining_prefill_seconds:
        seconds = number(resume.remaining_prefill_seconds, 1)
        lines.append(tr("Estimated time to reread: {seconds} s", seconds=seconds))
    return "\n".join(lines)


def _cost(resume: Resume) -> str:
    """The prefill that the next message waits for; empty if it is short."""
    unread = resume.unread_tokens
    if unread < SHORT_TOKENS:
        return ""
    if not resume.remaining_prefill_seconds:
        return tr("The model rereads this chat before your next reply")
    if resume.remaining_prefill_seconds < SHORT_SECONDS:
        return ""
    return tr(
        "Your next reply starts after about {time} (the model rereads this chat)",
        time=_time(resume.remaining_prefill_seconds),
    )


def _time(seconds: float) -> str:
    """A duration, rounded: `0.2 s`, `12 s`, `3 min`."""
    if seconds < 9.95:
        return tr("{seconds} s", seconds=number(max(seconds, 0.1), 1))
    if seconds < 99.5:
        return tr("{seconds} s", seconds=round(seconds))
    return tr("{minutes} min", minutes=round(seconds / 60))
