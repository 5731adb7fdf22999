"""Chip of what a message is answered from: a file, a picture or a collection.

It says what that is, how much of it the model reads, and what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import (
    QAccessible,
    QContextMenuEvent,
    QFocusEvent,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPixmap,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.domain.file_words import (
    detail_words,
    kind_words,
    length_words,
    reads_words,
    size_words,
    tokens_words,
    warning_words,
)
from app.domain.parts import FilePart, ImagePart, Parts, attachments
from app.state.attachments import Attachment, AttachmentPhase
from app.state.collection_words import fault_words, files_words, sources_words
from app.state.collections import ShownCollection
from app.system.translation import listed, sentences, tr
from app.ui.documents.thumbnail import square, thumbnail
from app.ui.theme import icons
from app.ui.theme.file_icons import file_icon
from app.ui.theme.palette import Palette, follow_palette, shown_palette
from app.ui.theme.theme import BODY, SMALL, figures, font
from app.ui.widgets import accessibility
from app.ui.widgets.controls import (
    Bar,
    ElidedLabel,
    IconButton,
    TextButton,
    set_margins,
    set_property,
)
from engine import Detail

HEIGHT = 48  # pixels
_NARROWEST, _WIDEST = 168, 300  # pixels
_WIDEST_WARNING = 460  # pixels: with a sentence in it
_TIP = 400  # characters of a text
_ICON, _THUMBNAIL = 20, 36  # pixels


Item = Attachment | ShownCollection


def items_of(parts: Parts, number: Callable[[], int]) -> list[Attachment]:
    """The files and pictures among parts, as chips show them; `number` gives their ids."""
    ready = AttachmentPhase.READY
    return [Attachment(number(), each.name, each.path, ready, each) for each in attachments(parts)]


@dataclass(frozen=True, slots=True)
class _Face:
    """What a chip shows of an item."""

    name: str
    icon: str
    about: str = ""  # how much there is of it
    warning: str = ""
    is_failed: bool = False  # the warning says why nothing of it is read
    again: str = ""  # words of the button that reads it again; "": none
    progress: float | None = None  # 0 to 1; None: nothing is in progress
    kind: str = ""  # what it is, for those who do not see its icon
    remedy: str = ""
    tip: str = ""
    spoken: str = ""  # in place of the name, for those who do not see it
    opens: str = ""  # what Enter does; "": nothing
    remove: str = ""  # words of the button that removes it
    picture: bytes = b""  # PNG, in place of the icon


class AttachmentChip(QFrame):
    """Enter opens it, Delete removes it."""

    opened = Signal()
    removed = Signal()
    retried = Signal()  # read a file again that could not be read
    reloaded = Signal()  # read a file again that has changed on disk
    moved = Signal(int)  # the keyboard goes so many chips on
    focused = Signal()
    undo_requested = Signal()
    menu_requested = Signal()  # of what can be chosen of a picture

    def __init__(self, item: Item, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        accessibility.register_role(AttachmentChip, QAccessible.Role.ListItem)
        self.setObjectName("chip")
        self.setFixedHeight(HEIGHT)
        self.item, self._face = item, _face(item)
        self._kept = "", QPixmap()  # hash of its kept file, and the picture
        self._wanted_width: int | None = None  # pixels; None: not measured
        self._icon = QLabel()
        self.name = ElidedLabel("", font(BODY), Qt.TextElideMode.ElideMiddle)
        self.about = ElidedLabel("secondary", figures(SMALL))
        self._sign = QLabel()
        self.warning = ElidedLabel("warning", font(SMALL))
        self.bar = Bar()
        self.again_button = TextButton("", "link")
        self.again_button.setFont(font(SMALL))
        self.remove_button = IconButton("close", "", 14)
        self.again_button.clicked.connect(self._again)
        self.remove_button.clicked.connect(self.removed)
        self._lay_out()
        self.set_in_tabs(is_in=True)
        self.show_item(item)
        follow_palette(self._recolor)

    def _lay_out(self) -> None:
        below = QHBoxLayout()
        below.setSpacing(4)
        below.addWidget(self.about)
        below.addWidget(self._sign)
        below.addWidget(self.warning, 1)
        below.addStretch()
        words = QVBoxLayout()
        words.setSpacing(1)
        words.addStretch(1)
        words.addWidget(self.name)
        words.addLayout(below)
        words.addWidget(self.bar)
        words.addStretch(1)
        row = QHBoxLayout(self)
        set_margins(row, 8, 0, 2, 0)
        row.setSpacing(4)
        row.addWidget(self._icon)
        row.addSpacing(4)
        row.addLayout(words, 1)
        row.addWidget(self.again_button)
        row.addWidget(self.remove_button)

    def show_item(self, item: Item) -> bool:
        """Show a later state of the item; returns whether it is to be announced.

        That is when a file was read, and when something is wrong with the item since now.
        """
        was_reading, warning = self.is_reading, self._face.warning
        self.item, self._face = item, _face(item)
        face = self._face
        self.name.show_words(face.name)
        self.about.show_words(face.about)
        self.warning.show_words(face.warning)
        set_property(self.warning, "tone", "danger" if face.is_failed else "warning")
        self._sign.setVisible(bool(face.warning))
        self.bar.setVisible(face.progress is not None)
        self.bar.set_share(face.progress or 0.0)
        self.again_button.setText(face.again)
        self.again_button.setVisible(bool(face.again))
        self.again_button.setAccessibleName(tr("{what}: {name}", what=face.again, name=face.name))
        self.remove_button.set_text(face.remove)
        self._show_accessible()
        self._show_icons()
        self._wanted_width = None
        self.updateGeometry()
        return not self.is_reading and (was_reading or face.warning not in ("", warning))

    @property
    def kept_picture(self) -> ImagePart | None:
        """A picture without a thumbnail, of which there is only the kept file; None: it is none."""
        item = self.item
        part = item.part if isinstance(item, Attachment) and not item.thumbnail else None
        return part if isinstance(part, ImagePart) and part.sha256 else None

    def show_kept(self, sha256: str, picture: QPixmap) -> None:
        """Show the picture of the kept file with this hash in place of the icon."""
        self._kept = sha256, picture
        self._show_icons()
        self._wanted_width = None
        self.updateGeometry()

    @property
    def is_reading(self) -> bool:
        """Whether it shows a file that is being read."""
        return isinstance(self.item, Attachment) and self.item.phase is AttachmentPhase.READING

    @property
    def warns(self) -> bool:
        """Whether something is wrong with the item."""
        return bool(self._face.warning)

    def _show_accessible(self) -> None:
        face = self._face
        self.setAccessibleName(
            listed(
                (face.spoken or face.name, face.kind, face.about.replace(" · ", ", "), face.warning)
            )
        )
        self.setAccessibleDescription(
            sentences(face.remedy, face.opens or tr("Delete removes it."))
        )
        whole = "\n".join(filter(None, (face.name, face.about)))  # there may be no room for it
        self.setToolTip("\n\n".join(filter(None, (whole, face.warning, face.remedy, face.tip))))
        set_property(self, "opens", self.can_open)
        shapes = Qt.CursorShape
        self.setCursor(shapes.PointingHandCursor if self.can_open else shapes.ArrowCursor)

    @property
    def can_open(self) -> bool:
        """Whether there is something to be shown of it."""
        return bool(self._face.opens)

    def set_in_tabs(self, *, is_in: bool) -> None:
        """Set whether Tab stops at it; of many chips it stops at one."""
        focus = Qt.FocusPolicy
        self.setFocusPolicy(focus.StrongFocus if is_in else focus.ClickFocus)
        for button in (self.again_button, self.remove_button):
            button.setFocusPolicy(focus.TabFocus if is_in else focus.NoFocus)

    def _recolor(self, palette: Palette) -> None:
        self._show_icons()

    def _show_icons(self) -> None:
        face, palette, ratio = self._face, shown_palette(), self.devicePixelRatioF()
        part, (sha256, kept) = self.kept_picture, self._kept
        has_kept = part is not None and part.sha256 == sha256
        side = _THUMBNAIL if face.picture or has_kept else _ICON
        self._icon.setFixedSize(side, side)
        if face.picture:
            self._icon.setPixmap(thumbnail(face.picture, side, ratio))
        elif has_kept:
            self._icon.setPixmap(square(kept.toImage(), side, ratio))
        else:
            self._icon.setPixmap(icons.pixmap(face.icon, palette.secondary, side, ratio))
        color = palette.danger if face.is_failed else palette.warning
        self._sign.setPixmap(icons.pixmap("warning", color, 14, ratio))

    def sizeHint(self) -> QSize:
        if self._wanted_width is None:  # a layout asks often
            self._wanted_width = self._measured_width()
        return QSize(self._wanted_width, HEIGHT)

    def _measured_width(self) -> int:
        below = self.about.natural_width() if self.about.text() else 0
        if self.warning.text():
            below += self.warning.natural_width() + 14 + 8
        again = self.again_button.sizeHint().width() + 8 if self.again_button.text() else 0
        around = 18 + self._icon.width() + 8 + self.remove_button.sizeHint().width() + 8 + again
        widest = _WIDEST_WARNING if self.warning.text() or again else _WIDEST
        width = max(self.name.natural_width(), below) + around
        return min(max(width, _NARROWEST), widest)

    def minimumSizeHint(self) -> QSize:
        return QSize(_NARROWEST, HEIGHT)

    # --- keys and mouse -------------------------------------------------------------------------

    def _again(self) -> None:
        (self.retried if self._face.is_failed else self.reloaded).emit()

    def event(self, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Polish, QEvent.Type.StyleChange, QEvent.Type.FontChange):
            self._wanted_width = None
        is_undo = isinstance(event, QKeyEvent) and event.matches(QKeySequence.StandardKey.Undo)
        if event.type() is QEvent.Type.ShortcutOverride and is_undo:
            event.accept()  # else the window would undo a deletion
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, keys = event.key(), Qt.Key
        back, on = (keys.Key_Right, keys.Key_Left) if self._is_mirrored else (
            keys.Key_Left, keys.Key_Right
        )  # fmt: skip
        if key in (keys.Key_Return, keys.Key_Enter, keys.Key_Space) and not event.isAutoRepeat():
            if self.can_open:
                self.opened.emit()
        elif key in (keys.Key_Delete, keys.Key_Backspace):
            self.removed.emit()
        elif event.matches(QKeySequence.StandardKey.Undo):
            self.undo_requested.emit()
        elif key in (back, keys.Key_Up):
            self.moved.emit(-1)
        elif key in (on, keys.Key_Down):
            self.moved.emit(1)
        else:
            super().keyPressEvent(event)

    @property
    def _is_mirrored(self) -> bool:
        return self.layoutDirection() is Qt.LayoutDirection.RightToLeft

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        if isinstance(self.item, Attachment) and isinstance(self.item.part, ImagePart):
            self.menu_requested.emit()
        else:
            super().contextMenuEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        inside = self.rect().contains(event.position().toPoint())
        if event.button() is Qt.MouseButton.LeftButton and inside and self.can_open:
            self.opened.emit()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        event.accept()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focused.emit()


def _face(item: Item) -> _Face:
    match item:
        case ShownCollection():
            return _collection_face(item)
        case Attachment():
            return _file_face(item)


def _file_face(item: Attachment) -> _Face:
    part, name = item.file, item.shown_name
    face = _Face(
        name,
        "image" if item.is_image else file_icon(item.name, part.kind if part else ""),
        remedy=item.remedy,
        remove=tr("Remove {name}", name=name),
        picture=item.thumbnail,
    )
    if isinstance(item.part, ImagePart):
        face = replace(
            face,
            kind=tr("Picture"),
            about=_image_about(item.part, item),
            tip=item.part.description,
            spoken=item.part.description,
            opens=tr("Enter shows it, Delete removes it, the menu key opens its menu."),
        )
    if part is not None:
        face = replace(
            face,
            kind=kind_words(part.kind),
            about=_about(part, item),
            warning=listed(map(warning_words, part.warnings)),
            tip=part.text[:_TIP] + ("…" if len(part.text) > _TIP else ""),
            opens=tr("Enter shows its text, Delete removes it."),
        )
    match item.phase:
        case AttachmentPhase.READING:
            percent = round(100 * item.progress)
            about = tr("reading, {percent} %", percent=percent) if percent else tr("reading…")
            return replace(face, about=about, warning="", progress=item.progress)
        case AttachmentPhase.FAILED:
            again = tr("Try again")
            return replace(face, about="", warning=item.fault, is_failed=True, again=again)
        case AttachmentPhase.READY if item.changed:
            return replace(face, warning=tr("Changed on disk"), again=tr("Read again"))
        case AttachmentPhase.READY:
            return face


def _collection_face(item: ShownCollection) -> _Face:
    collection, view = item.collection, item.view
    is_reading = view.done < view.files or not view.scanned
    return _Face(
        collection.name,
        "collection",
        files_words(collection, view),
        fault_words(view),
        progress=view.done / max(view.files, 1) if is_reading else None,
        kind=tr("collection"),
        tip=sources_words(collection),
        opens=tr("Enter shows its files, Delete stops using it in this chat."),
        remove=tr("Stop using {name} in this chat", name=collection.name),
    )


def _image_about(part: ImagePart, item: Attachment) -> str:
    """The size of a picture, or its detail if one was chosen, and its tokens if they are known."""
    tokens = tokens_words(item.tokens) if item.tokens else ""
    detail = detail_words(part.detail) if part.detail in (Detail.LOW, Detail.HIGH) else ""
    return " · ".join(filter(None, (detail or size_words(part), tokens)))


def _about(part: FilePart, item: Attachment) -> str:
    """How long the file is, or what of it is read, and the tokens of that."""
    tokens = ""
    if item.tokens is not None and part.reads.is_counted:  # not known before
        tokens = tokens_words(item.tokens, approximate=item.approximate)
    return " · ".join(filter(None, (reads_words(part) or length_words(part), tokens)))
