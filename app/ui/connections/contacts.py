"""Section of contacts: every address that the app ever spoke to, and why."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.state.connections import ConnectionsState, ContactRow
from app.system.byte_size import size
from app.system.translation import isolated, tr, trn
from app.ui.widgets.cards import wrapped
from app.ui.widgets.controls import TextButton, section_heading
from app.ui.widgets.row_list import RowList
from app.ui.widgets.units import moment

_MOST_HEIGHT = 320  # pixels; more rows scroll
_ROW_HEIGHT = 52


class ContactsSection(QWidget):
    """Shows the contacts of the state."""

    cleared = Signal()

    def __init__(self, state: ConnectionsState) -> None:
        super().__init__()
        self._state = state
        self.hint = wrapped(
            tr("Only addresses and reasons, kept on this computer; nothing of what you wrote.")
        )
        self.none = wrapped(tr("None yet: Tokonoma has connected to nothing."))
        self.list = RowList(tr("Where Tokonoma has connected"), several=False)
        self.clear = TextButton(tr("Clear this list"), "outlined")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        heading = section_heading(tr("Where Tokonoma has connected"))
        for part in (heading, self.hint, self.none, self.list):
            layout.addWidget(part)
        layout.addWidget(self.clear, 0, Qt.AlignmentFlag.AlignLeading)
        self.clear.clicked.connect(self.cleared)
        state.contacts_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the contacts; the chosen row stays chosen."""
        contacts = self._state.contacts
        chosen, place = self.list.currentRow(), self.list.verticalScrollBar().value()
        self.list.clear()
        for contact in contacts:
            self.list.add_row(_lines(contact), contact)
        self.list.setCurrentRow(min(chosen, len(contacts) - 1))
        self.list.verticalScrollBar().setValue(place)
        self.list.setFixedHeight(min(len(contacts) * _ROW_HEIGHT + 4, _MOST_HEIGHT))
        for part in (self.list, self.clear):
            part.setVisible(bool(contacts))
        self.none.setVisible(not contacts)


def _lines(contact: ContactRow) -> str:
    address = f"[{contact.host}]" if ":" in contact.host else contact.host
    facts = [contact.purpose]
    if contact.count:
        facts.append(trn("{count} time", "{count} times", contact.count))
    if contact.refused:
        facts.append(
            trn("refused {count} time while offline", "refused {count} times while offline",
                contact.refused)
        )  # fmt: skip
    facts.append(tr("last {time}", time=moment(contact.last)))
    if contact.received_bytes:
        facts.append(tr("{size} received", size=size(contact.received_bytes)))
    if contact.sent_bytes:
        facts.append(tr("{size} sent", size=size(contact.sent_bytes)))
    return f"{isolated(f'{address}:{contact.port}')}\n{' · '.join(facts)}"
