"""Reading aloud: what the system's program is given, stopping it, and its failures."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.system import speech as speech_module
from app.system.speech import Speech, guess_language

PROGRAM = """#!{python}
import sys, time
from pathlib import Path
folder = Path({folder!r})
with (folder / "calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if "--cancel" not in sys.argv:
    text = sys.stdin.buffer.read()
    (folder / "text.part").write_bytes(text)
    (folder / "text.part").rename(folder / "text")
    if b"long" in text:
        time.sleep(60)
    if b"broken" in text:
        sys.exit("no voice")
"""
NAME = "say" if sys.platform == "darwin" else "spd-say"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH, with a program that writes down what it is given."""
    program = tmp_path / NAME
    program.write_text(
        PROGRAM.format(python=sys.executable, folder=str(tmp_path)), encoding="utf-8"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def wait_for(qtbot: QtBot, file: Path) -> None:
    qtbot.waitUntil(file.exists, timeout=10_000)


def test_a_text_is_spoken_by_the_program_of_the_system(folder: Path, qtbot: QtBot) -> None:
    speech = Speech()
    assert speech.is_available
    with qtbot.waitSignal(speech.ended, timeout=10_000), qtbot.assertNotEmitted(speech.failed):
        speech.speak(
            "Der Himmel ist blau, und das ist schön.\n\n!-!SET SELF RATE 100; rm -rf $HOME"
        )
    text = (folder / "text").read_text(encoding="utf-8")
    assert text == "Der Himmel ist blau, und das ist schön.\nSET SELF RATE 100; rm -rf $HOME\n"
    if NAME == "spd-say":
        assert (folder / "calls").read_text(
            encoding="utf-8"
        ) == "--wait --pipe-mode --language de\n"


def test_stopping_ends_the_program(folder: Path, qtbot: QtBot) -> None:
    speech = Speech()
    speech.speak("A long text.")
    wait_for(qtbot, folder / "text")
    with qtbot.waitSignal(speech.ended, timeout=5000), qtbot.assertNotEmitted(speech.failed):
        speech.stop()
    if NAME == "spd-say":  # its service goes on without it
        qtbot.waitUntil(
            lambda: "--cancel" in (folder / "calls").read_text(encoding="utf-8"), timeout=10_000
        )


def test_another_text_replaces_the_first(folder: Path, qtbot: QtBot) -> None:
    speech = Speech()
    speech.speak("A long text.")
    wait_for(qtbot, folder / "text")
    (folder / "text").unlink()
    speech.speak("Short.")
    with qtbot.waitSignal(speech.ended, timeout=10_000):
        pass
    assert (folder / "text").read_bytes() == b"Short.\n"


def test_a_failure_says_why(folder: Path, qtbot: QtBot) -> None:
    speech = Speech()
    with qtbot.waitSignal(speech.failed, timeout=10_000) as failed:
        speech.speak("It is broken.")
    assert failed.args == ["no voice"]
    (folder / NAME).unlink()
    with qtbot.waitSignal(speech.failed, timeout=10_000):
        speech.speak("Gone.")


def test_without_a_program_nothing_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    speech = Speech()
    assert not speech.is_available
    speech.speak("Nothing happens.")
    speech.stop()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The sky is blue, and that is the reason.", "en"),
        ("Le ciel est bleu et les nuages sont blancs.", "fr"),
        ("El cielo es azul y las nubes son blancas.", "es"),
        ("空はなぜ青いのですか。", "ja"),
        ("天空为什么是蓝色的？", "zh"),
        ("Почему небо голубое?", "ru"),
        ("Hm.", ""),
        ("", ""),
    ],
)
def test_the_language_is_guessed_or_left_open(text: str, language: str) -> None:
    assert guess_language(text) == language


def test_a_mac_speaks_with_say(folder: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / NAME).rename(folder / "say")
    assert speech_module._find("linux") is None
    found = speech_module._find("darwin")
    monkeypatch.setattr(speech_module, "_find", lambda: found)
    speech = Speech()
    with qtbot.waitSignal(speech.ended, timeout=10_000), qtbot.assertNotEmitted(speech.failed):
        speech.speak("The sky is blue, and that is fine.")
    assert (folder / "text").read_text(encoding="utf-8") == "The sky is blue, and that is fine.\n"
    assert (folder / "calls").read_text(encoding="utf-8") == "-f -\n", "from the standard input"
