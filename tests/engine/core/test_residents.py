"""Residents: models take turns of equal time; what a person waits for comes first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.core.residents import Resident, Residents
from engine.errors import RequestError
from engine.messages import Load

NOTHING = frozenset[Path]()


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
