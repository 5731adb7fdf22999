"""Residents: models take turns of equal time; what a person waits for comes first."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tiny
from engine.core.residents import Resident, Residents
from engine.errors import RequestError
from engine.messages import Chat, Embed, Embedded, Failed, Finished, Load, ModelLoaded, Text
from engine_bench import GREEDY, Bench, turns_of, with_printable_output

NOTHING = frozenset[Path]()
SECONDS = {"main": 3.0, "other": 1.0}  # that a pass of real models takes in these tests


def resident(name: str, *, beside: bool = True, **values: Any) -> Resident:
    facts = SimpleNamespace(path=Path(name), is_busy=True, device_fault=None, **values)
    facts.loaded = lambda request, *, beside: (name, beside)
    return Resident(facts, Load(Path(name), beside=beside))  # type: ignore[arg-type]


def passes(made: Residents, seconds: dict[str, float], count: int, **options: Any) -> list[str]:
    """The models of so many passes, of which each takes as long as is said."""
    ran: list[str] = []
    for _ in range(count):
        one = made.next(options.get("urgent", NOTHING), options.get("background", NOTHING))
        assert one is not None
        ran.append(one.path.name)
        made.charge(one, seconds[one.path.name])
    return ran


@pytest.fixture
def made() -> Residents:
    found = Residents()
    found.add(resident("main", beside=False))
    found.add(resident("other"))
    return found


def test_models_have_equal_time_not_equal_passes(made: Residents) -> None:
    ran = passes(made, {"main": 0.3, "other": 0.1}, 400)
    assert ran.count("other") == pytest.approx(3 * ran.count("main"), abs=3)


def test_a_model_that_was_idle_is_not_owed_the_time(made: Residents) -> None:
    _, other = made
    other.session.is_busy = False  # type: ignore[misc]
    assert set(passes(made, {"main": 1.0}, 50)) == {"main"}
    other.session.is_busy = True  # type: ignore[misc]
    ran = passes(made, {"main": 1.0, "other": 1.0}, 20)
    assert ran.count("main") == pytest.approx(10, abs=1)


def test_urgent_models_come_first_and_those_in_the_background_last(made: Residents) -> None:
    seconds = {"main": 1.0, "other": 1.0}
    assert set(passes(made, seconds, 9, urgent=frozenset({Path("other")}))) == {"other"}
    assert set(passes(made, seconds, 9, background=frozenset({Path("main")}))) == {"other"}


def test_models_are_found_by_their_file(made: Residents) -> None:
    main, other = made
    assert made.get(None) is main
    assert made.get(Path("main")) is main
    assert made.get(Path("other")) is other
    with pytest.raises(RequestError, match=r"The model x\.gguf is not loaded"):
        made.get(Path("x.gguf"))
    assert made.facts == (("main", False), ("other", True))
    made.remove(main)
    with pytest.raises(RequestError, match="No model is loaded"):
        made.get(None)
    assert made.find(Path("other")) is other


def test_what_others_may_yet_take_is_not_free_for_a_new_model() -> None:
    made = Residents()
    sizes = {"memory_bytes": 10, "planned_bytes": 25}
    made.add(resident("main", beside=False, **sizes))
    made.add(resident("other", memory_bytes=40, planned_bytes=30))  # of it 10 are cached texts
    main, _ = made
    assert made.reclaimable([]) == -15 + 10
    assert made.reclaimable([main]) == 10 + 10


# --- real models --------------------------------------------------------------------------------


@pytest.fixture
def passes_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models of the passes in which both had work, each as long as `SECONDS` says."""
    ran: list[str] = []
    charge = Residents.charge

    def charged(self: Residents, one: Resident, seconds: float) -> None:
        if all(each.session.is_busy for each in self) and len(self.every) > 1:
            ran.append(one.path.stem)
        charge(self, one, SECONDS[one.path.stem])

    monkeypatch.setattr(Residents, "charge", charged)
    return ran


def both(folder: Path) -> tuple[Bench, Path]:
    """An engine with two resident models, and the one beside the main one."""
    main, other = (
        with_printable_output(tiny.write(folder / f"{name}.gguf", context=2_048))
        for name in ("main", "other")
    )
    bench = Bench()
    bench.load(main)
    bench.expect(2, Load(other, beside=True), ModelLoaded)
    return bench, other


def test_answers_of_two_models_have_equal_time(tmp_path: Path, passes_of: list[str]) -> None:
    bench, other = both(tmp_path)
    for number, (model, most) in enumerate(((None, 100), (other, 300)), 3):
        bench.send(
            number,
            Chat(turns_of("hello"), GREEDY, max_tokens=most, stop_loops=False, model=model),
        )
    bench.until(Finished, Failed)
    bench.until(Finished, Failed)
    bench.engine.stop()
    assert len(passes_of) > 100
    cost = {name: passes_of.count(name) * SECONDS[name] for name in SECONDS}
    assert cost["main"] == pytest.approx(cost["other"], abs=2 * max(SECONDS.values()))
    # Nor does one run ahead of the other for long.
    runs = max(len(list(group)) for _, group in groupby(passes_of))
    assert runs <= SECONDS["main"] / SECONDS["other"] + 1


def test_vectors_of_one_model_and_answers_of_another_have_equal_time(
    tmp_path: Path, passes_of: list[str]
) -> None:
    bench, other = both(tmp_path)
    bench.send(3, Chat(turns_of("hello"), GREEDY, max_tokens=200, stop_loops=False))
    bench.until(Text)
    bench.send(4, Embed(("a text to embed",) * 400, model=other))
    bench.until(Finished, Embedded, Failed)
    bench.until(Finished, Embedded, Failed)
    bench.engine.stop()
    assert {"main", "other"} <= set(passes_of)
    cost = {name: passes_of.count(name) * SECONDS[name] for name in SECONDS}
    assert cost["main"] == pytest.approx(cost["other"], abs=2 * max(SECONDS.values()))
