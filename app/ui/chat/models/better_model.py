"""One line that offers a better model on the empty page, and shows its download there and in chats."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.downloads.queue import Download, Phase
from app.state.chat import ModelPhase, State
from app.state.library import LibraryState, Offer
from app.system.byte_size import size
from app.system.durations import time_left
from app.system.translation import listed, sentences, tr
from app.ui.theme.theme import BODY, figures
from app.ui.widgets.controls import IconButton, TextButton, label


class BetterModelLine(QWidget):
    """A link that accepts the offer; progress with Cancel or Try again; and a close button."""

    accepted = Signal()
    cancelled = Signal()
    dismissed = Signal()
    put_away = Signal()  # a download that failed or is paused, in the chats

    def __init__(
        self,
        state: State,
        library: LibraryState,
        parent: QWidget | None = None,
        *,
        only_download: bool = False,
    ) -> None:
        """With `only_download` it shows the download, but never the offer."""
        super().__init__(parent)
        self._only_download = only_download
        self._state, self._library = state, library
        self._going = False  # a download runs: the link cancels it
        self.words = label("", "secondary", BODY)
        self.words.setFont(figures(BODY))
        self.link = TextButton("", "link")
        self.close_button = IconButton("close", tr("Do not offer this again"), 16)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addStretch(1)
        for part in (self.words, self.link, self.close_button):
            layout.addWidget(part, 0, Qt.AlignmentFlag.AlignVCenter)
        layout.addStretch(1)
        self.link.clicked.connect(self._act)
        self.close_button.clicked.connect(self._close)
        state.model_changed.connect(self.refresh)
        library.better_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the offer or the progress of its download; hidden without an offer."""
        shown = self._library.better
        hidden = shown is None or (
            self._only_download and (shown.download is None or shown.put_away)
        )
        self.setVisible(not hidden)
        if shown is None or hidden:
            return
        download = shown.download
        words, link = (
            ("", self._offer(shown.offer))
            if download is None
            else (_progress(shown.offer, download), _link(download))
        )
        self._going = download is not None and _is_going(download)
        if self.words.text() != words:
            self.words.setText(words)
        if self.link.text() != link:
            self.link.setText(link)
        self.words.setVisible(bool(words))
        self.link.setToolTip(self._tip() if download is None else "")
        rests = download is not None and not self._going
        closes = rests and self._only_download
        self.close_button.setVisible(closes or (download is None and not self._no_model))
        what = tr("Close") if closes else tr("Do not offer this again")
        self.close_button.setToolTip(what)
        self.close_button.setAccessibleName(what)

    @property
    def _no_model(self) -> bool:
        return self._state.model.phase in (ModelPhase.NONE, ModelPhase.FAILED)

    def _offer(self, offer: Offer) -> str:
        speed, amount = self._library.bytes_per_second, offer.size_bytes
        sees = tr("sees pictures") if offer.encoder else ""
        about = listed((size(amount), _about(amount / speed) if speed else "", sees))
        if self._no_model:
            return tr("Get {name} ({about})", name=offer.name, about=about)
        return tr("Get a more capable model ({name}, {about})", name=offer.name, about=about)

    def _tip(self) -> str:
        sent = tr("Nothing is sent before you click.")
        if not self._library.bytes_per_second:
            return sent
        return sentences(tr("The time is by the speed of your last downloads."), sent)

    def _close(self) -> None:
        shown = self._library.better
        is_offer = shown is None or shown.download is None
        (self.dismissed if is_offer else self.put_away).emit()

    def _act(self) -> None:
        (self.cancelled if self._going else self.accepted).emit()


def _progress(offer: Offer, download: Download) -> str:
    done = round(100 * download.done_bytes / download.size_bytes) if download.size_bytes else 0
    match download.phase:
        case Phase.FAILED:
            return sentences(download.error, download.remedy)
        case Phase.PAUSED:
            return tr("{name}: paused at {done} %", name=offer.name, done=done)
        case Phase.QUEUED if download.note:  # offline
            return tr("{name}: {note}", name=offer.name, note=download.note)
        case Phase.VERIFYING | Phase.DONE:
            return tr("Checking {name}…", name=offer.name)
        case _:
            got = tr("Getting {name}: {done} %", name=offer.name, done=done)
            return listed((got, time_left(download.seconds_left)))


def _link(download: Download) -> str:
    if _is_going(download):
        return tr("Cancel")
    return tr("Try again") if download.phase is Phase.FAILED else tr("Resume")


def _is_going(download: Download) -> bool:
    """Whether the link cancels the download; else it resumes it."""
    return download.phase not in (Phase.FAILED, Phase.PAUSED)


def _about(seconds: float) -> str:
    minutes = round(seconds / 60)
    return tr("about {minutes} min", minutes=max(1, minutes))
