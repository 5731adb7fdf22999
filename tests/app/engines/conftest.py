"""A server of this machine that answers as the test says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hostile_server import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made
