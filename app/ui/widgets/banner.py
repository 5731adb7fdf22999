"""Notice banners above every page: error, remedy, details, an optional button, and Close."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.state.chat import Notice, State
from app.system.translation import sentences, tr
from app.ui.theme import icons
from app.ui.theme.palette import Palette, follow_palette
from app.ui.theme.theme import SMALL
from app.ui.widgets.controls import IconButton, TextButton, label, make_selectable, set_margins

_NEWS = {
    "switch": "model",
    "imported": "check",
    "exported": "check",
    "saved": "check",
    "news": "check",
    "update": "arrow_down",
}  # icons of the notices that are about no problem, by kind


class Banner(QFrame):
    """One notice: error and remedy, details on request, an optional action button and Close."""

    def __init__(self, notice: Notice, icon: str = "") -> None:
        """`icon` is the name of a quiet icon; "": the warning sign."""
        super().__init__()
        self._icon = icon
        self.setObjectName("banner")
        self.picture = QLabel()
        self.words = label(sentences(notice.sentence, notice.remedy), wraps=True)
        make_selectable(self.words)
        self.detail = label(notice.detail, "secondary", SMALL, wraps=True)
        make_selectable(self.detail)
        self.detail.hide()
        self.details_button = TextButton(tr("Details"), "link")
        self.details_button.setVisible(bool(notice.detail))
        self.details_button.clicked.connect(self._toggle_details)
        self.action = TextButton(notice.action, "link")
        self.action.setVisible(bool(notice.action))
        self.close_button = IconButton("close", tr("Close"), 16)
        layout = QHBoxLayout(self)
        set_margins(layout, 12, 6, 6, 6)
        layout.setSpacing(8)
        layout.addWidget(self.picture)
        texts = QVBoxLayout()
        texts.setSpacing(2)
        texts.addWidget(self.words)
        texts.addWidget(self.detail)
        layout.addLayout(texts, 1)
        layout.addWidget(self.details_button)
        layout.addWidget(self.action)
        layout.addWidget(self.close_button)
        follow_palette(self._recolor)

    def _recolor(self, palette: Palette) -> None:
        name, color = (
            (self._icon, palette.secondary) if self._icon else ("warning", palette.warning)
        )
        self.picture.setPixmap(icons.icon(name, color, 18).pixmap(18, 18))

    def _toggle_details(self) -> None:
        shown = self.detail.isHidden()
        self.detail.setVisible(shown)
        self.details_button.setText(tr("Hide details") if shown else tr("Details"))


class Banners(QWidget):
    """Shows one banner per notice of the state."""

    closed = Signal(str)  # kind
    acted = Signal(str)  # kind

    def __init__(self, state: State, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self.shown: dict[str, Banner] = {}
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 8, 0, 8)
        self._layout.setSpacing(8)
        state.notices_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Rebuild the banners from the notices of the state."""
        for banner in self.shown.values():
            self._layout.removeWidget(banner)
            banner.deleteLater()
        self.shown = {kind: self._make_banner(kind) for kind in self._state.notices}
        self.setVisible(bool(self.shown))

    def _make_banner(self, kind: str) -> Banner:
        banner = Banner(self._state.notices[kind], _NEWS.get(kind, ""))
        banner.close_button.clicked.connect(lambda: self.closed.emit(kind))
        banner.action.clicked.connect(lambda: self.acted.emit(kind))
        self._layout.addWidget(banner)
        return banner
