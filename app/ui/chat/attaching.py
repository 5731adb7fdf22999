"""Attaching files in the window: dialogs, the "@" list, drops, and the text of a file over the chat."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMenu, QWidget

from app.domain.documents import Passage
from app.domain.mark_parser import find_marks
from app.domain.marks import pictures_asked_about
from app.domain.message import Message
from app.domain.parts import FilePart, ImagePart, KeptFile, typed_text
from app.domain.passages import passage_file
from app.domain.tool_files import shown_pictures
from app.domain.visible_text import on_one_line
from app.state.attachments import Attachment
from app.state.states import States
from app.system.translation import tr
from app.ui.chat.composer.file_list import FileList
from app.ui.chat.page import ChatPage
from app.ui.documents.chip import AttachmentChip
from app.ui.documents.viewer import DocumentViewer
from app.ui.file_dialogs import choose_file_place, choose_files, choose_folder
from app.ui.pictures.options import PictureMenu
from app.ui.pictures.region import ScreenRegions
from app.ui.pictures.viewer import PictureViewer
from app.ui.widgets.menus import new_menu, popup_below
from app.ui.widgets.popover import Popover

_MOST_RESOURCES = 50  # of one server, in a menu
_LONGEST_TITLE = 60  # characters


class Attaching(QObject):
    """Emits the user's requests; `app.wiring` connects them."""

    attached = Signal(list)  # paths of files and folders
    folder_requested = Signal(object)  # Path of a file, to be shown in its folder
    document_requested = Signal(object)  # Passage whose document is to be read
    screenshot_requested = Signal(str)  # the name of the window for the portal of the desktop
    resource_requested = Signal(str, str)  # id of a server of tools, address of a resource
    kept_save_requested = Signal(object, object)  # KeptFile of a tool, Path to save it at
    chat_requested = Signal()  # files are about to be attached: show where

    def __init__(self, window: QWidget, states: States, chat: ChatPage) -> None:
        super().__init__(window)
        self._window, self._chat, self._state = window, chat, states.chat
        self._attachments, self._library = states.attachments, states.library
        self._servers = states.tool_servers
        self._folder = self._saved = Path.home()  # of the last dialogs
        self._passage: tuple[Passage, FilePart] | None = None  # whose document is read, as shown
        self.viewer = DocumentViewer(window, states.attachments, states.pictures)
        self.pictures = PictureViewer(window, states.attachments, states.pictures)
        self.regions = ScreenRegions(window)
        self.list = FileList(states, chat.composer, chat)
        composer, transcript = chat.composer, chat.transcript
        composer.attach_requested.connect(self.choose_files)
        composer.folder_requested.connect(self.choose_folder)
        composer.screenshot_requested.connect(self.take_screenshot)
        composer.attach_menu_opened.connect(self._offer_resources)
        self.regions.ended.connect(composer.setFocus)
        composer.file_opened.connect(self._open)
        composer.pasted_opened.connect(self._open_pasted)
        transcript.file_opened.connect(self._open_sent)
        transcript.image_opened.connect(self._open_image)
        transcript.marks_requested.connect(self._show_marks)
        transcript.kept_file_requested.connect(self._save_kept)
        for source in (composer, transcript.editing):
            source.menu_requested.connect(self._open_menu)
        transcript.passage_opened.connect(self._open_passage)
        transcript.editing.file_opened.connect(self._open)
        transcript.folder_requested.connect(self.folder_requested)
        self.viewer.folder_requested.connect(self.folder_requested)
        self.viewer.insert_requested.connect(composer.insert_pasted)
        chat.fit_line.pages_requested.connect(self._choose_pages)

    @property
    def popovers(self) -> tuple[Popover, ...]:
        """The cards of a file and of a picture, if one was opened."""
        return *self.viewer.popovers, *self.pictures.popovers

    def on_dropped(self, paths: Sequence[Path]) -> None:
        """Show the chat, unless all that was dropped are models."""
        if not all(path.suffix.lower() == ".gguf" for path in paths):
            self.chat_requested.emit()

    def choose_files(self) -> None:
        """Open a dialog for files to be attached."""
        choose_files(self._window, self._folder, self._on_chosen)

    def choose_folder(self) -> None:
        """Open a dialog for a folder whose files are to be attached."""
        choose_folder(self._window, self._folder, self._on_chosen)

    def take_screenshot(self) -> None:
        """Let the user choose what of the screen is to be attached."""
        is_x11 = QGuiApplication.platformName() == "xcb"
        self.screenshot_requested.emit(f"x11:{int(self._window.winId()):x}" if is_x11 else "")

    def _offer_resources(self, menu: QMenu) -> None:
        """Add what servers of tools offer to a menu."""
        for row in self._servers.rows:
            if not row.resources:
                continue
            inner = menu.addMenu(tr("From {name}", name=on_one_line(row.name)).replace("&", "&&"))
            for each in row.resources[:_MOST_RESOURCES]:
                words = on_one_line(each.title or each.id)[:_LONGEST_TITLE].replace("&", "&&")
                choose = partial(self.resource_requested.emit, row.id, each.id)
                inner.addAction(f"{words}…" if each.is_template else words, choose)

    def _on_chosen(self, paths: list[Path]) -> None:
        self._folder = paths[0].parent
        self.attached.emit(paths)
        self._chat.composer.setFocus()

    def _open(self, item: Attachment) -> None:
        if isinstance(item.part, ImagePart) and item.id > 0:
            self.pictures.show_attachment(item.id)
        elif isinstance(item.part, ImagePart):
            self.pictures.show_image(item.part, (item.part,))
        elif item.id > 0:
            self.viewer.show_attachment(item.id)
        elif item.file is not None:  # of a message that is edited
            self.viewer.show_document(item.file)

    def _open_image(self, image: ImagePart) -> None:
        """Show a picture, among those of the chat."""
        among = [one for each in self._state.messages for one in shown_pictures(each.parts)]
        self.pictures.show_image(image, among)

    def _save_kept(self, file: KeptFile) -> None:
        """Ask where a file that a tool returned is to be saved."""

        def chosen(path: Path) -> None:
            self._saved = path.parent
            self.kept_save_requested.emit(file, path)

        choose_file_place(self._window, self._saved / file.name, chosen)

    def _show_marks(self, answer: int) -> None:
        """Show the picture of a question, with the boxes and points of its answer."""
        message = self._state.message(answer)
        if message is not None:
            pictures = pictures_asked_about(self._state.messages, answer)
            marks = find_marks(typed_text(message.parts))
            self.pictures.show_marks(pictures, marks, self._names_of_model(message))

    def _names_of_model(self, message: Message) -> list[str]:
        """The names of the model that wrote an answer, and its architecture if it is known."""
        names, made = [message.model], message.details
        if made is not None:
            names += [made.model, made.server_model]
        loaded = self._state.model.loaded
        known = [(loaded.path.name, loaded.name, loaded.architecture)] if loaded else []
        known += [(row.path.name, row.name, row.architecture) for row in self._library.installed]
        own = [each for *called, each in known if not set(names).isdisjoint(called)]
        return [*filter(None, names), *own]

    def _open_menu(self, chip: AttachmentChip) -> None:
        """Open the menu of a picture that is not sent."""
        item, viewer = chip.item, self.pictures
        if not isinstance(item, Attachment) or item.id <= 0:
            return
        show, choose = viewer.show_attachment, viewer.detail_chosen.emit
        menu = new_menu(chip)
        choices = PictureMenu(menu, item, self._attachments.details(item.id))
        choices.opened.connect(partial(show, item.id))
        for detail, action in choices.choices.items():
            action.triggered.connect(partial(choose, item.id, detail))
        choices.number.triggered.connect(partial(show, item.id, "detail"))
        choices.described.connect(partial(show, item.id, "words"))
        choices.removed.connect(chip.removed)

        def show_tokens() -> None:
            choices.show_tokens(self._attachments.details(item.id))

        self._attachments.details_changed.connect(show_tokens)
        menu.aboutToHide.connect(lambda: self._attachments.details_changed.disconnect(show_tokens))
        viewer.details_wanted.emit(item.id)
        popup_below(menu, chip)

    def _open_sent(self, part: FilePart) -> None:
        """Show a file, with the places of what is being found in the chat."""
        self.viewer.show_document(part)
        if self.viewer.card is not None and (query := self._chat.transcript.finder.query):
            self.viewer.card.search.field.setText(query)

    def _open_pasted(self, part: FilePart) -> None:
        self.viewer.show_document(part, insertable=True)

    def _open_passage(self, passage: Passage) -> None:
        part, start, end = passage_file(passage, self._state.messages)
        self.viewer.show_document(part, start, end)
        if passage.path and not part.sha256:  # only the passage is known so far
            self._passage = passage, part
            self.document_requested.emit(passage)

    def show_passage(self, passage: Passage, part: FilePart, place: range, note: str) -> None:
        """Show a document that was read, at a place of it, if its passage is still shown."""
        if self._passage is not None and self._passage[0] is passage:
            if self.viewer.is_shown(self._passage[1]):
                self.viewer.show_document(part, place.start, place.stop, note=note)
            self._passage = None

    def _choose_pages(self, attachment: int) -> None:
        self.viewer.show_attachment(attachment, choose=True)
