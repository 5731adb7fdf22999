"""Model library page: installed models, downloads, the catalog and Hugging Face search.

It turns the chat and library states into row views (`library_rows`) for a virtualised list, and
emits the user's requests as signals.
"""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import (
    QAction,
    QDesktopServices,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QKeyEvent,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.state.chat import State
from app.state.library import LibraryState, LineAction
from app.system.byte_size import size
from app.system.translation import sentences, tr
from app.ui.library import rows as library_rows
from app.ui.library.list import COLUMN, LibraryList
from app.ui.library.model_settings_card import CARD_WIDTH, ModelDefaultsCard
from app.ui.library.row_values import Action, Verb
from app.ui.theme import icons
from app.ui.theme.palette import Palette, follow_palette
from app.ui.theme.theme import SMALL, figures
from app.ui.widgets import accessibility
from app.ui.widgets.controls import (
    IconButton,
    TextButton,
    label,
    page_title,
    set_margins,
    set_property,
)
from app.ui.widgets.drop_area import DropArea
from app.ui.widgets.page import Page
from app.ui.widgets.popover import Popover
from app.ui.widgets.typing import type_into, types_text

_SIDE = 24
_SCROLL_BAR = 10  # pixels: right margin of the head, which aligns it with the rows


class LibraryPage(Page):
    """Search field above the list of row views; emits every request as a signal."""

    opened = Signal()  # the page was shown
    seen = Signal(object)  # tuple of paths: the files whose rows are visible
    offers_seen = Signal(object)  # tuple of Source: the files of the hub whose rows are visible
    use_requested = Signal(Path)
    embedder_chosen = Signal(Path)  # a model to search documents with
    cancel_load_requested = Signal()
    unload_requested = Signal()
    download_requested = Signal(object)  # Offer
    encoder_chosen = Signal(object, str)  # Offer, file of a picture encoder; empty: none
    pictures_requested = Signal(object)  # Offer: of an installed model
    pause_requested = Signal(int)
    resume_requested = Signal(int)
    cancel_requested = Signal(int)
    retry_requested = Signal(int)
    delete_requested = Signal(Path)
    unlink_requested = Signal(Path)
    show_folder_requested = Signal(Path)
    add_folder_requested = Signal()
    folder_removed = Signal(Path)
    open_file_requested = Signal()
    files_dropped = Signal(object)  # tuple of file and folder paths
    searched = Signal(str)
    link_submitted = Signal(str)
    repository_opened = Signal(str)  # repository id; empty: closed
    defaults_opened = Signal(Path)
    defaults_changed = Signal(Path, object)  # ModelDefaults
    defaults_closed = Signal()
    line_acted = Signal()
    line_closed = Signal()

    def __init__(self, state: State, library: LibraryState) -> None:
        super().__init__(tr("Models"))
        self.setAcceptDrops(True)
        self._state, self._library = state, library
        self._detailed: set[Path] = set()  # files whose row shows the exact text of its problem
        self._every_match = False  # whether a query shows all models of the catalog that match
        self._make_parts()
        self._lay_out()
        self.drop_area = DropArea(self)
        self.card = ModelDefaultsCard(library)
        self.popover = Popover(self, self.card, CARD_WIDTH, tr("Settings for this model"))
        self._refresh_timer = QTimer(self, singleShot=True, interval=0)
        self.first = self.search  # has the focus first; Tab would skip what is before a focus proxy
        self._connect()
        self.refresh()
        follow_palette(self._recolor)

    def _make_parts(self) -> None:
        self.title = page_title(tr("Models"))
        self.free_space = label("", "secondary", SMALL)
        self.free_space.setFont(figures(SMALL))
        self.search = QLineEdit()
        self.search.setPlaceholderText(tr("Find a model by name, link or repository"))
        self.search.setAccessibleName(tr("Find a model"))
        self._clear = QAction(tr("Clear"), self.search)
        self._clear.triggered.connect(self.search.clear)
        self.search.addAction(self._clear, QLineEdit.ActionPosition.TrailingPosition)
        self._clear.setVisible(False)
        self.search.installEventFilter(self)
        self.news = QFrame()
        self.news.setObjectName("news")
        self.news_words = label("", wraps=True)
        self.news_link = TextButton("", "link")
        self.news_close = IconButton("close", tr("Close"), 16)
        self.list = LibraryList()

    def _lay_out(self) -> None:
        line = QHBoxLayout(self.news)
        set_margins(line, 12, 4, 4, 4)
        line.setSpacing(8)
        line.addWidget(self.news_words, 1)
        line.addWidget(self.news_link)
        line.addWidget(self.news_close)
        top = QHBoxLayout()
        top.addWidget(self.title)
        top.addStretch(1)
        top.addWidget(self.free_space)
        top.addSpacing(8)
        top.addWidget(self.close_button)
        head = QWidget()
        head.setMaximumWidth(COLUMN)
        inner = QVBoxLayout(head)
        inner.setContentsMargins(0, 16, 0, 4)
        inner.setSpacing(12)
        inner.addLayout(top)
        inner.addWidget(self.search)
        inner.addWidget(self.news)
        centred = QHBoxLayout()
        set_margins(centred, _SIDE, 0, _SIDE + _SCROLL_BAR, 0)
        centred.addWidget(head)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(centred)
        layout.addWidget(self.list, 1)

    def _connect(self) -> None:
        library = self._library
        for changed in (
            library.installed_changed,
            library.downloads_changed,
            library.catalog_changed,
            library.hub_changed,
            library.folders_changed,
            self._state.model_changed,
        ):
            changed.connect(self._refresh_soon)
        library.line_changed.connect(self._show_line)
        library.defaults_changed.connect(self._show_card)
        self._refresh_timer.timeout.connect(self.refresh)
        self.search.textChanged.connect(self._on_query)
        self.search.returnPressed.connect(self._submit)
        self.news_link.clicked.connect(self.line_acted)
        self.news_close.clicked.connect(self.line_closed)
        self.list.acted.connect(self._act)
        self.list.seen_changed.connect(self._emit_seen)
        self.card.changed.connect(self._change_defaults)
        self.card.closed.connect(self.popover.close_card)
        self.card.resized.connect(self._fit_card)
        self.popover.closed.connect(self.defaults_closed)
        self._show_line()

    # --- showing --------------------------------------------------------------------------------

    def _recolor(self, palette: Palette) -> None:
        self.setStyleSheet(_page_style(palette))
        self._clear.setIcon(icons.icon("close", palette.secondary, 16))

    def refresh(self) -> None:
        """Rebuild the rows from the states and the query."""
        library = self._library
        query = self.search.text().strip()
        model, detailed = self._state.model, self._detailed
        every = self._every_match
        self.list.set_views(library_rows.views(library, model, query, detailed, every))
        known = library.free_bytes >= 0
        self.free_space.setText(tr("{size} free", size=size(library.free_bytes)) if known else "")
        if library.folders:
            place = library.folders[0].path
            self.free_space.setToolTip(tr("On the disk that holds {path}", path=place))
        self._emit_seen()

    def _refresh_soon(self) -> None:
        if self.isVisible():
            self._refresh_timer.start()

    def _show_line(self) -> None:
        line = self._library.line
        self.news.setVisible(line is not None)
        if line is None:
            return
        words = sentences(line.sentence, line.remedy)
        self.news_words.setText(words)
        set_property(self.news_words, "tone", "danger" if line.trouble else "")
        self.news_link.setText(_action_text(line.action))
        self.news_link.setVisible(line.action is not None)
        accessibility.announce(self, words)

    def _show_card(self) -> None:
        if self._library.defaults is None:
            self.popover.close_card()
        elif self.popover.isHidden():
            self.popover.open_centred()

    def _fit_card(self) -> None:
        if not self.popover.isHidden():
            self.popover.fit()

    # --- requests -------------------------------------------------------------------------------

    def _on_query(self) -> None:
        self._clear.setVisible(bool(self.search.text()))
        self._every_match = False
        self.refresh()
        self.list.verticalScrollBar().setValue(0)

    def _submit(self) -> None:
        if text := self.search.text().strip():
            self._search_hub(text)

    def _search_hub(self, text: str) -> None:
        if "/" in text:
            self.link_submitted.emit(text)
        else:
            self.searched.emit(text)

    def _change_defaults(self, values: object) -> None:
        if self._library.defaults is not None:
            self.defaults_changed.emit(self._library.defaults.path, values)

    def _emit_seen(self) -> None:
        if not self.isVisible():
            return
        keys = set(self.list.seen)
        rows = self._library.installed
        paths = tuple(row.path for row in rows if f"file:{row.path}" in keys)
        if paths:
            self.seen.emit(paths)
        offers = self._library.hub.files
        sources = tuple(one.source for one in offers if library_rows.offer_key(one) in keys)
        if sources:
            self.offers_seen.emit(sources)

    def _act(self, action: Action) -> None:
        about = action.about
        plain = {
            Verb.CANCEL_LOAD: self.cancel_load_requested,
            Verb.UNLOAD: self.unload_requested,
            Verb.OPEN_FILE: self.open_file_requested,
            Verb.ADD_FOLDER: self.add_folder_requested,
        }
        of_path = {
            Verb.USE: self.use_requested,
            Verb.SEARCH_WITH: self.embedder_chosen,
            Verb.DELETE: self.delete_requested,
            Verb.UNLINK: self.unlink_requested,
            Verb.SHOW_FOLDER: self.show_folder_requested,
            Verb.REMOVE_FOLDER: self.folder_removed,
            Verb.DEFAULTS: self.defaults_opened,
            Verb.DOWNLOAD: self.download_requested,
            Verb.ADD_PICTURES: self.pictures_requested,
            Verb.PAUSE: self.pause_requested,
            Verb.RESUME: self.resume_requested,
            Verb.CANCEL: self.cancel_requested,
            Verb.RETRY: self.retry_requested,
            Verb.OPEN_REPOSITORY: self.repository_opened,
        }
        if (signal := plain.get(action.verb)) is not None:
            signal.emit()
        elif (signal := of_path.get(action.verb)) is not None:
            signal.emit(about)
        elif action.verb is Verb.SEARCH:
            self._search_hub(str(about))
        elif action.verb is Verb.CHOOSE_ENCODER and isinstance(about, tuple):
            self.encoder_chosen.emit(*about)
        elif action.verb is Verb.EVERY_MATCH:
            self._every_match = True
            self.refresh()
        elif action.verb is Verb.DETAILS and isinstance(about, Path):
            self._detailed ^= {about}
            self.refresh()
        elif action.verb is Verb.JUMP:
            self.list.scroll_to(str(about))
        elif action.verb is Verb.OPEN_LINK:
            _open_page(str(about))

    # --- Qt -------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.opened.emit()
        self.refresh()
        self.search.setFocus()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_card()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        key = event.key() if isinstance(event, QKeyEvent) else 0
        pressed = event.type() is QEvent.Type.KeyPress
        if pressed and key == Qt.Key.Key_Escape and self.search.text():
            self.search.clear()
            return True
        if pressed and key == Qt.Key.Key_Down:
            self.list.setFocus(Qt.FocusReason.TabFocusReason)
            return True
        return super().eventFilter(watched, event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        elif types_text(event) and event.key() != Qt.Key.Key_Space:
            type_into(self.search, event)
        else:
            super().keyPressEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        paths = _models_in(event)
        if paths:
            self.drop_area.show_models(paths)
            event.acceptProposedAction()

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self.drop_area.hide()

    def dropEvent(self, event: QDropEvent) -> None:
        self.drop_area.hide()
        paths = _models_in(event)
        if not paths:
            return
        event.acceptProposedAction()
        self.files_dropped.emit(paths)
        if len(paths) == 1 and paths[0].suffix.lower() == ".gguf" and paths[0].is_file():
            self.use_requested.emit(paths[0])


def _action_text(action: LineAction | None) -> str:
    match action:
        case None:
            return ""
        case LineAction.UNDO:
            return tr("Undo")
        case LineAction.UNLOAD:
            return tr("Unload")
        case LineAction.USE:
            return tr("Use")


def _models_in(event: QDropEvent) -> tuple[Path, ...]:
    """The dragged local paths that are folders or GGUF files."""
    paths = [Path(url.toLocalFile()) for url in event.mimeData().urls() if url.isLocalFile()]
    return tuple(path for path in paths if path.suffix.lower() == ".gguf" or path.is_dir())


def _open_page(address: str) -> None:
    """Open an http or https address in the browser; other schemes are ignored."""
    url = QUrl(address)
    if url.scheme().lower() in ("http", "https"):
        QDesktopServices.openUrl(url)


def _page_style(palette: Palette) -> str:
    """The style sheet of the page, for one palette."""
    line = 2 if palette.hairline == palette.text else 1
    return f"""
QLabel[tone="accent"] {{ color: {palette.accent}; }}
QFrame#news {{
    background: {palette.surface}; border: {line}px solid {palette.hairline}; border-radius: 6px;
}}
LibraryRow QPushButton[look="outlined"] {{ text-align: center; }}
QLineEdit[wrong="true"] {{ border-color: {palette.danger}; }}
"""
