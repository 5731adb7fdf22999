"""Section of GPU support: the offer to fetch it, its progress, and what became of it."""

from __future__ import annotations

from typing import assert_never

from PySide6.QtCore import Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.downloads.policy import InstallProgress, InstallStep
from app.state.gpu import GPUPhase, GPUState, GPUView
from app.system.byte_size import size
from app.system.durations import time_left
from app.system.translation import isolated, listed, sentences, tr
from app.ui.theme.theme import BODY, SMALL, figures, font
from app.ui.widgets import accessibility
from app.ui.widgets.controls import Bar, TextButton, label, make_selectable
from app.ui.widgets.wrap import WrapLayout


class GPUSection(QWidget):
    """Shows the state of GPU support; hidden where there is nothing to say."""

    get_requested = Signal()
    stop_requested = Signal()
    retry_requested = Signal()
    remove_requested = Signal()
    restart_requested = Signal()

    def __init__(self, state: GPUState) -> None:
        super().__init__()
        self._state = state
        self._told: GPUPhase | None = None
        self.title = label(tr("GPU support"), "", BODY)
        self.title.setFont(font(BODY, QFont.Weight.Medium))
        self.words = label("", "secondary", SMALL)
        self.words.setFont(figures(SMALL))
        self.problem = label("", "danger", SMALL)
        self.detail = label("", "secondary", SMALL)
        make_selectable(self.detail)
        for line in (self.words, self.problem, self.detail):
            line.setWordWrap(True)
        self.bar = Bar()
        self.get = TextButton("", "primary")
        self.restart = TextButton(tr("Restart now"), "primary")
        self.stop = TextButton(tr("Stop"), "outlined")
        self.retry = TextButton(tr("Try again"), "outlined")
        self.remove = TextButton(tr("Remove"), "outlined")
        self.remove.setAccessibleName(tr("Remove GPU support"))
        self.more = TextButton(tr("Details"), "link")
        self.more.setCheckable(True)
        self._buttons = QWidget()
        row = WrapLayout(self._buttons, 8, centred=False)
        for button in (self.get, self.restart, self.stop, self.retry, self.remove, self.more):
            row.addWidget(button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 8, 0, 8)
        layout.setSpacing(4)
        layout.addWidget(self.title)
        layout.addWidget(self.problem)
        layout.addWidget(self.words)
        layout.addSpacing(2)
        layout.addWidget(self.bar)
        layout.addSpacing(4)
        layout.addWidget(self._buttons)
        layout.addWidget(self.detail)
        self.get.clicked.connect(self.get_requested)
        self.stop.clicked.connect(self.stop_requested)
        self.retry.clicked.connect(self.retry_requested)
        self.remove.clicked.connect(self.remove_requested)
        self.restart.clicked.connect(self.restart_requested)
        self.more.toggled.connect(self._show_detail)
        state.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the state."""
        view, phase = self._state.view, self._state.view.phase
        self.setVisible(phase is not GPUPhase.HIDDEN)
        problem, words = _words(view)
        for line, text in ((self.problem, problem), (self.words, words)):
            if line.text() != text:
                line.setText(text)
            line.setVisible(bool(text))
        progress = view.progress if phase is GPUPhase.INSTALLING else None
        self.bar.setVisible(progress is not None)
        if progress is not None:
            self.bar.set_share(progress.done_bytes / max(progress.size_bytes, 1))
        self.get.setText(_get_words(view))
        focused = next((each for each in self._all_buttons() if each.hasFocus()), None)
        shown = {
            self.get: view.can_get,
            self.restart: phase in (GPUPhase.READY, GPUPhase.REMOVED),
            self.stop: phase is GPUPhase.INSTALLING,
            self.retry: view.can_retry,
            self.remove: view.can_remove,
            self.more: bool(view.detail),
        }
        for button, is_shown in shown.items():
            button.setVisible(is_shown)
        self._buttons.setVisible(any(shown.values()))
        if focused is not None and not shown[focused]:  # what took its place has the focus
            first = next((button for button, is_shown in shown.items() if is_shown), None)
            if first is not None:
                first.setFocus()
        self._show_detail()
        if self._told is not None and phase is not self._told and not self.isHidden():
            accessibility.announce(self, sentences(problem, words))
        self._told = phase

    def _all_buttons(self) -> tuple[TextButton, ...]:
        return (self.get, self.restart, self.stop, self.retry, self.remove, self.more)

    def _show_detail(self) -> None:
        detail = self._state.view.detail
        self.detail.setText(isolated(detail))
        self.detail.setVisible(bool(detail) and self.more.isChecked())


def _words(view: GPUView) -> tuple[str, str]:
    """What went wrong, and the line about the state."""
    match view.phase:
        case GPUPhase.HIDDEN:
            return "", ""
        case GPUPhase.UNAVAILABLE:
            unused = tr("Tokonoma does not use {gpu} of this computer.", gpu=_gpu(view))
            return "", sentences(unused, view.problem, view.remedy)
        case GPUPhase.OFFERED:
            space = tr("It takes {size} of disk space.", size=size(view.unpacked_bytes))
            sent = tr("Nothing is sent before you click.")
            use = tr("With GPU support, models run on {gpu}, much faster.", gpu=_gpu(view))
            return "", sentences(use, space, sent)
        case GPUPhase.BEGUN:
            done, whole = size(view.done_bytes), size(view.size_bytes)
            return "", tr("{done} of {size} are on this computer.", done=done, size=whole)
        case GPUPhase.INSTALLING:
            return "", _progress_words(view.progress)
        case GPUPhase.FAILED | GPUPhase.NOT_USED:
            return view.problem, view.remedy
        case GPUPhase.READY:
            return "", tr("GPU support is installed. Tokonoma uses it from the next start on.")
        case GPUPhase.IN_USE if view.problem:
            return view.problem, tr("GPU support is installed.")
        case GPUPhase.IN_USE:
            return "", tr("Tokonoma can use {gpu}.", gpu=_gpu(view))
        case GPUPhase.REMOVED:
            return "", tr("GPU support is removed at the next start.")
        case _:
            assert_never(view.phase)


def _gpu(view: GPUView) -> str:
    name = isolated(view.gpu) if view.gpu else tr("an NVIDIA GPU")
    return f"{name} ({size(view.memory_bytes)})" if view.memory_bytes else name


def _get_words(view: GPUView) -> str:
    match view.phase:
        case GPUPhase.BEGUN:
            return tr("Go on")
        case GPUPhase.FAILED:
            return tr("Try again")
        case GPUPhase.NOT_USED:
            return tr("Get it again ({size})", size=size(view.size_bytes))
        case _:
            return tr("Get GPU support ({size})", size=size(view.size_bytes))


def _progress_words(progress: InstallProgress | None) -> str:
    if progress is None:
        return ""
    done, whole = size(progress.done_bytes), size(progress.size_bytes)
    match progress.step:
        case InstallStep.DOWNLOADING:
            got = tr("Getting GPU support: {done} of {size}", done=done, size=whole)
            return listed((got, time_left(progress.seconds_left)))
        case InstallStep.WAITING:
            return sentences(tr("{done} of {size} are on this computer.", done=done, size=whole),
                             progress.note)  # fmt: skip
        case InstallStep.UNPACKING:
            return tr("Unpacking…")
        case InstallStep.CHECKING:
            return tr("Checking that the GPU works…")
        case _:
            assert_never(progress.step)
