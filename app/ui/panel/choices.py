"""Sections of the panel that are a choice: the answer format, thinking, and a full chat."""

from __future__ import annotations

from app.domain.chat_settings import ChatSettings
from app.engines.capabilities import Capabilities
from app.settings.samplers import THINKING, USUAL_BUDGET, Thinking
from app.settings.table import Setting
from app.state.chat_settings import ShownSettings
from app.system.translation import tr
from app.ui.chat.composer.settings_words import part_name
from app.ui.panel.format_field import FormatField
from app.ui.panel.section import Section, note
from app.ui.settings.fields import Segments
from app.ui.settings.row import PreferenceRow
from engine import ContextPolicy


class FormatSection(Section):
    """What every answer has to be."""

    def __init__(self) -> None:
        super().__init__("format")
        self.field = FormatField()
        self.marked = (self.field,)
        self.body.addWidget(self.field)
        self.field.changed.connect(self._on_changed)

    def show_settings(self, shown: ShownSettings) -> None:
        """Show the format of the chat, and whether it can be used."""
        self.field.show_options(shown.settings, shown.fault, checking=shown.checking)

    def show_capabilities(self, capabilities: Capabilities) -> None:
        """Grey the formats that the engine cannot hold an answer to, with the reason."""
        self.field.show_capabilities(capabilities)

    def finish(self) -> None:
        """Commit what is typed."""
        self.field.finish()

    def _on_changed(self, changed: ChatSettings) -> None:
        self.edit(format=changed.format, texts=changed.texts)


class ThinkingSection(Section):
    """Hidden for a model that cannot think, unless something is set."""

    def __init__(self) -> None:
        super().__init__("thinking")
        self.choice = Segments(THINKING["thinking"])
        self.marked = (self.choice,)
        self._help = tr("Slower, often better.")
        self.note = note(self._help)
        budget = THINKING["thinking_budget"]
        self.budget = PreferenceRow("thinking_budget", budget, USUAL_BUDGET, is_compact=True)
        self.body.addWidget(self.choice)
        self.body.addWidget(self.note)
        self.body.addWidget(self.budget)
        self.choice.picked.connect(self._on_choice)
        self.budget.changed.connect(self._on_budget)

    def show_settings(self, shown: ShownSettings) -> None:
        """Show whether the model thinks in the chat."""
        settings = shown.settings
        self.choice.show_value(settings.thinking.value)
        self.budget.show_value(settings.thinking_budget)
        self.budget.setVisible(settings.thinking is Thinking.BUDGET)
        self.setVisible(shown.can_think or settings.thinking is not Thinking.USUAL)

    def show_capabilities(self, capabilities: Capabilities) -> None:
        """Offer what the engine can be told of thoughts; the note says what it cannot, and why."""
        fixed, no_budget = capabilities.reason("thinking"), capabilities.reason("budgets")
        offered = [Thinking.USUAL] if fixed else list(Thinking)
        if no_budget and Thinking.BUDGET in offered:
            offered.remove(Thinking.BUDGET)
        self.choice.offer([each.value for each in offered])
        self.note.setText(fixed or f"{self._help} {no_budget}".rstrip())

    def finish(self) -> None:
        """Commit what is typed."""
        self.budget.finish()

    def _on_choice(self, value: object) -> None:
        self.edit(thinking=Thinking(str(value)))

    def _on_budget(self, _name: str, value: object) -> None:
        self.edit(thinking_budget=int(str(value)))


class PolicySection(Section):
    """What happens when the chat is longer than what the model can take in at once."""

    def __init__(self) -> None:
        super().__init__("policy")
        policies = {
            ContextPolicy.DROP_OLDEST: tr("Forget the oldest messages"),
            ContextPolicy.STOP: tr("Stop and ask"),
        }
        names = tuple(policy.value for policy in policies)
        self._help = tr("Forgotten messages stay in the chat, but the model no longer reads them.")
        words = tuple(policies.values())
        about = Setting(part_name("policy"), self._help, choices=names, words=words)
        self.choice, self.note = Segments(about), note(self._help)
        self.marked = (self.choice,)
        self.body.addWidget(self.choice)
        self.body.addWidget(self.note)
        self.choice.picked.connect(self._on_choice)

    def show_settings(self, shown: ShownSettings) -> None:
        """Show the choice of the chat."""
        self.choice.show_value(shown.settings.policy.value)

    def show_capabilities(self, capabilities: Capabilities) -> None:
        """Grey the choice where the engine has none, with the reason."""
        reason = capabilities.reason("forgetting")
        self.choice.setEnabled(not reason)
        self.note.setText(reason or self._help)

    def _on_choice(self, value: object) -> None:
        self.edit(policy=ContextPolicy(value))
