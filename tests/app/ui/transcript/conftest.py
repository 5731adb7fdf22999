"""The transcript in a window."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.ui.transcript.view import Transcript
from transcript_driver import open_transcript


@pytest.fixture
def view(qtbot: QtBot) -> Iterator[Transcript]:
    with open_transcript(qtbot) as transcript:
        yield transcript
