"""Line and card below the chips: what the next prompt costs, and the ways out when it does not fit."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QMenu, QVBoxLayout, QWidget

from app.domain.file_words import tokens_words
from app.state.attachments import Attachment, AttachmentsState, FitEstimate
from app.state.chat import ModelPhase, State
from app.system.byte_size import size
from app.system.durations import rough_time
from app.system.translation import listed, number, tr, trn
from app.ui.theme import icons
from app.ui.theme.palette import Palette, follow_palette
from app.ui.theme.theme import SMALL, figures, font
from app.ui.widgets import accessibility
from app.ui.widgets.controls import TextButton, label, set_margins, set_property
from app.ui.widgets.menus import new_menu, popup_below
from app.ui.widgets.wrap import WrapLayout


class FitLine(QFrame):
    """A quiet line while all fits; else a card with one sentence and five ways."""

    pages_requested = Signal(object)  # id of the attachment whose pages are to be chosen
    detail_requested = Signal(int, object)  # id of a picture, and the most tokens of it
    parts_requested = Signal()  # read the files part by part
    passages_requested = Signal(object)  # ids of the attachments of which passages are to be read
    longer_requested = Signal()  # load the model with the longer context
    model_requested = Signal()  # choose another model
    model_chosen = Signal(object)  # ModelRef of one that reads it all

    def __init__(self, chat: State, state: AttachmentsState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("fit")
        self._chat, self._state = chat, state
        self._sign = QLabel()
        self.words = label("", "secondary", SMALL, wraps=True)
        self.words.setFont(figures(SMALL))
        self.detail_button = TextButton(tr("Less detail"), "outlined")
        self.pages_button = TextButton(tr("Choose pages…"), "outlined")
        self.passages_button = TextButton(tr("Only passages that fit the question"), "outlined")
        self.parts_button = TextButton(tr("All of it, part by part"), "outlined")
        self.longer_button = TextButton(tr("A longer context"), "outlined")
        self.model_button = TextButton(tr("Another model…"), "outlined")
        self.buttons = (
            self.detail_button, self.pages_button, self.passages_button, self.parts_button,
            self.longer_button, self.model_button,
        )  # fmt: skip
        self.reasons = label("", "secondary", SMALL, wraps=True)
        self._lay_out()
        self.detail_button.clicked.connect(self._see_less)
        self.pages_button.clicked.connect(self._choose_pages)
        self.passages_button.clicked.connect(self._choose_passages)
        self.parts_button.clicked.connect(self.parts_requested)
        self.longer_button.clicked.connect(self.longer_requested)
        self.model_button.clicked.connect(self._choose_model)
        for signal in (
            state.changed,
            state.fit_changed,
            chat.conversation_changed,
            chat.model_changed,
            chat.chat_model_changed,
        ):
            signal.connect(self.refresh)
        self.refresh()
        follow_palette(self._recolor)

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(self._sign, 0, Qt.AlignmentFlag.AlignTop)
        head.addWidget(self.words, 1)
        self._ways = QWidget()
        wrap = WrapLayout(self._ways, 6, centred=False)
        for button in self.buttons:
            button.setFont(font(SMALL))
            wrap.addWidget(button)
        layout = QVBoxLayout(self)
        set_margins(layout, 8, 2, 8, 4)
        layout.setSpacing(8)
        layout.addLayout(head)
        layout.addWidget(self._ways)
        layout.addWidget(self.reasons)

    def refresh(self) -> None:
        """Show the estimate of the shown chat, while files are attached, sending was refused, or
        earlier files are no longer read.
        """
        fit, files = self._state.fit, self._files
        is_shown = fit is not None and bool(files or self._state.refused or fit.forgotten)
        if fit is not None and is_shown:
            self._show(fit, files)
        self.setVisible(is_shown)

    def _recolor(self, palette: Palette) -> None:
        ratio = self.devicePixelRatioF()
        self._sign.setPixmap(icons.pixmap("warning", palette.warning, 16, ratio))

    # --- content --------------------------------------------------------------------------------

    @property
    def _files(self) -> tuple[Attachment, ...]:
        """The files of the message that it is about."""
        fit = self._state.fit
        return self._state.of((fit and fit.editing) or self._chat.current)

    @property
    def _model(self) -> str:
        """The name of the model that will read it."""
        chat, model = self._chat.chat_model, self._chat.model
        loaded = model.name if model.phase is ModelPhase.READY else ""
        return (chat.name if chat else loaded) or tr("The model")

    def _show(self, fit: FitEstimate, files: tuple[Attachment, ...]) -> None:
        is_card = not fit.fits
        words = (
            self._fault(fit, files)
            if is_card
            else cost_words(fit, sum(each.part is not None for each in files))
        )
        if is_card and (self.words.text() != words or self.isHidden()):
            accessibility.announce(self, words)
        self.words.setText(words)
        set_property(self.words, "tone", "" if is_card else "secondary")
        set_property(self, "look", "card" if is_card else "line")
        for part in (self._sign, self._ways):
            part.setVisible(is_card)
        reasons = self._offer(fit, files) if is_card else []
        if fit.forgotten:
            names = listed(fit.forgotten)
            reasons.append(tr("Of earlier files, not read any more: {names}.", names=names))
        self.reasons.setText("\n".join(reasons))
        self.reasons.setVisible(bool(reasons))

    def _fault(self, fit: FitEstimate, files: tuple[Attachment, ...]) -> str:
        """What does not fit, in one sentence with its numbers."""
        model, context = self._model, number(fit.context)
        room = fit.context - fit.answer_tokens
        largest = max(files, key=lambda each: each.tokens or 0, default=None)
        if largest is not None and (largest.tokens or 0) > room:
            tokens = tokens_words(largest.tokens or 0, approximate=largest.approximate)
            return tr(
                "{name} has {tokens}; {model} reads {context} at once.",
                name=largest.shown_name, tokens=tokens, model=model, context=context,
            )  # fmt: skip
        if fit.file_tokens > room:
            tokens = tokens_words(fit.file_tokens, approximate=fit.approximate)
            return tr(
                "The files have {tokens} together; {model} reads {context} at once.",
                tokens=tokens, model=model, context=context,
            )  # fmt: skip
        tokens = tokens_words(fit.tokens, approximate=fit.approximate)
        return tr(
            "All of it has {tokens}, and the answer needs {answer}; {model} reads"
            " {context} at once.",
            tokens=tokens, answer=number(fit.answer_tokens), model=model, context=context,
        )  # fmt: skip

    def _offer(self, fit: FitEstimate, files: tuple[Attachment, ...]) -> list[str]:
        """Enable the ways that there are; returns why the others are none."""
        reasons: list[str] = []
        pictures = any(each.is_image for each in files)
        least = tr("The model cannot see them with less detail.")
        self._offer_if(pictures, self.detail_button, "" if fit.less_detail else least, reasons)
        is_text = any(each.file for each in files) or not files
        paged = [each for each in files if each.file and len(each.file.pages) > 1]
        no_pages = tr("No file here has pages.")
        self._offer_if(is_text, self.pages_button, "" if paged else no_pages, reasons)
        whole = [e for e in files if e.file and e.file.name and e.file.reads.is_counted]
        none = tr("Only passages are read already.") if files else tr("No file is attached.")
        self._offer_if(is_text, self.passages_button, "" if whole else none, reasons)
        self.parts_button.setVisible(bool(whole))
        longer = fit.longer_context
        if longer is None:
            why = tr("{model} cannot read more at once.", model=self._model)
            self.longer_button.setText(tr("A longer context"))
            self._enable(self.longer_button, why, reasons)
        else:
            tokens, memory = number(longer.tokens), size(longer.size_bytes)
            self.longer_button.setText(
                tr("A longer context: {tokens} tokens, {memory}", tokens=tokens, memory=memory)
            )
            why = tr("A context of {tokens} tokens needs {memory}, more than is free.",
                     tokens=tokens, memory=memory)  # fmt: skip
            self._enable(self.longer_button, "" if longer.fits else why, reasons)
        if not fit.models:
            reasons.append(tr("None of your other models can read it all."))
        return reasons

    def _offer_if(
        self, condition: bool, button: TextButton, why_not: str, reasons: list[str]
    ) -> None:
        """Show a way where the condition holds."""
        button.setVisible(condition)
        if condition:
            self._enable(button, why_not, reasons)

    def _enable(self, button: TextButton, why_not: str, reasons: list[str]) -> None:
        button.setEnabled(not why_not)
        button.setAccessibleDescription(why_not)
        button.setToolTip(why_not)
        if why_not:
            reasons.append(why_not)

    def _see_less(self) -> None:
        fit = self._state.fit
        for id, tokens in fit.less_detail if fit is not None else ():
            self.detail_requested.emit(id, tokens)

    def _choose_pages(self) -> None:
        files = self._files
        paged = [each for each in files if each.file and len(each.file.pages) > 1]
        if paged:
            self.pages_requested.emit(max(paged, key=lambda each: each.tokens or 0).id)

    def models_menu(self) -> QMenu:
        """The models that read it all, then all of them."""
        menu = new_menu(self)
        fit = self._state.fit
        for each in fit.models if fit is not None else ():
            context = trn("{count} token", "{count} tokens", each.context)
            words = tr("{name}, {context}", name=each.name, context=context)
            menu.addAction(words, partial(self.model_chosen.emit, each.model))
        menu.addSeparator()
        menu.addAction(tr("All models…"), self.model_requested.emit)
        return menu

    def _choose_model(self) -> None:
        fit = self._state.fit
        if fit is not None and fit.models:
            popup_below(self.models_menu(), self.model_button)
        else:
            self.model_requested.emit()

    def _choose_passages(self) -> None:
        files = self._files
        self.passages_requested.emit([each.id for each in files if each.file and each.name])


def cost_words(fit: FitEstimate, files: int) -> str:
    """What the files cost: tokens, the time until the first words, and what is read already.

    Of those that are read part by part, the parts and the time until all are done.
    """
    tokens = (fit.file_tokens + fit.part_tokens) or fit.tokens
    parts = [
        trn("{count} file", "{count} files", files) if files else "",
        tokens_words(tokens, approximate=fit.approximate) if tokens else "",
    ]
    if fit.parts:
        parts.append(trn("read in about {count} part", "read in about {count} parts", fit.parts))
        if fit.part_seconds:
            parts.append(tr("done in about {time}", time=rough_time(fit.part_seconds)))
        return listed(parts)
    if fit.seconds >= 0.5:
        parts.append(tr("first words in about {time}", time=rough_time(fit.seconds)))
    words = listed(parts)
    if fit.cached_tokens:
        return tr("{words}; {count} already read", words=words, count=number(fit.cached_tokens))
    return words
