"""Reading answers aloud: one at a time, until its end or until it is stopped."""

from __future__ import annotations

from app.domain.parts import clipboard_text
from app.domain.passages import cited_at
from app.markdown.spoken import to_speech
from app.markdown.stream import parse
from app.state.chat import Notice, State
from app.system.speech import Speech
from app.system.translation import tr

NOTICE = "speech"  # kind of the notice that the system could not speak


class ReadingAloud:
    """Speaks the text of messages, and keeps in the state which one is read."""

    def __init__(self, state: State, speech: Speech) -> None:
        self._state, self._speech = state, speech
        speech.ended.connect(lambda: state.set_reading(None))
        speech.failed.connect(self._on_failed)
        state.message_removed.connect(self._on_removed)
        state.set_can_read(speech.is_available)

    def toggle(self, message_id: int) -> None:
        """Read a message of the shown branch aloud, or stop if it is being read."""
        message = self._state.message(message_id)
        was_read = self._state.reading == message_id
        self.stop()
        if was_read or message is None:
            return
        self._state.set_notice(NOTICE, None)
        branch = self._state.branches.get(message.conversation, ())
        passages = frozenset(cited_at(branch, message_id))
        if text := to_speech(parse(clipboard_text(message.parts), passages)):
            self._state.set_reading(message_id)
            self._speech.speak(text)
            return
        only_code = tr("This message has only code or formulas, which are not read aloud.")
        self._state.set_notice(NOTICE, Notice(only_code))

    def stop(self) -> None:
        """Stop reading."""
        self._speech.stop()

    def _on_removed(self, message_id: int) -> None:
        if message_id == self._state.reading:
            self.stop()

    def _on_failed(self, reason: str) -> None:
        sentence = tr("The system could not read this aloud.")
        remedy = tr("Check the speech settings of this computer.")
        self._state.set_notice(NOTICE, Notice(sentence, remedy, detail=reason))
