"""List of files above the message field, opened by "@" at the beginning of a word.

A file that the model has read in this chat is named in the text; another one is attached.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.domain.snippet import has_words
from app.state.attachments import AttachmentsState, KnownFile
from app.state.chat import State
from app.system.translation import tr
from app.ui.chat.composer import Composer
from app.ui.chat.offer_list import Offer, OfferList
from app.ui.theme.file_icons import file_icon

SIGNS = ("@", "\uff20")  # the second one is of Chinese and Japanese input methods
_LONGEST = 60  # characters behind the sign


class FileList(OfferList):
    """Offers the files whose names have the words behind the "@"."""

    wanted = Signal()  # the list opens: `show_files` gives it what there is
    chosen = Signal(object)  # KnownFile, which is to be attached

    def __init__(
        self, chat: State, state: AttachmentsState, composer: Composer, parent: QWidget
    ) -> None:
        super().__init__(composer, parent, tr("Files"))
        self._state = state
        self._here: Sequence[KnownFile] = ()
        self._elsewhere: Sequence[KnownFile] = ()
        composer.editor.at_typed.connect(self._open)
        chat.conversation_changed.connect(self.close_list)

    def show_files(self, here: Sequence[KnownFile], elsewhere: Sequence[KnownFile] = ()) -> None:
        """Offer the files of the shown chat, then those of others, the newest first."""
        known = {each.sha256 or each.path for each in here}
        self._here = here
        self._elsewhere = [each for each in elsewhere if (each.sha256 or each.path) not in known]
        self.follow()

    def _open(self) -> None:
        self._here = self._elsewhere = ()
        self.wanted.emit()
        self.open_list()

    def _query(self) -> str | None:
        """The text between the sign and the cursor."""
        before = self._composer.editor.text_before_cursor(_LONGEST)
        at = max(map(before.rfind, SIGNS))
        is_begin = at == 0 or (at > 0 and before[at - 1].isspace())
        query = before[at + 1 :]
        return query if is_begin and "\n" not in query and not query.startswith(" ") else None

    def _offers(self, query: str) -> Sequence[Offer]:
        fit = self._state.fit
        forgotten = fit.forgotten if fit is not None else ()
        made: list[Offer] = []
        for each in self._here:
            is_read = each.name not in forgotten and not each.changed
            if has_words(each.name, query):
                use = self._name if is_read else self._attach
                words = each.name if is_read else tr("{name}: attach again", name=each.name)
                made.append(self._offer(each, words, partial(use, each)))
        for each in self._elsewhere:
            if has_words(each.name, query):
                words = tr("{name}: attach", name=each.name)
                made.append(self._offer(each, words, partial(self._attach, each)))
        return made

    def _offer(self, file: KnownFile, words: str, use: partial[None]) -> Offer:
        return Offer(words, use, file.path, file_icon(file.name, file.kind))

    def _name(self, file: KnownFile) -> None:
        self._replace(f"{file.name} ")

    def _attach(self, file: KnownFile) -> None:
        self._replace("")
        self.chosen.emit(file)

    def _replace(self, text: str) -> None:
        """Put a text in place of the sign and what is behind it."""
        query = self._query()
        if query is not None:
            self._composer.editor.replace_before_cursor(len(query) + 1, text)
