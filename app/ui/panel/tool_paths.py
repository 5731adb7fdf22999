"""Files and folders that the tools of a chat may use: a row for each, and buttons that add some."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.domain.visible_text import on_one_line
from app.state.tools import PathKind
from app.system.translation import isolated, tr
from app.ui.file_dialogs import choose_files, choose_folder
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets.controls import ElidedLabel, IconButton, TextButton, label
from app.ui.widgets.switch import Switch
from app.ui.widgets.tips import plain_tip
from app.ui.widgets.wrap import WrapLayout


class PathRow(QWidget):
    """A file or a folder: its name and place, Remove, and for a folder whether it is writable."""

    write_switched = Signal(bool)
    removed = Signal()

    def __init__(self, path: Path) -> None:
        super().__init__()
        name = on_one_line(path.name or str(path))
        middle = Qt.TextElideMode.ElideMiddle
        self.title = ElidedLabel("", font(BODY, QFont.Weight.Medium), middle)
        self.title.setText(isolated(name))
        self.place = ElidedLabel("secondary", font(SMALL), middle)
        self.place.setText(isolated(on_one_line(str(path.parent))))
        for part in (self.title, self.place):
            part.setToolTip(plain_tip(str(path)))
        self.gone = label(tr("It is not there any more."), "warning", SMALL, wraps=True)
        self.may_write = label(tr("Tools may write into it"), "secondary", SMALL, wraps=True)
        self.switch = Switch()
        self.switch.setAccessibleName(tr("Tools may write into {name}", name=name))
        self.switch.clicked.connect(self.write_switched)
        self.remove_button = IconButton("close", tr("Remove {name}", name=name), 16)
        self.remove_button.clicked.connect(self.removed)
        texts, first, second = QVBoxLayout(), QHBoxLayout(), QHBoxLayout()
        texts.setSpacing(0)
        texts.addWidget(self.title)
        texts.addWidget(self.place)
        first.addLayout(texts, 1)
        first.addWidget(self.remove_button, 0, Qt.AlignmentFlag.AlignTop)
        second.addWidget(self.may_write, 1)
        second.addWidget(self.switch)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 5, 0, 5)
        layout.setSpacing(0)
        layout.addLayout(first)
        layout.addWidget(self.gone)
        layout.addLayout(second)

    def show_state(self, kind: PathKind | None, *, writable: bool) -> None:
        """Show what is at the path, None: not known yet, and whether tools may write into it."""
        self.gone.setVisible(kind is PathKind.GONE)
        is_folder = writable or kind is PathKind.FOLDER
        self.may_write.setVisible(is_folder)
        self.switch.setVisible(is_folder)
        self.switch.setChecked(writable)


class ToolPathList(QWidget):
    """Emits other paths as the user changes them."""

    changed = Signal(object, object)  # readable and writable paths: tuples

    def __init__(self) -> None:
        super().__init__()
        self._readable: tuple[Path, ...] = ()
        self._writable: tuple[Path, ...] = ()
        self._kinds: Mapping[Path, PathKind] = {}
        self._folder = Path.home()  # of the last dialog
        self.rows: dict[Path, PathRow] = {}
        self.heading = label(
            tr("Files and folders that tools may use"), "secondary", SMALL, wraps=True
        )
        self.heading.setFont(font(SMALL, QFont.Weight.DemiBold))
        self.servers = label(
            tr("For built-in tools. A server is a program of its own and sees what you can see."),
            "secondary",
            SMALL,
            wraps=True,
        )
        self.none = label(tr("None yet."), "secondary", SMALL, wraps=True)
        self.file_button = TextButton(tr("Add file…"), "outlined", "plus")
        self.folder_button = TextButton(tr("Add folder…"), "outlined", "plus")
        self._rows = QVBoxLayout()
        self._rows.setSpacing(0)
        buttons = QWidget()
        line = WrapLayout(buttons, 8, centred=False)
        for button in (self.file_button, self.folder_button):
            line.addWidget(button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 8, 0, 0)
        layout.setSpacing(4)
        layout.addWidget(self.heading)
        layout.addWidget(self.servers)
        layout.addWidget(self.none)
        layout.addLayout(self._rows)
        layout.addWidget(buttons)
        self.file_button.clicked.connect(partial(self._ask, folder=False))
        self.folder_button.clicked.connect(partial(self._ask, folder=True))

    @property
    def paths(self) -> tuple[Path, ...]:
        """All of them; a switch does not move its row."""
        both = {*self._readable, *self._writable}
        return tuple(sorted(both, key=lambda path: str(path).casefold()))

    def show_paths(
        self,
        readable: tuple[Path, ...],
        writable: tuple[Path, ...],
        kinds: Mapping[Path, PathKind],
    ) -> None:
        """Show the paths of a chat, and what is known to be there."""
        self._readable, self._writable, self._kinds = readable, writable, kinds
        paths = self.paths
        if list(self.rows) != list(paths):
            self._rebuild(paths)
        for path, row in self.rows.items():
            row.show_state(kinds.get(path), writable=path in writable)
        self.none.setVisible(not paths)

    def add(self, paths: list[Path], *, folder: bool) -> None:
        """Let tools read more files, or a folder."""
        self._folder = paths[0] if folder else paths[0].parent
        known = {*self._readable, *self._writable}
        new = tuple(dict.fromkeys(path for path in paths if path not in known))
        if new:
            self.changed.emit((*self._readable, *new), self._writable)

    # --- steps ----------------------------------------------------------------------------------

    def _rebuild(self, paths: tuple[Path, ...]) -> None:
        focused = any(row.isAncestorOf(self.window().focusWidget() or self) for row in self._shown)
        for row in self._shown:
            self._rows.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.rows = {path: PathRow(path) for path in paths}
        before: QWidget | None = None
        for path, row in self.rows.items():
            row.write_switched.connect(partial(self._switch, path))
            row.removed.connect(partial(self._remove, path))
            self._rows.addWidget(row)
            for stop in (row.remove_button, row.switch):
                if before is not None:
                    QWidget.setTabOrder(before, stop)
                before = stop
        if before is not None:
            QWidget.setTabOrder(before, self.file_button)
        if focused:  # the row is gone
            self.file_button.setFocus(Qt.FocusReason.OtherFocusReason)

    @property
    def _shown(self) -> tuple[PathRow, ...]:
        return tuple(self.rows.values())

    def _switch(self, path: Path, on: bool) -> None:
        readable = tuple(each for each in self._readable if each != path)
        writable = tuple(each for each in self._writable if each != path)
        if on:
            self.changed.emit(readable, (*writable, path))
        else:
            self.changed.emit((*readable, path), writable)

    def _remove(self, path: Path) -> None:
        readable = tuple(each for each in self._readable if each != path)
        self.changed.emit(readable, tuple(each for each in self._writable if each != path))

    def _ask(self, *, folder: bool) -> None:
        choose = choose_folder if folder else choose_files
        choose(self, self._folder, partial(self.add, folder=folder), attach=False)
