"""Resume line above the composer: restored cached context, and the time to rebuild the rest.

It keeps its height while it is empty, so that the transcript does not move when text appears.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from app.state.snapshots import Resume, ResumePhase, SessionState
from app.ui.theme.theme import SMALL, figures
from app.ui.widgets.controls import label
from app.ui.widgets.units import number

SLOW_MILLISECONDS = 300  # a restore that takes less time shows no progress text
SHOWN_MILLISECONDS = 6000
SHORT_TOKENS = 256  # prefills of fewer tokens are too fast to mention
_HEIGHT = 24  # pixels


class ResumeLine(QWidget):
    """One line of text on `SessionState.resume`."""

    def __init__(self, session_state: SessionState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = session_state
        self.words = label("", "secondary", SMALL)
        self.words.setFont(figures(SMALL))
        self.words.setWordWrap(True)
        self.words.setAlignment(Qt.AlignmentFlag.AlignCenter)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 2, 16, 4)
        layout.addWidget(self.words)
        self.setMinimumHeight(_HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        self._slow_timer = QTimer(self, singleShot=True, interval=SLOW_MILLISECONDS)
        self._slow_timer.timeout.connect(lambda: self._show_text("Restoring…"))
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
            if text and not resume.refused and resume.unread_tokens < SHORT_TOKENS:
                self._hide_timer.start()

    def _show_text(self, text: str, tip: str = "") -> None:
        self.words.setText(text)
        self.words.setToolTip(tip)


def sentence(resume: Resume) -> str:
    """The text for a restored conversation: cached tokens, and the time of the next prefill."""
    cost = _cost(resume)
    if resume.refused:
        return f"{resume.refused}\n{cost}".strip()
    if resume.total_tokens < SHORT_TOKENS:
        return ""
    if not resume.restored_tokens:
        return cost
    ready = f"Ready: {number(resume.restored_tokens)} tokens restored in {_time(resume.seconds)}"
    return f"{ready}. {cost}" if cost else ready


def exact(resume: Resume) -> str:
    """The exact token counts and times, for the tooltip."""
    lines = [
        f"{number(resume.ready_tokens)} of {number(resume.total_tokens)} tokens need not be read again"
    ]
    if resume.restored_tokens:
        lines.append(
            f"{number(resume.restored_tokens)} of them come from the disk, in "
            f"{resume.seconds:.3f} seconds"
        )
    if resume.unread_tokens and resume.remaining_prefill_seconds:
        lines.append(
            f"The other {number(resume.unread_tokens)} take {resume.remaining_prefill_seconds:.1f} seconds, "
            "as fast as the last ones were read"
        )
    return "\n".join(lines)


def _cost(resume: Resume) -> str:
    """The prefill that the next message waits for; empty if it is short."""
    unread = resume.unread_tokens
    if unread < SHORT_TOKENS:
        return ""
    again = " more" if resume.restored_tokens else " again"
    reading = f"Reading {number(unread)} tokens{again}"
    if not resume.remaining_prefill_seconds:
        return f"{reading} comes first with your next message"
    return f"{reading} takes about {_time(resume.remaining_prefill_seconds)} with your next message"


def _time(seconds: float) -> str:
    """A duration, rounded: `0.2 s`, `12 s`, `3 min`."""
    if seconds < 9.95:
        return f"{max(seconds, 0.1):.1f} s"
    if seconds < 99.5:
        return f"{round(seconds)} s"
    return f"{round(seconds / 60)} min"
