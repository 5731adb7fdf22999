"""The engine and its stand-in in tests have the one interface that the app declares."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import pytest

from app.engines.client import EngineClient
from engine import Engine
from fakes import FakeEngine

METHODS = [
    name for name, member in vars(EngineClient).items()
    if inspect.isfunction(member) and not name.startswith("_")
]  # fmt: skip


def test_the_interface_is_three_methods() -> None:
    assert METHODS == ["start", "send", "stop"]


@pytest.mark.parametrize("engine", [Engine, FakeEngine])
@pytest.mark.parametrize("name", METHODS)
def test_an_engine_has_every_method_as_declared(engine: type[object], name: str) -> None:
    declared, made = getattr(EngineClient, name), getattr(engine, name)
    assert (
        inspect.signature(made).parameters.keys() == inspect.signature(declared).parameters.keys()
    )
    assert get_type_hints(made) == get_type_hints(declared)


def test_both_are_made_with_what_takes_their_events() -> None:
    for engine in (Engine, FakeEngine):
        (deliver, *others) = inspect.signature(engine).parameters.values()
        assert deliver.name == "deliver"
        assert all(other.default is not inspect.Parameter.empty for other in others)
