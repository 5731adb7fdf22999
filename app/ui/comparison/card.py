"""Card that asks with what two answers to one question are written: a table of two columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QFont, QResizeEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from app.domain.generation_settings import GenerationSettings
from app.domain.model_ref import Local, ModelRef, Remote
from app.engines.capabilities import Capabilities
from app.settings.table import SETTINGS
from app.system.translation import isolated, sentences, tr
from app.ui.comparison.column import COLUMN_WIDTH, ChoiceColumn
from app.ui.comparison.values import CapabilitiesOf, Mixes, Models, with_mix, with_model
from app.ui.settings.fields import segments_style
from app.ui.theme.palette import Palette, follow_palette
from app.ui.theme.theme import BODY, READING, SMALL, font
from app.ui.transcript.message.differences import differences
from app.ui.widgets.controls import (
    ElidedLabel,
    IconButton,
    TextButton,
    align_text_at_start,
    label,
    set_margins,
)

CARD_WIDTH = 596
_NARROW = 500  # pixels: in a narrower card the names are above the values
_MORE = ("top_k", "top_p", "min_p", "repeat_penalty")  # shown on request


class _TableArea(QScrollArea):
    """Scroll area that wants to be as high as its content."""

    def __init__(self) -> None:
        super().__init__()
        self.setWidgetResizable(True)
        self.setFrameShape(QScrollArea.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    def sizeHint(self) -> QSize:
        content = self.widget()
        return super().sizeHint() if content is None else content.sizeHint()


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of the table: its name, and what each of the two columns has."""

    name: ElidedLabel
    values: tuple[QWidget, ...]
    more: bool  # shown on request

    def set_visible(self, shown: bool) -> None:
        for widget in (self.name, *self.values):
            widget.setVisible(shown)


class ComparisonCard(QWidget):
    """Shows two choices side by side; emits them when the user asks for the comparison."""

    accepted = Signal(object, object, object)  # message, GenerationSettings of both
    closed = Signal()
    resized = Signal()  # the size hint has changed

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._message = 0
        self._mixes: Mixes = {}
        self._models: Models = ()
        self._own_model: ModelRef | None = None  # of the chat
        self._thinks = True
        self._capabilities: CapabilitiesOf = lambda _: Capabilities()
        self._lacking = ""  # server of a model that does not use what is greyed
        self._narrow = False
        self._rows: list[_Row] = []
        self.columns: tuple[ChoiceColumn, ...] = ()
        self.headings: tuple[ElidedLabel, ...] = ()
        self.title = label(tr("Compare two answers"), "", READING)
        self.title.setFont(font(READING, QFont.Weight.Medium))
        self.close_button = IconButton("close", tr("Close"))
        self.close_button.clicked.connect(self.closed)
        self.more_button = TextButton(tr("More values"), "link")
        self.more_button.clicked.connect(self._toggle_more)
        align_text_at_start(self.more_button)
        self.note = label(_note(in_turn=False), "secondary", SMALL, wraps=True)
        self.compare_button = TextButton(tr("Compare"), "primary")
        self.compare_button.clicked.connect(self._accept)
        self._area = _TableArea()
        self._table = QWidget()
        self._grid = QGridLayout(self._table)
        self._lay_out()
        follow_palette(self._recolor)

    def _lay_out(self) -> None:
        head, foot = QHBoxLayout(), QHBoxLayout()
        head.addWidget(self.title, 1)
        head.addWidget(self.close_button)
        foot.setSpacing(16)
        set_margins(foot, 0, 4, 8, 0)
        foot.addWidget(self.note, 1)
        foot.addWidget(self.compare_button)
        layout = QVBoxLayout(self)
        set_margins(layout, 24, 16, 16, 20)
        layout.setSpacing(12)
        layout.addLayout(head)
        layout.addWidget(self._area, 1)
        layout.addLayout(foot)

    # --- called by the window -------------------------------------------------------------------

    def show_choices(
        self,
        message: int,
        choices: Sequence[GenerationSettings],
        mixes: Mixes | None = None,
        *,
        thinks: bool = True,
        models: Models = (),
        capabilities: CapabilitiesOf = lambda _: Capabilities(),
    ) -> None:
        """Show what the two answers to a message's question would be written with.

        Thinking is only offered for a model that can be told to think first, and `models` if there
        are several. The first choice has the model of the chat. What the engine of a model does not
        use is greyed.
        """
        self._capabilities = capabilities
        self._message, self._mixes, self._thinks = message, mixes or {}, thinks
        self._models, self._own_model = models, choices[0].model
        self._show_columns(choices)
        self._show_more(shown=False)

    def _recolor(self, palette: Palette) -> None:
        self.setStyleSheet(_style(palette))

    # --- steps ----------------------------------------------------------------------------------

    def _show_columns(self, choices: Sequence[GenerationSettings]) -> None:
        names = (tr("First answer"), tr("Second answer"))
        self.columns = tuple(
            ChoiceColumn(choice, name, self._mixes, self._models, thinks=self._thinks)
            for choice, name in zip(choices, names, strict=True)
        )
        self._make_table()
        self._lacking = ""
        for column, choice in zip(self.columns, choices, strict=True):
            found = self._capabilities(choice.model)
            if column.show_capabilities(found):
                self._lacking = found.server
        for place, column in enumerate(self.columns):
            column.changed.connect(self._show_words)
            if column.model is not None:
                column.model.picked.connect(partial(self._pick_model, place))
            if column.mix is not None:
                column.mix.picked.connect(partial(self._pick_mix, place))
        self._show_words()

    def _pick_model(self, place: int, model: object) -> None:
        """Let another model write one answer, with the same values as the other one."""
        name = next(name for each, name in self._models if each == model)
        assert isinstance(model, Local | Remote)
        choices = [column.choice() for column in self.columns]
        self._show_again(with_model(choices, place, model, name, self._own_model))
        if (button := self.columns[place].model) is not None:
            button.setFocus(Qt.FocusReason.PopupFocusReason)

    def _show_again(self, choices: Sequence[GenerationSettings]) -> None:
        """Show other choices; the table has as many values as before."""
        more = not self._rows[-1].name.isHidden()
        self._show_columns(choices)
        self._show_more(shown=more)

    def _pick_mix(self, place: int, name: str) -> None:
        """Switch on the adapters of a mix for one answer, which may add rows to the table."""
        choices = [column.choice() for column in self.columns]
        self._show_again(with_mix(choices, place, self._mixes[name]))
        if (button := self.columns[place].mix) is not None:
            button.setFocus(Qt.FocusReason.PopupFocusReason)

    def _make_table(self) -> None:
        """Create the rows of the table; the widgets of an earlier one are deleted with it."""
        self.more_button.setParent(self)
        self._table = QWidget()
        self._table.setObjectName("comparison_table")
        self._grid = QGridLayout(self._table)
        set_margins(self._grid, 0, 0, 8, 0)
        self._grid.setHorizontalSpacing(12)
        self._grid.setVerticalSpacing(6)
        self.headings = tuple(
            ElidedLabel("", font(BODY, QFont.Weight.Medium)) for _ in self.columns
        )
        for heading in self.headings:
            heading.setFixedWidth(COLUMN_WIDTH)
        first = self.columns[0]
        self._rows = []
        if models := [column.model for column in self.columns if column.model is not None]:
            self._rows.append(
                self._row(tr("Model"), tr("The model that writes the answer"), models)
            )
        if mixes := [column.mix for column in self.columns if column.mix is not None]:
            tip = tr("Adapters and strengths that were saved under a name")
            self._rows.append(self._row(tr("Mix"), tip, mixes))
        self._rows += [
            self._row(
                each.entry().name,
                str(each.entry().path or ""),
                [column.adapters[number] for column in self.columns],
            )
            for number, each in enumerate(first.adapters)
        ]
        self._rows.append(self._setting("temperature"))
        if thinking := [one.thinking for one in self.columns if one.thinking is not None]:
            setting = SETTINGS["thinking"]
            self._rows.append(self._row(tr(setting.label), tr(setting.help), thinking))
        self._rows += [self._setting(name, more=True) for name in _MORE]
        self._place_rows()
        self._area.setWidget(self._table)

    def _setting(self, name: str, *, more: bool = False) -> _Row:
        values = [column.numbers[name] for column in self.columns]
        return self._row(tr(SETTINGS[name].label), tr(SETTINGS[name].help), values, more=more)

    def _row(self, words: str, tip: str, values: Sequence[QWidget], *, more: bool = False) -> _Row:
        name = ElidedLabel("secondary", font(BODY), Qt.TextElideMode.ElideMiddle)
        name.setText(words)
        name.setToolTip(tip)
        return _Row(name, tuple(values), more)

    def _place_rows(self) -> None:
        """Place the names beside the values or, in a narrow card, above them."""
        grid, left = self._grid, Qt.AlignmentFlag.AlignLeft
        while grid.takeAt(0) is not None:
            pass
        before = 0 if self._narrow else 1
        for place, heading in enumerate(self.headings, before):
            grid.addWidget(heading, 0, place)
        line = 1
        for row in self._rows:
            if self._narrow:
                grid.addWidget(row.name, line, 0, 1, 2)
                line += 1
            else:
                grid.addWidget(row.name, line, 0)
            for place, value in enumerate(row.values, before):
                grid.addWidget(value, line, place, left)
            line += 1
        grid.addWidget(self.more_button, line, 0, 1, before + 2, left)
        grid.setRowStretch(line + 1, 1)
        grid.setColumnStretch(0, 0 if self._narrow else 1)
        grid.setColumnStretch(2, 1 if self._narrow else 0)

    def _toggle_more(self) -> None:
        self._show_more(shown=self._rows[-1].name.isHidden())

    def _show_more(self, *, shown: bool) -> None:
        for row in self._rows:
            row.set_visible(shown or not row.more)
        self.more_button.setText(tr("Fewer values") if shown else tr("More values"))
        self._fit()

    def _fit(self) -> None:
        self._grid.activate()
        self._area.updateGeometry()
        self.resized.emit()

    def _show_words(self) -> None:
        """Say above each column in what the two differ, as above the answers later."""
        first, second = (column.choice() for column in self.columns)
        words = differences(first, second)
        lacking = ""
        if self._lacking:
            lacking = tr("{server} does not use what is greyed.", server=isolated(self._lacking))
        self.note.setText(sentences(lacking, _note(in_turn=first.model != second.model)))
        for heading, each in zip(self.headings, words, strict=True):
            heading.show_words(each)

    def _accept(self) -> None:
        first, second = (column.choice() for column in self.columns)
        self.accepted.emit(self._message, first, second)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = self.width() < _NARROW
        if narrow != self._narrow:
            self._narrow = narrow
            if self._rows:
                self._place_rows()
                self._fit()


def _note(*, in_turn: bool) -> str:
    """What happens next; `in_turn`: the models differ, of which one at a time is loaded."""
    keep = tr("You keep one; the other stays as a version.")
    turn = tr("The second answer waits until its model is loaded.")
    return sentences(turn, keep) if in_turn else keep


def _style(p: Palette) -> str:
    """The style sheet of the card, for one palette."""
    return f"""
QScrollArea, QWidget#comparison_table {{ background: {p.surface}; border: none; }}
QLineEdit[wrong="true"], QLineEdit[wrong="true"]:focus {{ border-color: {p.danger}; }}
{segments_style(p)}
"""
