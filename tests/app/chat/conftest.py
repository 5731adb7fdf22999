"""A server of the user with one model, and the window with a connection to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from hostile_server import Server, json_reply, serving
from remote_stage import Elsewhere


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        rows = [{"id": "big", "max_model_len": 4096, "owned_by": "vllm"}]
        made.on("/v1/models", json_reply({"data": rows}))
        yield made


@pytest.fixture
def window(qtbot: QtBot, tmp_path: Path, server: Server) -> Iterator[Elsewhere]:
    made = Elsewhere(tmp_path, server, qtbot)
    made.start()
    yield made
    made.close()
