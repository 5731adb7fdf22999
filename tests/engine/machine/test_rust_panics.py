"""Reports of Rust panics are kept off the standard error stream; everything else is shown."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import pytest
from tokenizers import Tokenizer

from engine.machine.rust_panics import without_panic_reports
from hostile_vocabulary import hostile

PANICS = hostile(bytes(4))


def _panic() -> None:
    library = Tokenizer.from_str(PANICS)
    with suppress(BaseException):
        library.encode("a", add_special_tokens=False)


@pytest.mark.parametrize("backtrace", ["0", "1"])
def test_only_the_report_is_dropped(
    backtrace: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUST_BACKTRACE", backtrace)
    with without_panic_reports():
        os.write(2, b"before\n")
        _panic()
        os.write(2, b"between\n")
        _panic()
        os.write(2, b"after\n")
    assert capfd.readouterr().err == "before\nbetween\nafter\n"
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "later\n"


def test_threads_share_the_redirection(capfd: pytest.CaptureFixture[str]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with without_panic_reports():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(10)
    with without_panic_reports():
        _panic()
        os.write(2, b"shown\n")
    leave.set()
    thread.join()
    assert capfd.readouterr().err == "shown\n"


def test_an_error_inside_restores_the_stream(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="inside"), without_panic_reports():
        raise ValueError("inside")
    os.write(2, b"shown\n")
    assert capfd.readouterr().err == "shown\n"
