"""Pictures of documents: pages of PDF files, offered for scans without text, and pictures in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.chat.sending.attachments import Attachments, Content
from app.domain.document_words import page_words
from app.domain.documents import MOST_PAGE_PICTURES, DocumentKind
from app.domain.parts import FilePart
from app.state.attachments import AttachmentsState, Editing, Place
from app.state.chat import Notice, State
from app.system.translation import number, tr

NOTICE = "scan"  # kind of the notice that a document has no text, but pages that can be seen


class DocumentPictures:
    """Lives on the GUI thread."""

    def __init__(
        self,
        state: State,
        shown: AttachmentsState,
        attachments: Attachments,
        sees: Callable[[int | None], bool],
    ) -> None:
        """`sees` tells whether the model of a chat sees pictures."""
        self._state, self._shown, self._attachments = state, shown, attachments
        self._sees = sees
        self._known = set[int]()  # ids of scans whose pages were offered
        self._offered = 0  # id of the scan of the notice
        shown.changed.connect(self._look)

    def attach(
        self, part: FilePart, indexes: Sequence[int], id: int = 0, *, instead: bool = False
    ) -> None:
        """Attach pages of a file as pictures, at the place of its attachment `id`, after it or
        `instead` of it; in the shown chat if it is none.
        """
        chosen = [index for index in indexes if 0 <= index < len(part.pages)]
        contents = [(_page_name(part, index), _page(part.sha256, index)) for index in chosen]
        self._attach(part, contents, id, instead=instead)

    def attach_embedded(
        self, part: FilePart, chosen: Sequence[tuple[int, str]], id: int = 0
    ) -> None:
        """Attach pictures in a document, by their places and names, as `attach` does pages."""
        contents = [
            (tr("{name}, {page}", name=part.name, page=name), _embedded(part, index))
            for index, name in chosen
        ]
        self._attach(part, contents, id)

    def _attach(
        self,
        part: FilePart,
        contents: Sequence[tuple[str, Content]],
        id: int,
        *,
        instead: bool = False,
    ) -> None:
        found = self._shown.find(id)
        place = found[0] if found else self._state.current
        if contents and part.sha256:
            contents = contents[:MOST_PAGE_PICTURES]
            self._attachments.attach_contents(place, contents, id, instead=instead)

    def use_offered(self) -> None:
        """Attach the pages of the scan of the notice instead of it."""
        self._state.set_notice(NOTICE, None)
        found, self._offered = self._shown.find(self._offered), 0
        if found and (part := found[1].file):
            self.attach(part, range(len(part.pages)), found[1].id, instead=True)

    def _look(self, place: Place) -> None:
        """Offer the pages of a scan that was read at a place, if the model there sees."""
        if self._offered and self._shown.find(self._offered) is None:
            self._offered = 0
            self._state.set_notice(NOTICE, None)
        for each in self._shown.of(place):
            part = each.file
            if part is None or each.id in self._known or not _is_scan(part):
                continue
            chat = self._state.current if isinstance(place, Editing) else place
            if self._sees(chat):
                self._known.add(each.id)
                self._offered = each.id
                self._offer(part)

    def _offer(self, part: FilePart) -> None:
        sentence = tr("{name} has no text that can be read, only pictures.", name=part.name)
        count, remedy = len(part.pages), tr("Your model can look at its pages.")
        if count > MOST_PAGE_PICTURES:
            remedy = tr(
                "Your model can look at the first {most} pages.", most=number(MOST_PAGE_PICTURES)
            )
        action = tr("Attach its pages as pictures")
        self._state.set_notice(NOTICE, Notice(sentence, remedy, action))


def _is_scan(part: FilePart) -> bool:
    is_empty = not part.text.strip()
    return part.kind == DocumentKind.PDF and is_empty and bool(part.pages and part.sha256)


def _page_name(part: FilePart, index: int) -> str:
    page = page_words(part.unit, part.pages[index].label)
    return tr("{name}, {page}", name=part.name, page=page)


def _page(sha256: str, index: int) -> Content:
    return lambda texts, cancelled: texts.page(sha256, index, cancelled)


def _embedded(part: FilePart, index: int) -> Content:
    return lambda texts, cancelled: texts.embedded(part.sha256, part.name, index, cancelled)
