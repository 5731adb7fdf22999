"""Mutation sampling: which places are changed, and what the tests of a small repository notice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import mutation

MODULE = '''\
"""Prices: 3 of them."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)
LIMIT: int = 4


def price(count: int, free: int = 1) -> int:
    """The price of so many, of which some are free; 0 or more."""
    log.info("asked for %d", count + 7)
    return max(count - free, 0)


def is_dear(price: int) -> bool:
    return price > LIMIT
'''
TEST = """
from shop.prices import price

def test_one_is_free() -> None:
    assert price(3) == 2
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of a module, one of whose two functions has a test."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # its tests start sooner
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "prices.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "tests" / "shop").mkdir(parents=True)
    (tmp_path / "tests" / "shop" / "test_prices.py").write_text(TEST, encoding="utf-8")
    settings = '[tool.pytest.ini_options]\npythonpath = ["."]\nmarkers = ["slow"]\n'
    (tmp_path / "pyproject.toml").write_text(settings, encoding="utf-8")
    return tmp_path


def test_operators_numbers_and_results_are_changed_and_no_texts_or_types(shop: Path) -> None:
    found = mutation.changes(shop, "shop/prices.py")
    assert [(one.line, one.words) for one in found] == [
        (8, "4 → 5"),
        (11, "1 → 2"),
        (14, "return max(count - free, 0) → return None"),
        (14, "count - free → +"),
        (14, "0 → 1"),
        (18, "return price > LIMIT → return None"),
        (18, "price > LIMIT → >="),
    ]
    source = (shop / "shop" / "prices.py").read_bytes()
    assert b"max(count + free, 0)" in found[3].apply(source)
    assert b"return price >= LIMIT" in found[6].apply(source)


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("x = a is not b", "x = a is b"),
        ("x = a not in b", "x = a in b"),
        ("x = (a) <= (b)", "x = (a) < (b)"),
        ("x = a and b and c", "x = a or b and c"),
        ("if a: pass", "if not (a): pass"),
        ("f(\n    a,\n)", "pass"),
        ("x += a", "pass"),
        ("raise ValueError", "pass"),
        ("x.y = a", "pass"),
        ("def f(a=False): ...", "def f(a=True): ..."),
        ("x = 'ä', a == b", "x = 'ä', a != b"),
        ("x = a - b", "x = a + b"),
    ],
)
def test_each_kind_of_change(line: str, changed: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(line, encoding="utf-8")
    (one, *_) = mutation.changes(tmp_path, "m.py")
    assert one.apply(line.encode()).decode() == changed


@pytest.mark.parametrize(
    "line",
    [
        "'text'",
        "log.debug('at %d', 1)",
        "x = tr('of', 1)",
        "x = f'{a + 1}'",
        "x: Literal[1]",
        "@made(1)\ndef f(): ...",
        "x = 'a' + b",
        "assert a > 1",
        "if TYPE_CHECKING: x = 1",
    ],
)
def test_what_is_not_changed(line: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(line, encoding="utf-8")
    assert mutation.changes(tmp_path, "m.py") == []


def test_a_change_is_killed_or_survives_in_a_copy(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in shop.rglob("*.py")}
    outcomes = mutation.sample(shop, 100, 1, ["shop"])
    assert {path: path.read_bytes() for path in shop.rglob("*.py")} == before
    results = {one.change.words: (one.result, one.test) for one in outcomes}
    assert len(results) == 7
    test = "tests/shop/test_prices.py::test_one_is_free"
    assert results["count - free → +"] == ("killed", test)
    assert results["price > LIMIT → >="] == ("survived", "")
    lines = mutation.table(outcomes).splitlines()
    assert lines[0] == "3 of 7 changes were noticed (43%)."
    assert lines.count("    1 test files") == 4
    assert "7 places in 1 files; 7 are tried." in capsys.readouterr().out


def test_a_seed_chooses_the_same_places_again(shop: Path) -> None:
    (shop / "tests" / "shop" / "test_prices.py").unlink()  # so that nothing runs
    chosen = [
        [one.change for one in mutation.sample(shop, 3, seed, ["shop"])] for seed in (1, 1, 2)
    ]
    assert chosen[0] == chosen[1] != chosen[2]


def test_a_test_that_fails_without_the_change_notices_nothing(shop: Path) -> None:
    path = shop / "tests" / "shop" / "test_prices.py"
    path.write_text("def test_broken() -> None:\n    assert 0\n", encoding="utf-8")
    (one,) = mutation.sample(shop, 1, 1, ["shop"])
    assert one.result == "survived"


def test_a_change_that_does_not_end_is_timed_out(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop / "shop" / "prices.py").write_text(
        "def price(n):\n    while n > 2:\n        n -= 1\n    return n\n", encoding="utf-8"
    )
    (change,) = [one for one in mutation.changes(shop, "shop/prices.py") if one.text == "pass"]
    monkeypatch.setattr(mutation, "FILE_SECONDS", 10)
    outcome = mutation.Trial(shop, sys.executable).run(change)
    assert (outcome.result, outcome.test) == ("timed out", "tests/shop/test_prices.py")


def test_a_change_that_ends_the_process_is_noticed(shop: Path) -> None:
    (shop / "shop" / "prices.py").write_text(
        "import os\n\n\ndef price(n):\n    if n > 1e9:\n        os._exit(3)\n    return n\n",
        encoding="utf-8",
    )
    (shop / "tests" / "shop" / "test_prices.py").write_text(
        "from shop.prices import price\n\n\ndef test_price():\n    assert price(1) == 1\n",
        encoding="utf-8",
    )
    change = next(one for one in mutation.changes(shop, "shop/prices.py") if "not (" in one.text)
    outcome = mutation.Trial(shop, sys.executable).run(change)
    assert (outcome.result, outcome.test) == ("crashed", "tests/shop/test_prices.py")


def test_the_nearest_tests_come_first(tmp_path: Path) -> None:
    files = {
        "engine/core/queue.py": "def refuse_longer():\n    return 1\n\n\ndef other():\n    pass\n",
        "engine/core/loop.py": "import engine.core.queue",
        "tests/engine/core/test_queue.py": "",
        "tests/engine/core/test_other.py": "",
        "tests/engine/test_client.py": "from engine.core import queue",
        "tests/engine/test_lengths.py": "from engine.core import queue  # that longer ones are refused",
        "tests/app/test_run.py": "from engine.core.loop import Loop",
        "tests/app/test_window.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    change, other = (
        mutation.changes(tmp_path, "engine/core/queue.py")[0],
        "tests/app/test_window.py",
    )
    near = mutation.Trial(tmp_path, "").nearest(change)
    names = [path.relative_to(tmp_path).as_posix() for path in near]
    assert names[:2] == ["tests/engine/core/test_queue.py", "tests/engine/test_lengths.py"]
    assert sorted(names) == sorted(name for name in files if "/test_" in name and name != other)
