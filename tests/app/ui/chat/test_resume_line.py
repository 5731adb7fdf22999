"""Resume line: text for each restore state, its timers, tooltip and constant height."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from app.state.snapshots import Resume, ResumePhase, SessionState
from app.ui.chat.resume_line import (
    SHOWN_MILLISECONDS,
    SLOW_MILLISECONDS,
    ResumeLine,
    exact,
    sentence,
)
from engine import Fault, FaultKind
from stage import flush, until

DONE = ResumePhase.DONE
REFUSED = "The session was saved with another model, Tiny."
OTHER_MODEL = Fault(FaultKind.SAVED_MODEL, "Tiny")
THEN = "This chat was last written with Tiny."


@pytest.fixture
def line(qtbot: QtBot) -> Iterator[tuple[ResumeLine, SessionState]]:
    state = SessionState()
    made = ResumeLine(state)
    qtbot.addWidget(made)
    made.resize(700, 24)
    made.show()
    yield made, state
    state.deleteLater()
    flush()


def timer(line: ResumeLine, interval: int) -> QTimer:
    return next(t for t in line.findChildren(QTimer) if t.interval() == interval)


@pytest.mark.parametrize(
    ("resume", "words"),
    [
        (Resume(1, DONE, 4096, 4096, 4096, 0.2), "Ready to continue"),
        (
            Resume(1, DONE, 0, 0, 9000, 0.2, 31.0, full=True),
            "This chat is full: the model cannot read all of it",
        ),
        (Resume(1, DONE, 4096, 4100, 4120, 0.01), "Ready to continue"),
        (
            Resume(1, DONE, 3000, 3000, 4096, 0.2, 3.4),
            "Your next reply starts after about 3.4 s (the model rereads this chat)",
        ),
        (
            Resume(1, DONE, 0, 0, 4096, 0.0, 12.3),
            "Your next reply starts after about 12 s (the model rereads this chat)",
        ),
        (
            Resume(1, DONE, 0, 0, 20_000, 0.0, 200.0),
            "Your next reply starts after about 3 min (the model rereads this chat)",
        ),
        (
            Resume(1, DONE, 0, 0, 4096),
            "The model rereads this chat before your next reply",
        ),
        (
            Resume(1, DONE, 0, 0, 4096, 0.0, 12.3, REFUSED, OTHER_MODEL),
            f"{THEN}\nYour next reply starts after about 12 s (the model rereads this chat)",
        ),
        (Resume(1, DONE, 0, 0, 40, 0.0, 0.1, REFUSED, OTHER_MODEL), ""),
        (Resume(1, DONE, 0, 0, 4096, 0.0, 0.4, REFUSED, OTHER_MODEL), ""),
        (Resume(1, DONE, 0, 0, 4096, 0.0, 0.4), ""),
        (Resume(1, DONE, 40, 40, 40, 0.1), ""),
        (Resume(1, DONE, 0, 0, 40, 0.0, 0.1), ""),
        (Resume(1, DONE, 0, 4096, 4096), ""),  # still cached in the engine
        (Resume(1, DONE, 0, 5000, 4096), ""),
    ],
)
def test_sentence_for_each_resume_state(resume: Resume, words: str) -> None:
    assert sentence(resume) == words


def test_exact_counts_are_in_the_tooltip(line: tuple[ResumeLine, SessionState]) -> None:
    widget, state = line
    state.set_resume(Resume(1, DONE, 3000, 3010, 4096, 0.2137, 3.44))
    tip = widget.words.toolTip()
    assert tip == exact(state.resume)
    for figure in ("3,000", "1,086", "4,096", "0.2 s", "3.4 s"):
        assert figure in tip


def test_quick_restore_shows_no_progress(line: tuple[ResumeLine, SessionState]) -> None:
    widget, state = line
    state.set_resume(Resume(1))
    assert widget.text == ""
    assert timer(widget, SLOW_MILLISECONDS).isActive()
    state.set_resume(Resume(1, DONE, 4096, 4096, 4096, 0.2))
    assert not timer(widget, SLOW_MILLISECONDS).isActive()
    assert widget.text.startswith("Ready")


def test_slow_restore_shows_progress(line: tuple[ResumeLine, SessionState]) -> None:
    widget, state = line
    state.set_resume(Resume(1))
    timer(widget, SLOW_MILLISECONDS).setInterval(1)
    until(lambda: widget.text == "Restoring this chat…")


def test_complete_restore_is_hidden_after_some_seconds(
    line: tuple[ResumeLine, SessionState],
) -> None:
    widget, state = line
    state.set_resume(Resume(1, DONE, 4096, 4096, 4096, 0.2))
    timer(widget, SHOWN_MILLISECONDS).setInterval(1)
    until(lambda: widget.text == "")


@pytest.mark.parametrize(
    "resume",
    [
        Resume(1, DONE, 0, 0, 4096, 0.0, 12.3),
        Resume(1, DONE, 0, 0, 4096, 0.0, 12.3, REFUSED, OTHER_MODEL),
        Resume(1, DONE, 3000, 3000, 4096, 0.2, 3.4),
    ],
)
def test_pending_prefill_stays_visible(
    line: tuple[ResumeLine, SessionState], resume: Resume
) -> None:
    widget, state = line
    state.set_resume(resume)
    assert not timer(widget, SHOWN_MILLISECONDS).isActive()
    state.set_resume(None)
    assert widget.text == ""


def test_height_is_constant_when_text_appears(line: tuple[ResumeLine, SessionState]) -> None:
    widget, state = line
    empty = widget.sizeHint().height(), widget.minimumSizeHint().height()
    state.set_resume(Resume(1, DONE, 4096, 4096, 4096, 0.2))
    flush()
    assert widget.words.heightForWidth(668) + 6 <= 24
    assert max(widget.minimumHeight(), empty[0]) == 24


def test_refusal_wraps_in_a_narrow_window(line: tuple[ResumeLine, SessionState]) -> None:
    widget, state = line
    state.set_resume(Resume(1, DONE, 0, 0, 4096, 0.0, 12.3, REFUSED, OTHER_MODEL))
    assert widget.words.heightForWidth(340) > widget.words.heightForWidth(900)


@pytest.mark.parametrize("kind", [kind for kind in FaultKind if kind.value.startswith("saved")])
def test_every_refusal_has_a_sentence_and_its_details(kind: FaultKind) -> None:
    resume = Resume(1, DONE, 0, 0, 4096, 0.0, 12.3, REFUSED, Fault(kind))
    why, cost = sentence(resume).split("\n")
    assert why
    assert "session" not in why
    assert cost.startswith("Your next reply starts after")
    assert REFUSED in exact(resume)
