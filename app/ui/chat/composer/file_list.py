"""List of files and collections above the message field, opened by "@" at the beginning of a word.

What the model reads in this chat is named in the text; another file is attached, and another
collection is used from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from app.domain.collection import Collection
from app.domain.snippet import has_words
from app.state.attachments import KnownFile
from app.state.collection_words import sources_words
from app.state.collections import ShownCollection
from app.state.states import States
from app.system.translation import tr
from app.ui.chat.composer.composer import Composer
from app.ui.chat.composer.offer_list import Offer, OfferList
from app.ui.theme.file_icons import file_icon
from app.ui.widgets.controls import TextButton

SIGNS = ("@", "\uff20")  # the second one is of Chinese and Japanese input methods
_LONGEST = 60  # characters behind the sign


class FileList(OfferList):
    """Offers the files and collections whose names have the words behind the "@"."""

    wanted = Signal()  # the list opens: `show_files` gives it what there is
    chosen = Signal(object)  # KnownFile, which is to be attached
    collection_chosen = Signal(object)  # its id: the chat is to use it
    manage_requested = Signal()  # show the collections

    def __init__(self, states: States, composer: Composer, parent: QWidget) -> None:
        super().__init__(composer, parent, tr("Files and collections"))
        self._chat, self._state = states.chat, states.attachments
        self._collections = states.collections
        self._here: Sequence[KnownFile] = ()
        self._elsewhere: Sequence[KnownFile] = ()
        self.manage = TextButton(tr("Collections…"), "link")
        self.manage.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.manage.clicked.connect(self._manage)
        self.rows.addWidget(self.manage, 0, Qt.AlignmentFlag.AlignLeading)
        composer.editor.at_typed.connect(self._open)
        self._collections.changed.connect(self.follow)
        states.chat.conversation_changed.connect(self.close_list)

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
        used = self._chat.settings(self._chat.current).collections
        ids = [each.id for each in self._collections.collections]
        for shown in self._collections.shown(ids):
            if has_words(shown.collection.name, query):
                made.append(self._collection_offer(shown, is_used=shown.collection.id in used))
        for each in self._elsewhere:
            if has_words(each.name, query):
                words = tr("{name}: attach", name=each.name)
                made.append(self._offer(each, words, partial(self._attach, each)))
        return made

    def _offer(self, file: KnownFile, words: str, use: partial[None]) -> Offer:
        return Offer(words, use, file.path, file_icon(file.name, file.kind))

    def _collection_offer(self, shown: ShownCollection, *, is_used: bool) -> Offer:
        collection = shown.collection
        use = partial(self._name if is_used else self._use_collection, collection)
        words = collection.name
        if not is_used:
            words = tr("{name}: use in this chat", name=collection.name)
        return Offer(words, use, sources_words(collection), "collection")

    def _name(self, named: KnownFile | Collection) -> None:
        self._replace(f"{named.name} ")

    def _use_collection(self, collection: Collection) -> None:
        self._replace("")
        self.collection_chosen.emit(collection.id)

    def _manage(self) -> None:
        self._replace("")
        self.close_list()
        self.manage_requested.emit()

    def _has_rest(self, query: str) -> bool:
        return not query

    def _attach(self, file: KnownFile) -> None:
        self._replace("")
        self.chosen.emit(file)

    def _replace(self, text: str) -> None:
        """Put a text in place of the sign and what is behind it."""
        query = self._query()
        if query is not None:
            self._composer.editor.replace_before_cursor(len(query) + 1, text)
