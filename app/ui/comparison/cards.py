"""The cards about answers, created when they are first opened: its details, and a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.domain.generation_settings import GenerationSettings
from app.state.chat import State
from app.system.translation import tr
from app.ui.widgets.popover import Popover

if TYPE_CHECKING:
    from app.ui.comparison.card import ComparisonCard
    from app.ui.comparison.values import CapabilitiesOf, Mixes, Models
    from app.ui.transcript.message.answer_card import AnswerCard


class AnswerCards(QObject):
    """Opens the cards over the window."""

    comparison_requested = Signal(object, object, object)  # message, GenerationSettings of both

    def __init__(self, window: QWidget, state: State) -> None:
        super().__init__(window)
        self._window = window
        self._state = state
        self.details: AnswerCard | None = None
        self.comparison: ComparisonCard | None = None
        self._popovers: dict[str, Popover] = {}
        self._question = 0  # the message whose question the comparison is about

    @property
    def popovers(self) -> tuple[Popover, ...]:
        """The cards opened so far."""
        return tuple(self._popovers.values())

    def open_details(self, message_id: int, selected: str = "") -> None:
        """Open the card about one answer, and about the selected text."""
        message = self._state.message(message_id)
        if message is None:
            return
        from app.ui.transcript.message.answer_card import CARD_WIDTH, AnswerCard

        if self.details is None:
            self.details = AnswerCard()
            self._add("details", self.details, CARD_WIDTH, tr("About this answer"))
            self.details.resized.connect(partial(self._centre, "details"))
        self.details.show_message(message, selected)
        self._popovers["details"].open_centred()

    def open_comparison(
        self,
        message_id: int,
        choices: Sequence[GenerationSettings],
        mixes: Mixes,
        *,
        thinks: bool,
        models: Models = (),
        capabilities: CapabilitiesOf,
    ) -> None:
        """Open the card that asks how the question of an answer is to be answered twice.

        `mixes` are the saved ones, which it offers; `thinks`: the model can be told to think first;
        `models` are those to choose from, of which `capabilities` says what they can do.
        """
        from app.ui.comparison.card import CARD_WIDTH, ComparisonCard

        if self.comparison is None:
            self.comparison = card = ComparisonCard()
            self._add("comparison", card, CARD_WIDTH, tr("Compare two answers"))
            card.accepted.connect(self._accept)
            card.closed.connect(self._popovers["comparison"].close_card)
            card.resized.connect(partial(self._centre, "comparison"))
            self._state.conversation_changed.connect(self._close_stale)
        self._question = message_id
        self.comparison.show_choices(
            message_id, choices, mixes, thinks=thinks, models=models, capabilities=capabilities
        )
        self._popovers["comparison"].open_centred()

    def _close_stale(self) -> None:
        """Close the comparison's card when its question is not shown any more."""
        if all(message.id != self._question for message in self._state.messages):
            self._popovers["comparison"].close_card()

    def _centre(self, name: str) -> None:
        popover = self._popovers[name]
        if not popover.isHidden():
            popover.centre()

    def _add(self, name: str, content: QWidget, width: int, title: str) -> None:
        self._popovers[name] = Popover(self._window, content, width, title)

    def _accept(
        self, message_id: int, first: GenerationSettings, second: GenerationSettings
    ) -> None:
        self._popovers["comparison"].close_card()
        self.comparison_requested.emit(message_id, first, second)
