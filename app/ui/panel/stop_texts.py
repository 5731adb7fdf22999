"""Stop section of the panel: texts at which an answer ends, one on each line."""

from __future__ import annotations

import re

from app.settings.table import Setting
from app.state.chat_settings import ShownSettings
from app.system.translation import tr
from app.ui.panel.section import Section, note
from app.ui.settings.fields import TextField
from app.ui.theme.theme import SMALL, code_font

_LINES = 3
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "s": " ", "\\": "\\"}
_SHOWN = {text: f"\\{key}" for key, text in _ESCAPES.items() if text != " "}
_EDGE = re.compile(r"^ +| +$")  # spaces that nobody would see


def lines_of(stops: tuple[str, ...]) -> str:
    """Texts as lines, with escapes for line breaks, tabs, backslashes, and spaces at an edge."""
    lines = ("".join(_SHOWN.get(char, char) for char in text) for text in stops)
    return "\n".join(_EDGE.sub(lambda found: "\\s" * len(found[0]), line) for line in lines)


def stops_of(lines: str) -> tuple[str, ...]:
    """The texts of lines; blank ones and repetitions are left out, an unknown escape is itself."""
    texts = [
        re.sub(r"\\([ntrs\\])", lambda found: _ESCAPES[found[1]], line)
        for line in lines.split("\n")
        if line.strip(" \t")
    ]
    return tuple(dict.fromkeys(filter(None, texts)))


class StopSection(Section):
    """A text field with one stop text on each line."""

    def __init__(self) -> None:
        super().__init__("stop")
        help = tr(
            "An answer ends before any of these texts. One on each line; {line} is a line break, {space} a space.",
            line="\\n",
            space="\\s",
        )
        self.field = TextField(Setting(tr("Stop texts"), help, lines=_LINES))
        self.field.editor.setFont(code_font(SMALL))
        self.marked = (self.field,)
        self.body.addWidget(self.field)
        self.body.addWidget(note(help))
        self.field.picked.connect(self._on_picked)

    def show_settings(self, shown: ShownSettings) -> None:
        """Show the stop texts of the chat."""
        if stops_of(self.field.value) != shown.settings.stop:
            self.field.show_value(lines_of(shown.settings.stop))

    def restore(self, shown: ShownSettings) -> None:
        """Show those of another chat."""
        self.field.show_value(lines_of(shown.settings.stop))

    def finish(self) -> None:
        """Commit what is typed."""
        self.field.finish()

    def _on_picked(self, value: object) -> None:
        self.edit(stop=stops_of(str(value)))
