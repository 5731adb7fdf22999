"""Recorded answers: prompts with options of every kind come out of the command line and of the engine token for token."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from pathlib import Path

import pytest

from engine import (
    CacheType,
    Engine,
    Event,
    Failed,
    Finished,
    Load,
    ModelLoaded,
)
from engine.cli.answer import request_of, turns_of
from engine.cli.commands import main
from engine.cli.options import Run, parser
from engine.messages import Request
from engine_bench import answer_text
from recorded_answers import CASES, GOLDEN, arguments, recorded, write_models


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_models(tmp_path_factory.mktemp("recorded"))


def test_an_answer_of_every_case_is_recorded() -> None:
    assert list(json.loads(GOLDEN.read_text("utf-8"))) == list(CASES)


@pytest.mark.parametrize("case", CASES)
def test_command_line_gives_the_recorded_answers(
    case: str, files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(case, files)) == 0
    printed = json.loads(capsys.readouterr().out)
    assert recorded(printed) == json.loads(GOLDEN.read_text("utf-8"))[case]


@pytest.mark.parametrize("model", ["llama", "llama Q4_0", "qwen3", "gemma3"])
def test_many_clients_at_once_get_the_recorded_answers(model: str, files: dict[str, Path]) -> None:
    """Every prompt of a model, from a thread of its own, through one door."""
    asked = {
        case: parser("", _RUNS).parse_args(arguments(case, files))
        for case, (name, *options) in CASES.items()
        if name == model and not {"--draft", "--cache"} & set(options)
    }
    assert len(asked) > 2
    engine = Engine()
    engine.start()
    loaded = Waited(engine, Load(files[model], cache=CacheType.F32))
    assert isinstance(loaded.last, ModelLoaded)
    sampling = loaded.last.sampling
    waited: dict[str, Waited] = {}

    def ask(case: str) -> None:
        options = asked[case]
        is_chat = CASES[case][1] == "chat"
        prompt = turns_of(options) if is_chat else options.prompt
        waited[case] = Waited(engine, request_of(options, sampling, prompt))

    threads = [threading.Thread(target=ask, args=(case,)) for case in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.stop()
    golden = json.loads(GOLDEN.read_text("utf-8"))
    for case, one in waited.items():
        assert [found["text"] for found in golden[case]] == one.texts, case
        assert [found["token_ids"] for found in golden[case]] == one.tokens, case
    assert len({one.handle.id for one in waited.values()}) == len(waited)


_RUNS = defaultdict[str, Run](lambda: lambda _: None)


class Waited:
    """A request that has ended, with its events."""

    def __init__(self, engine: Engine, request: Request) -> None:
        self._events: list[Event] = []
        self._ended = threading.Event()
        self.handle = engine.submit(request, self._receive)
        assert self._ended.wait(60)
        self.last = self._events[-1]
        assert {event.request for event in self._events} == {self.handle.id}

    def _receive(self, event: Event) -> None:
        self._events.append(event)
        if isinstance(event, ModelLoaded | Failed) or (isinstance(event, Finished) and event.last):
            self._ended.set()

    @property
    def texts(self) -> list[str]:
        """The texts of the answers, by number."""
        return [answer_text(self._of(number)) for number in range(len(self.tokens))]

    @property
    def tokens(self) -> list[list[int]]:
        """The token ids of the answers, by number."""
        ended = [event for event in self._events if isinstance(event, Finished)]
        return [list(one.token_ids) for one in sorted(ended, key=lambda one: one.answer)]

    def _of(self, number: int) -> list[Event]:
        return [event for event in self._events if getattr(event, "answer", 0) == number]
