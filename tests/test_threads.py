"""The page of threads in `engine.core` says what a running engine and its client do."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

import engine
import engine.core
import tiny
from app.engines.handover import Handover
from app.engines.local import LocalClient
from app.engines.run import Run, start
from engine import (
    Chat,
    Constraint,
    ConstraintKind,
    Embed,
    Embedded,
    Event,
    Finished,
    Load,
    Metrics,
    MetricsRead,
    ModelLoaded,
)
from engine_bench import GREEDY, Bench, turns_of, with_printable_output
from stage import reraise, until

PAGE = engine.core.__doc__ or ""
ROWS = dict(re.findall(r"^    (\w[\w, ]*?) {2,}(.*(?:\n {30}.*)*)", PAGE, re.MULTILINE))
NAMES = {name for row in ROWS for name in row.split(", ")}
OWNED = re.findall(r"\b[A-Z]\w+", ROWS["engine"].partition("alone:")[2])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("threads") / "m.gguf"
    return with_printable_output(tiny.write(path, context=2048))


def owned_classes() -> Iterator[type]:
    """The classes that the page says are used by the engine's thread alone."""
    for module in pkgutil.walk_packages(engine.__path__, "engine."):
        if (
            not module.name.startswith(("engine.cli", "engine.server"))
            and "__main__" not in module.name
        ):
            for name, one in vars(importlib.import_module(module.name)).items():
                if name in OWNED and inspect.isclass(one) and one.__module__ == module.name:
                    yield one


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """By class, the names of the threads that have called its methods."""
    found: dict[str, set[str]] = defaultdict(set)

    def watched(owner: type, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            found[owner.__name__].add(threading.current_thread().name)
            return function(*arguments, **options)

        return call

    for owner in owned_classes():
        for name, function in list(vars(owner).items()):
            if inspect.isfunction(function):
                monkeypatch.setattr(owner, name, watched(owner, function))
    return found


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the threads that are started."""
    found: set[str] = set()
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        found.add(thread.name)
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    return found


def work_of_all_kinds(bench: Bench, model: Path) -> None:
    """Answers, also cancelled and constrained ones, texts read, a save and a restore."""
    bench.load(model)
    bench.generate(2, "a question " * 20, max_tokens=8)
    bench.save(3)
    bench.send(4, Chat(turns_of("first"), sampling=GREEDY, max_tokens=1000))
    bench.send(5, Chat(turns_of("second"), sampling=GREEDY, max_tokens=4))
    bench.until(Finished)
    bench.cancel(4)
    bench.until(Finished)
    words = Constraint(ConstraintKind.REGEX, "[a-z]{3,12}(, [a-z]+)*")
    bench.generate(6, "a word", max_tokens=8, constraint=words)
    bench.expect(7, Embed(("a text",)), Embedded)
    bench.expect(8, Metrics(), MetricsRead)
    bench.load(model, request=9)
    bench.load_snapshot(10, "a question " * 20)
    bench.engine.leave("")
    bench.engine.stop()


def test_the_page_names_the_threads_and_what_the_engine_owns() -> None:
    assert {"engine", "prompt", "texts", "tokenizer", "snapshot", "layers N"} <= NAMES
    assert sorted(one.__name__ for one in owned_classes()) == sorted(OWNED)
    assert len(PAGE.splitlines()) <= 40


def test_what_the_engine_owns_is_used_on_its_thread_alone(
    model: Path, users: dict[str, set[str]], started: set[str]
) -> None:
    work_of_all_kinds(Bench(), model)
    assert dict(users) == {name: {"engine"} for name in OWNED}
    assert started - NAMES == set()
    assert {"engine", "tokenizer", "prompt", "texts", "masks", "snapshot", "disk tier"} <= started


def test_events_are_delivered_on_the_engines_thread_but_the_end_of_a_save(model: Path) -> None:
    bench, threads = Bench(), defaultdict[str, set[str]](set)

    def note(event: Event) -> None:
        threads[threading.current_thread().name].add(type(event).__name__)

    bench.react = note
    work_of_all_kinds(bench, model)
    assert set(threads) == {"engine", "snapshot"}
    assert threads["snapshot"] == {"SnapshotSaved"}
    assert {"ModelLoaded", "Text", "Finished", "Embedded", "SnapshotLoaded"} <= threads["engine"]


def test_a_client_of_the_window_hears_of_it_on_the_gui_thread(
    model: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued, heard, kinds = set[str](), set[threading.Thread](), list[type]()
    put = Handover.put

    def noted(events: Handover[Event], event: Event) -> None:
        queued.add(threading.current_thread().name)
        put(events, event)

    monkeypatch.setattr(Handover, "put", noted)
    client = LocalClient(engine.Engine, lambda event: None)

    async def read(run: Run) -> None:
        async for batch in run:
            heard.add(threading.current_thread())
            kinds.extend(map(type, batch))

    client.start()
    start(read(client.submit(Load(model))), reraise)
    start(read(client.submit(Chat(turns_of("hello"), sampling=GREEDY, max_tokens=4))), reraise)
    try:
        until(lambda: Finished in kinds)
    finally:
        client.stop()
        client.deleteLater()
    assert ModelLoaded in kinds
    assert queued == {"engine"}
    assert heard == {threading.main_thread()}
