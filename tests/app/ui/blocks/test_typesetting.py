"""Typesetting: common formulas of chat answers, wrong ones, metrics, and the thread and its cache."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from PySide6.QtCore import QByteArray
from PySide6.QtSvg import QSvgRenderer

from app.markdown.formulas import Tex
from app.ui.blocks.typesetting import COLOR, Picture, Typesetter, Wrong, typeset

COMMON = (Path(__file__).parent / "formulas.txt").read_text(encoding="utf-8").splitlines()
SHOWN_AS_SOURCE = {r"\ce{H2O}", r"\begin{tikzpicture} \end{tikzpicture}"}


def wait_for(typesetter: Typesetter) -> None:
    until = time.monotonic() + 20
    while typesetter.busy:
        assert time.monotonic() < until
        time.sleep(0.002)


@pytest.mark.sweep
def test_common_formulas_are_typeset_or_wrong() -> None:
    wrong: set[str] = set()
    for number, code in enumerate(COMMON):
        try:
            picture = typeset(Tex(code, display=number % 2 == 0))
        except Wrong:
            wrong.add(code)
            continue
        assert 0.1 < picture.width < 60, code
        assert 0.1 < picture.ascent + picture.descent < 12, code
        assert QSvgRenderer(QByteArray(picture.svg.encode())).isValid(), code
    assert len(COMMON) >= 200
    assert len(wrong) <= 0.05 * len(COMMON), wrong
    assert wrong == SHOWN_AS_SOURCE


@pytest.mark.parametrize(
    "code",
    [
        r"\frac{1",
        r"\frac{a}",
        "x^",
        "a_b_c",
        r"\left( x",
        "{",
        "&",
        r"\\",
        "   ",
        "",
        r"\notacommand x",
        r"\begin{nothing} x",
        r"\unicode{x}",
        "x" * 4000,
        r"\sqrt{1+\left(" * 12 + "x" + r"\right)}" * 12,
        "{" * 3000,
        r"\frac{1}{1+" * 300 + "x" + "}" * 300,
    ],
)
def test_wrong_formulas_raise_wrong_soon(code: str) -> None:
    began = time.thread_time()
    with pytest.raises(Wrong):
        typeset(Tex(code, display=True))
    assert time.thread_time() - began < 5


def test_metrics_follow_the_baseline() -> None:
    letter, descender = (typeset(Tex(code, display=False)) for code in ("x", "p"))
    fraction = typeset(Tex(r"\frac{a}{b}", display=True))
    small = typeset(Tex(r"\frac{a}{b}", display=False))
    assert letter.descent < 0.15 < descender.descent
    assert fraction.descent > 0.4
    assert fraction.ascent + fraction.descent > small.ascent + small.descent
    assert COLOR in letter.svg


def test_formulas_are_typeset_once_on_a_thread() -> None:
    made: list[tuple[Tex, int]] = []
    begin = threading.Event()

    def work(tex: Tex) -> Picture:
        begin.wait()
        made.append((tex, threading.get_ident()))
        return typeset(tex)

    typesetter = Typesetter(work)
    good, wrong = Tex("x", display=False), Tex(r"\frac{1", display=False)
    assert typesetter.ask(good) is None
    assert typesetter.ask(good) is None
    assert typesetter.ask(wrong) is None
    assert not typesetter.ready(good)
    begin.set()
    wait_for(typesetter)
    picture = typesetter.ask(good)
    assert picture is not None
    assert typesetter.ask(good) is picture
    assert typesetter.ask(wrong) is None
    assert typesetter.ready(wrong)
    assert [tex for tex, _ in made] == [good, wrong]
    assert threading.get_ident() not in {thread for _, thread in made}


def test_a_bug_of_the_library_costs_one_formula(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(tex: Tex) -> Picture:
        if tex.code == "bug":
            raise SystemExit
        return typeset(tex)

    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    typesetter = Typesetter(work)
    typesetter.ask(Tex("bug", display=False))
    wait_for(typesetter)
    assert typesetter.ask(Tex("bug", display=False)) is None
    typesetter.ask(Tex("x", display=False))
    wait_for(typesetter)
    assert typesetter.ask(Tex("x", display=False)) is not None


def test_the_library_is_loaded_only_when_a_formula_is_typeset() -> None:
    script = "import sys, app.__main__; sys.exit('ziamath' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
