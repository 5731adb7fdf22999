"""Origins of web pages that the word "localhost" allows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.server.guards import Security
from engine.server.serve import ServerOptions
from serving import Served


@pytest.fixture(scope="module")
def local(tiny_model: Path) -> Iterator[Served]:
    made = Served(tiny_model, ServerOptions(security=Security(origins=("localhost",))))
    yield made
    made.close()


@pytest.mark.parametrize(
    "origin",
    ["http://localhost", "https://localhost:3000", "http://127.0.0.1:1", "http://[::1]:3000"],
)
def test_pages_of_this_computer_are_allowed(local: Served, origin: str) -> None:
    for response in (
        local.http.options("/v1/models", headers={"Origin": origin}),
        local.http.get("/v1/models", headers={"Origin": origin}),
    ):
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost.evil.example",
        "http://evil.example/localhost",
        "http://192.0.2.7",
        "file://localhost",
        "null",
    ],
)
def test_other_pages_are_not(local: Served, origin: str) -> None:
    response = local.http.get("/v1/models", headers={"Origin": origin})
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers
