"""A long document by the starter model in the whole window: read in parts that fit its context."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.domain.documents import Reads
from app.domain.message import MessageState
from app.domain.parts import FilePart, SectionPart, TextPart
from app.settings.table import Settings
from real_stage import RealStage
from stage import until


@pytest.mark.usefixtures("qtbot")
def test_a_document_longer_than_the_context_is_read_in_parts(
    tmp_path: Path, starter_model: Path
) -> None:
    settings = Settings(
        temperature=0.0, max_tokens=16, context=768, threads=1, snapshot_budget_gb=0,
        model_titles="off",
    )  # fmt: skip
    stage = RealStage(tmp_path, settings=settings)
    try:
        stage.start(starter_model)
        until(lambda: stage.state.model.loaded is not None)
        text = "\n\n".join(
            f"Month {n}: the ferry carried {n * 7} people, and {n} dogs." for n in range(50)
        )
        file = FilePart("ferry.txt", text, reads=Reads.SUMMARY)
        assert stage.controller.send((file, TextPart("Summarise this in one short sentence.")))
        until(lambda: not stage.state.busy)
        answer = stage.state.messages[-1]
        assert answer.error is None
        assert answer.state is not MessageState.STREAMING
        found = [part for part in answer.parts if isinstance(part, SectionPart) and not part.level]
        assert len(found) > 1
        assert all(part.text for part in found)
        assert [part.start for part in found] == [0, *(part.end for part in found[:-1])]
        assert found[-1].end == len(text)
        assert answer.text.strip()
        print(f"\n{len(found)} parts, {answer.seconds:.1f} s: {answer.text!r}")
    finally:
        stage.close()
