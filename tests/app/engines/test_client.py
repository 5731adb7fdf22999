"""The engine and the fake engine of the tests implement `EngineClient`."""

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


def test_engine_client_has_three_methods() -> None:
    assert METHODS == ["start", "send", "stop"]


@pytest.mark.parametrize("engine", [Engine, FakeEngine])
@pytest.mark.parametrize("name", METHODS)
def test_engine_and_fake_match_the_declared_methods(engine: type[object], name: str) -> None:
    declared, made = getattr(EngineClient, name), getattr(engine, name)
    assert (
        inspect.signature(made).parameters.keys() == inspect.signature(declared).parameters.keys()
    )
    assert get_type_hints(made) == get_type_hints(declared)


def test_engine_and_fake_take_an_event_callback() -> None:
    for engine in (Engine, FakeEngine):
        (deliver, *others) = inspect.signature(engine).parameters.values()
        assert deliver.name == "deliver"
        assert all(other.default is not inspect.Parameter.empty for other in others)
