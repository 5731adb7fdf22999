"""Status line: model, kernels, speed and context use; a progress bar while a model loads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QStackedLayout, QWidget

from app.domain.model_ref import Local
from app.state.attachments import AttachmentsState
from app.state.chat import ChatModel, Generation, ModelPhase, State
from app.state.devices import moved_words, place_words
from app.state.performance import tokens_per_second
from app.system.translation import listed, number, tr, trn
from app.ui.theme.theme import SMALL, figures
from app.ui.widgets.controls import Bar, ElidedLabel, TextButton, label
from app.ui.widgets.units import load_progress
from engine import ContextPolicy, ModelLoaded, SlowPart, SlowReason

_METER_WIDTH = 96  # pixels
_NEARLY_FULL = 0.8  # share of the context from which the meter warns


class StatusLine(QWidget):
    """One row on the loaded model and the running generation, or on the load in progress."""

    cancel_requested = Signal()
    title_cancelled = Signal()  # the title that the model writes
    policy_requested = Signal()  # the choice of what happens when the shown chat is full

    def __init__(
        self, state: State, attachments: AttachmentsState, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._state, self._attachments = state, attachments
        self.setFixedHeight(28)
        # Elided in the middle: the name is at its start, progress at its end.
        self.words = ElidedLabel("secondary", figures(SMALL), Qt.TextElideMode.ElideMiddle)
        self.meter = Bar()
        self.meter.setFixedWidth(_METER_WIDTH)
        self.context = TextButton("", "quiet")
        self.context.setFont(figures(SMALL))
        self.context.setAccessibleDescription(tr("What happens when this chat is full"))
        self.context.clicked.connect(self.policy_requested)
        self.loading = ElidedLabel("secondary", figures(SMALL))
        self.progress = Bar()
        self.percent = label("", "secondary", SMALL)
        for line in (self.percent,):
            line.setFont(figures(SMALL))
            line.setAlignment(Qt.AlignmentFlag.AlignTrailing | Qt.AlignmentFlag.AlignVCenter)
        self.cancel = TextButton(tr("Cancel"), "link")
        self.cancel.setFont(figures(SMALL))
        self.cancel.clicked.connect(self.cancel_requested)
        self.titling = label(tr("writing a title"), "secondary", SMALL)
        self.cancel_title = TextButton(tr("Cancel"), "link")
        self.cancel_title.setFont(figures(SMALL))
        self.cancel_title.setAccessibleName(tr("Cancel the title"))
        self.cancel_title.clicked.connect(self.title_cancelled)
        self._pages = QStackedLayout(self)
        self._quiet = _row(
            [self.words, self.titling, self.cancel_title, self.meter, self.context], stretch=0
        )
        self._busy = _row([self.loading, self.progress, self.percent, self.cancel], stretch=1)
        self._pages.addWidget(self._quiet)
        self._pages.addWidget(self._busy)
        state.model_changed.connect(self.refresh)
        state.generations_changed.connect(self.refresh)
        state.typed_changed.connect(self.refresh)
        state.titled_changed.connect(self.refresh)
        state.conversation_changed.connect(self.refresh)
        state.chat_model_changed.connect(self.refresh)
        state.message_added.connect(self.refresh)  # also the other one of two compared answers
        state.message_removed.connect(self.refresh)
        attachments.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the load in progress or, without one, the model and the generation."""
        if self._state.model.phase is ModelPhase.LOADING:
            self._show_loading()
        else:
            self._show_quiet()

    def _show_loading(self) -> None:
        model = self._state.model
        share = model.done_bytes / model.total_bytes if model.total_bytes else 0.0
        self._set(self.loading, tr("Loading {name}", name=model.name))
        self._set(self.percent, load_progress(model.done_bytes, model.total_bytes))
        self.progress.set_share(share)
        self._pages.setCurrentWidget(self._busy)

    def _show_quiet(self) -> None:
        state = self._state
        loaded = state.model.loaded
        used = state.context_used
        for part in (self.titling, self.cancel_title):
            part.setVisible(state.titled is not None)
        other = state.chat_model  # the shown chat's, which is not in use
        served = other if other is not None and other.server else None
        measured = bool(loaded) and other is None
        if served is not None:  # whose answers may come without counts
            counted = bool(used or state.shown_generation or not state.messages)
            measured = bool(served.context) and counted
        self.meter.setVisible(measured)
        self.context.setVisible(measured)
        if served is not None:
            place = tr("{name} on {host}", name=served.name, host=served.server)
            speed = self._speed_parts(self._served_speed(served))
            self._set(self.words, " · ".join((place, *speed)))
            takes = trn(
                "It takes in {count} token at once", "It takes in {count} tokens at once",
                served.context,
            )  # fmt: skip
            lines = (takes if served.context else "", state.capabilities.reason("counts"))
            self.words.setToolTip("\n".join(filter(None, lines)))
            if measured:
                self._show_context(used, 0, served.context)
        elif other is not None:
            here = isinstance(other.model, Local)
            not_loaded = tr("{name} is not loaded", name=other.name)
            self._set(self.words, not_loaded if here else other.name)
            self.words.setToolTip("")
        elif loaded:
            whole = (
                each.tokens or 0
                for each in self._attachments.of(state.current)
                if not (each.file and each.file.reads.has_sections)  # read part by part
            )
            unsent = state.typed_tokens + sum(whole)
            self._show_context(min(used, loaded.context), unsent, loaded.context)
            slow = loaded.slow
            self._set(self.words, " · ".join(self._parts(loaded, slow)))
            self.words.setToolTip("\n".join((*_details(loaded), *_slow_details(slow))))
        else:
            self._set(self.words, tr("No model loaded"))
            self.words.setToolTip("")
        self._pages.setCurrentWidget(self._quiet)

    def _show_context(self, used: int, unsent: int, context: int) -> None:
        """Show how many tokens of the context the chat uses, and the message with its files will."""
        state = self._state
        self.meter.set_share((used + unsent) / context if context else 0.0)
        self._set(
            self.context,
            tr("{used} of {total}", used=number(used + unsent), total=number(context)),
        )
        tip = tr(
            "This chat uses {used} of the {total} tokens the model can take in at once",
            used=number(used),
            total=number(context),
        )
        if unsent:
            tip += "\n" + trn(
                "Your message has {count} token", "Your message has {count} tokens", unsent
            )
        full = context > 0 and used + unsent >= _NEARLY_FULL * context
        if full:
            drops = state.settings(state.current).policy is ContextPolicy.DROP_OLDEST
            tip += "\n" + (
                tr("It is nearly full: the oldest messages will be left out.")
                if drops and state.capabilities.forgetting
                else tr("It is nearly full.")
            )
        self.meter.set_warning(full)
        self.meter.setToolTip(tip)
        self.context.setToolTip(tip)

    def _served_speed(self, served: ChatModel) -> float:
        """Tokens/s of the shown answer of a server's model, or of the last one of this chat."""
        generation = self._state.shown_generation
        if generation and generation.tokens_per_second:
            return generation.tokens_per_second
        last = next((one for one in reversed(self._state.messages) if one.details), None)
        if last is None or last.details is None or last.details.model != served.name:
            return 0.0
        return tokens_per_second(last.generated_tokens, last.details.decode_seconds)

    def _speed_parts(self, per_second: float) -> list[str]:
        """The speed and the progress of the shown answer, as far as they are known."""
        generation = self._state.shown_generation
        progress = _progress(generation) if generation else ""
        speed = tr("{speed} tokens/s", speed=number(per_second, 1))
        if not per_second:
            speed = ""
        if progress and not (generation and generation.generated):
            speed = ""  # it is the speed of the previous answer
        return [part for part in (speed, progress) if part]

    def _parts(self, loaded: ModelLoaded, slow: Sequence[SlowPart]) -> list[str]:
        reduced = tr("reduced speed") if slow else ""
        if loaded.offloaded_layers:
            reduced = tr("runs from the disk")
        place = place_words(loaded.runs_on) if loaded.runs_on else ""
        base = tr("not made to chat") if loaded.base else ""
        shown = [part for part in (loaded.name, base, place, reduced) if part]
        return [*shown, *self._speed_parts(self._state.speed)]

    def _set(self, line: QLabel | TextButton, text: str) -> None:
        if line.text() != text:
            line.setText(text)


def _details(loaded: ModelLoaded) -> list[str]:
    """Tooltip lines on a model: architecture, size, and substituted template or vocabulary."""
    lines = [
        tr(
            "{architecture}, {layout}, {millions} million parameters, {megabytes} MB of memory",
            architecture=loaded.architecture,
            layout=loaded.layout,
            millions=number(loaded.parameters / 1e6, 0),
            megabytes=number(loaded.memory_bytes / 1e6, 0),
        )
    ]
    if loaded.runs_on:
        lines.append(tr("Runs on: {place}", place=place_words(loaded.runs_on)))
    lines.append(tr("Kernels: {kernels}", kernels=loaded.kernels))
    if loaded.moved is not None:
        lines.append(moved_words(loaded.moved, loaded.runs_on))
    if loaded.template:
        lines.append(
            tr("Chat template: built-in ({name}), since the file has none", name=loaded.template)
        )
    if loaded.template_problem:
        lines.append(loaded.template_problem)
    if loaded.sampling_unusable:
        keys = listed(loaded.sampling_unusable)
        lines.append(tr("The file recommends values that cannot be used: {keys}", keys=keys))
    if loaded.vocabulary:
        lines.append(tr("Vocabulary: {source}", source=loaded.vocabulary))
    return lines


def _slow_details(slow: Sequence[SlowPart]) -> list[str]:
    """Tooltip lines on the parts of the model that run without a fast kernel."""
    return [tr("Slower than this computer could run it:"), *map(_slow_line, slow)] if slow else []


def _slow_line(slow: SlowPart) -> str:
    match slow.reason:
        case SlowReason.NO_KERNEL:
            return tr(
                "{part}: this version has no fast code for this weight format.", part=slow.part
            )
        case SlowReason.WRONG_KERNEL:
            return tr(
                "{part}: the fast code gave wrong results on this computer and is not used.",
                part=slow.part,
            )
        case SlowReason.WRONG_PROGRAM:
            return tr("The fast code gave wrong results on this computer and is not used.")
        case SlowReason.NOT_LOWERED:
            return tr(
                "{part}: this version has no fast code for this part of the model.", part=slow.part
            )
        case SlowReason.DECODED:
            return tr("{part}: unpacked again for every token, to save memory.", part=slow.part)
        case SlowReason.OFFLOADED:
            return tr(
                "{part}: read from the disk for every word, since memory is full.", part=slow.part
            )
        case _:
            assert_never(slow.reason)


def _progress(generation: Generation) -> str:
    """Prefill progress in tokens, then the number of generated tokens, hidden ones included."""
    if generation.stopping:
        return tr("stopping…")
    if generation.generated:
        count = generation.generated
        return trn("writing, {count} token", "writing, {count} tokens", count)
    if generation.prompt_total:
        return tr(
            "reading {done} of {total} tokens",
            done=number(generation.prompt_done),
            total=number(generation.prompt_total),
        )
    return ""


def _row(widgets: list[QWidget], stretch: int) -> QWidget:
    row = QWidget()
    layout = QHBoxLayout(row)
    layout.setContentsMargins(16, 0, 16, 0)
    layout.setSpacing(12)
    for place, widget in enumerate(widgets):
        layout.addWidget(widget, 1 if place == stretch else 0)
    return row
