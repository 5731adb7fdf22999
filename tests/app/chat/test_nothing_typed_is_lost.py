"""Random uses of the window: every text that was typed or pasted is sent or unsent, unaltered."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.domain.parts import FilePart
from app.settings.table import load
from app.store.store import Store
from app.ui.widgets.plain_text import for_qt
from engine import Chat, FinishReason, Role
from fakes import MODEL
from stage import Stage, until

EDGES = ("", " ", "    ", "\t", "\u00a0", "\u2060", "\u3000", "\u200d", "\ufeff", "\u2028")
STEPS = 60


class User:
    """Uses the window at random, and remembers each piece that was typed or pasted."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.pieces: list[str] = []
        self.log: list[str] = []
        self.stage = self.start()

    def start(self) -> Stage:
        stage = Stage(self.folder, settings=load(self.folder / "settings.json"))
        stage.ready(MODEL)
        return stage

    def piece(self) -> str:
        """A new text, which begins and ends with what other programs remove or alter."""
        edge = self.random.choice
        made = f"{edge(EDGES)}<{len(self.pieces)}{edge(EDGES)}{edge(EDGES)}>{edge(EDGES)}"
        self.pieces.append(made)
        return made

    def act(self) -> None:
        names = [name for name in dir(self) if name.startswith("do_")]
        name = self.random.choice(names)
        self.log.append(name)
        getattr(self, name)()
        self.stage.drain()

    # --- what the user does ---------------------------------------------------------------------

    def do_type(self) -> None:
        QTest.keyClicks(self.stage.window.composer.editor, f"<{len(self.pieces)}>")
        self.pieces.append(f"<{len(self.pieces)}>")

    def do_type_elsewhere(self) -> None:
        self.stage.window.activateWindow()
        self.stage.window.transcript.setFocus()
        QTest.keyClicks(self.stage.window.transcript, f"<{len(self.pieces)}>")
        self.pieces.append(f"<{len(self.pieces)}>")

    def do_compose(self) -> None:
        editor = self.stage.window.composer.editor
        editor.end_composition()  # an input method composes one text at a time
        QApplication.sendEvent(editor, QInputMethodEvent(for_qt(self.piece()), []))
        if self.random.random() < 0.5:
            event = QInputMethodEvent()
            event.setCommitString(for_qt(self.pieces[-1]))
            QApplication.sendEvent(editor, event)

    def do_paste(self) -> None:
        data, lines = QMimeData(), self.random.choice((1, 1, 3, 60))
        data.setText(for_qt("\n".join(self.piece() for _ in range(lines))))
        self.stage.window.composer.editor.end_composition()
        self.stage.window.composer.editor.insertFromMimeData(data)

    def do_cut_and_paste(self) -> None:
        editor = self.stage.window.composer.editor
        editor.end_composition()
        if editor.text():
            editor.selectAll()
            editor.cut()
            editor.paste()

    def do_enter(self) -> None:
        QTest.keyClick(self.stage.window.composer.editor, Qt.Key.Key_Return)

    do_enter_again = do_enter

    def do_line_break(self) -> None:
        editor = self.stage.window.composer.editor
        if not editor.composing:
            QTest.keyClick(editor, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)

    def do_new_chat(self) -> None:
        self.stage.controller.new_conversation()

    def do_open_chat(self) -> None:
        if chats := self.stage.state.conversations:
            self.stage.controller.open_conversation(self.random.choice(chats).id)

    def do_suggestion(self) -> None:
        if not self.stage.state.messages:
            self.stage.window.chat.empty_view.suggestions[0].click()

    def do_answer(self) -> None:
        if waiting := self.stage.engine.unfinished:
            request = self.random.choice(waiting).request
            self.stage.engine.write("Yes.", request=request)
            reason = self.random.choice((FinishReason.END, FinishReason.END, FinishReason.LENGTH))
            self.stage.engine.finish(reason, request=request)

    do_answer_again = do_answer

    def do_stop(self) -> None:
        self.stage.controller.stop()

    def do_take_back(self) -> None:
        if rows := self.stage.window.chat.waiting.rows:
            self.random.choice(rows).edit_button.click()

    def do_send_held(self) -> None:
        if rows := self.stage.window.chat.waiting.rows:
            self.random.choice(rows).send_button.click()

    def do_show_paste(self) -> None:
        composer = self.stage.window.composer
        if parts := [part for part in composer.parts() if isinstance(part, FilePart)]:
            composer.insert_pasted(self.random.choice(parts))

    def do_refused_paste(self) -> None:
        data = QMimeData()
        data.setImageData(self.stage.window.grab().toImage())
        self.stage.window.composer.editor.insertFromMimeData(data)

    def do_restart(self) -> None:
        self.stage.window.close()
        self.stage.close()
        self.stage = self.start()

    # --- what is left ---------------------------------------------------------------------------

    def texts(self) -> list[str]:
        """All messages of the user and all unsent texts, as they are in the store."""
        self.stage.window.chat.flush_draft()
        self.stage.wait_until_idle()
        found: list[str] = []

        def read(store: Store) -> None:
            for chat in store.conversations():
                found.extend(m.text for m in store.branch(chat.id) if m.role is Role.USER)
                found.append(store.draft(chat.id).text)
            found.append(store.draft(None).text)

        done: list[object] = []
        self.stage.store_queue.read(read, done.append)
        until(lambda: bool(done))
        return found


SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.sweep) for seed in range(4, 20))]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_typed_is_lost_or_altered(tmp_path: Path, qtbot: QtBot, seed: int) -> None:
    user = User(tmp_path, seed)
    try:
        for _ in range(STEPS):
            user.act()
        texts = user.texts()
        for piece in user.pieces:
            places = sum(text.count(piece) for text in texts)
            assert places == 1, (piece, [text for text in texts if piece[1:3] in text], user.log)
        for command in user.stage.engine.commands:
            if isinstance(command, Chat):
                prompt = command.turns[-1].text
                assert any(text and prompt.endswith(text) for text in texts)
    finally:
        user.stage.close()
