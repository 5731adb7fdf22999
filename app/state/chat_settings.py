"""Observable settings of the shown chat, with what they mean for the model in use."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import Signal

from app.domain.chat_settings import NO_SETTINGS, ChatSettings, changed_parts
from app.state.observable import Observable, ReadOnly
from engine import Sampling

_ENGINE = Sampling()


@dataclass(frozen=True, slots=True)
class FormatFault:
    """Why the described format cannot be used."""

    sentence: str
    line: int = 0  # from 1; 0: not known
    column: int = 0


@dataclass(frozen=True, slots=True)
class ShownSettings:
    """The settings of the shown chat, and what is used where they say nothing."""

    settings: ChatSettings = NO_SETTINGS
    usual: Sampling = _ENGINE  # what its answers are sampled with where nothing is changed
    unknown_usual: frozenset[str] = frozenset()  # samplers left to the server of its model
    usual_instructions: str = ""  # of its folder, or of the settings
    fault: FormatFault | None = None
    checking: bool = False  # the newest description is being checked
    has_usual_model: bool = True  # it is loaded, new chats begin with it, or there is none
    can_think: bool = False  # the model in use can think before it answers
    instructions: str = ""  # as the model reads them, with their variables replaced
    instruction_tokens: int = 0  # of them; 0: none, or not counted yet

    @property
    def changed(self) -> frozenset[str]:
        """The parts that are not as usual; every answered chat has a model, usually the loaded one."""
        changed = changed_parts(self.settings)
        return changed - {"model"} if self.has_usual_model else changed


class ChatSettingsState(Observable):
    """Only `app.chat.settings.chat_settings` changes it."""

    changed = Signal()

    shown = ReadOnly(ShownSettings())

    @property
    def settings(self) -> ChatSettings:
        """The settings of the shown chat."""
        return self.shown.settings

    def set(self, shown: ShownSettings) -> None:
        """Replace the values; emits `changed` if one differs."""
        self._set(self.changed, shown=shown)
