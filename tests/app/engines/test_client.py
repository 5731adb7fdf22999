"""The engine, its local client and the fake engine have the declared interfaces."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import pytest

from app.engines.client import Capabilities, EngineClient
from app.engines.local import LocalClient, ThreadedEngine
from app.engines.run import Handle
from engine import ConstraintKind, Engine
from fakes import FakeEngine


def methods(interface: type[object]) -> list[str]:
    return [
        name for name, member in vars(interface).items()
        if inspect.isfunction(member) and not name.startswith("_")
    ]  # fmt: skip


def assert_matches(interface: type[object], implementation: type[object]) -> None:
    for name in methods(interface):
        declared, made = getattr(interface, name), getattr(implementation, name)
        parameters = inspect.signature(declared).parameters.keys()
        found = dict(inspect.signature(made).parameters)
        assert all(
            one in parameters or value.default is not value.empty for one, value in found.items()
        )
        assert [one for one in found if one in parameters] == list(parameters)
        hints, wanted = get_type_hints(made), get_type_hints(declared)
        result, promised = hints.pop("return"), wanted.pop("return")
        assert {name: hints[name] for name in wanted} == wanted
        if promised is Handle:
            assert "cancel" in methods(result)
        else:
            assert result == promised


def test_clients_are_started_sent_to_and_stopped() -> None:
    assert methods(EngineClient) == ["start", "submit", "drain", "stop"]
    assert methods(ThreadedEngine) == ["start", "submit", "stop"]


@pytest.mark.parametrize("engine", [Engine, FakeEngine])
def test_engine_and_fake_match_the_declared_methods(engine: type[object]) -> None:
    assert_matches(ThreadedEngine, engine)


def test_local_client_matches_the_declared_methods() -> None:
    assert_matches(EngineClient, LocalClient)


def test_engine_and_fake_take_an_event_callback() -> None:
    for engine in (Engine, FakeEngine):
        (notify, *others) = inspect.signature(engine).parameters.values()
        assert notify.name == "notify"
        assert all(other.default is not inspect.Parameter.empty for other in others)


def test_local_engine_has_adapters_and_snapshots() -> None:
    client = LocalClient(FakeEngine, lambda events: None)
    assert client.capabilities == Capabilities(
        adapters=True,
        snapshots=True,
        metrics=True,
        counts=True,
        forgetting=True,
        budgets=True,
        formats=frozenset(ConstraintKind),
    )
    client.deleteLater()
