"""Reads texts aloud through the system: a program of the system that is given the text by stdin.

Windows: the voices of .NET's System.Speech, run by PowerShell. macOS: `say`. Elsewhere:
speech-dispatcher's `spd-say`, whose voice the user has chosen, or else espeak.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject, QProcess, Signal

from app.system.paths import windows_program

# The first line that it reads is the language, or empty; the rest is the text.
_POWERSHELL = (
    "$r = New-Object IO.StreamReader([Console]::OpenStandardInput(), [Text.Encoding]::UTF8);"
    "$l = $r.ReadLine(); Add-Type -AssemblyName System.Speech;"
    "$s = New-Object System.Speech.Synthesis.SpeechSynthesizer;"
    "if ($l) { try { $s.SelectVoiceByHints('NotSet', 'NotSet', 0,"
    " [Globalization.CultureInfo]::GetCultureInfo($l)) } catch {} };"
    "$s.Speak($r.ReadToEnd())"
)
_END_MILLISECONDS = 500
_SCRIPTS = (  # characters that only texts of one language have
    ("ja", r"[\u3040-\u30ff]"),
    ("ko", r"[\uac00-\ud7af]"),
    ("zh", r"[\u4e00-\u9fff]"),
    ("ru", r"[\u0400-\u04ff]"),
    ("ar", r"[\u0600-\u06ff]"),
)
_FREQUENT = {  # words by which languages with Latin letters are told apart
    "en": "the and of to is in that it with for are you",
    "de": "der die und das ist nicht ein eine mit den zu auf ich sie",
    "fr": "le la les et est une des dans pour pas que vous du",
    "es": "el la los y es una de que en por con para las",
    "pt": "o os e é uma de que em não com para um do da",
    "it": "il la che e è di un una per non con del gli",
}
_GUESSED_FROM = 2000  # characters


@dataclass(frozen=True, slots=True)
class _Program:
    """A program that speaks what it reads from stdin."""

    path: str
    arguments: Callable[[str], list[str]]  # for a language, which may be ""
    says_language: bool = False  # the first line is the language
    stop: tuple[str, ...] = ()  # arguments of a second call that stops it


def guess_language(text: str) -> str:
    """The language of a text, as "en"; "" where that is not clear."""
    text = text[:_GUESSED_FROM]
    letters = sum(letter.isalpha() for letter in text)
    for language, script in _SCRIPTS:
        if len(re.findall(script, text)) * 4 > letters:
            return language
    words = re.findall(r"\w+", text.casefold())
    found = {
        language: sum(words.count(word) for word in frequent.split())
        for language, frequent in _FREQUENT.items()
    }
    first, second = sorted(found.values(), reverse=True)[:2]
    return max(found, key=lambda each: found[each]) if first >= 2 and first > second else ""


class Speech(QObject):
    """Speaks one text at a time."""

    ended = Signal()  # spoken to the end, or stopped
    failed = Signal(str)  # the text of the program's error

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._program = _find()
        self._is_speaking = False
        self._process = QProcess(self)
        self._process.setStandardOutputFile(QProcess.nullDevice())
        self._process.finished.connect(self._on_ended)
        self._process.errorOccurred.connect(self._on_error)

    @property
    def is_available(self) -> bool:
        """Whether this computer has a program that speaks."""
        return self._program is not None

    def speak(self, text: str) -> None:
        """Speak a plain text, in place of the one before."""
        self.stop()
        program = self._program
        if program is None:
            return
        language = guess_language(text)
        self._is_speaking = True
        self._process.start(program.path, program.arguments(language))
        first = f"{language}\n" if program.says_language else ""
        self._process.write((first + _lines(text)).encode("utf-8", "replace"))
        self._process.closeWriteChannel()

    def stop(self) -> None:
        """Stop speaking."""
        if not self._is_speaking:
            return
        self._is_speaking = False  # its end is no failure
        self._process.kill()
        self._process.waitForFinished(_END_MILLISECONDS)
        if self._program is not None and self._program.stop:
            QProcess.startDetached(self._program.path, list(self._program.stop))
        self.ended.emit()

    def _on_ended(self, code: int, status: QProcess.ExitStatus) -> None:
        if not self._is_speaking:
            return
        self._is_speaking = False
        if code or status is QProcess.ExitStatus.CrashExit:
            error = bytes(self._process.readAllStandardError().data()).decode("utf-8", "replace")
            self.failed.emit(error.strip())
        self.ended.emit()

    def _on_error(self, error: QProcess.ProcessError) -> None:
        if error is QProcess.ProcessError.FailedToStart and self._is_speaking:
            self._is_speaking = False
            self.failed.emit(self._process.errorString())
            self.ended.emit()


def _lines(text: str) -> str:
    """The lines with a text; none is a command of `spd-say`, whose marker begins one."""
    lines = (line.strip().removeprefix("!-!") for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def _find(platform: str = sys.platform) -> _Program | None:
    """The program of a system; None if it has none."""
    if platform == "win32":
        path = windows_program("System32", "WindowsPowerShell", "v1.0", "powershell.exe")
        script = ["-NoProfile", "-NonInteractive", "-Command", _POWERSHELL]
        return _Program(str(path), lambda _: script, says_language=True) if path.exists() else None
    if platform == "darwin":
        path = shutil.which("say")
        return _Program(path, lambda _: ["-f", "-"]) if path else None
    if path := shutil.which("spd-say"):
        return _Program(path, _dispatcher_arguments, stop=("--cancel",))
    path = shutil.which("espeak-ng") or shutil.which("espeak")
    return _Program(path, _espeak_arguments) if path else None


def _dispatcher_arguments(language: str) -> list[str]:
    return ["--wait", "--pipe-mode", *(["--language", language] if language else [])]


def _espeak_arguments(language: str) -> list[str]:
    return ["--stdin", *(["-v", language] if language in _FREQUENT else [])]
