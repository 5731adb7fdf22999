"""A stage with a folder of documents, for tests of collections."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.chat.documents.collections import Collections
from app.chat.documents.file_texts import TextExtractor
from app.domain.parts import TextPart
from app.domain.passages import passages_part
from fakes import MODEL
from plain_extractor import PlainExtractor
from stage import Stage, flush, until

FILTER = "Clean the zirconium filter every month."


class Table:
    """A stage with a folder of documents and a collection of it."""

    def __init__(self, tmp_path: Path, extractor: TextExtractor | None = None) -> None:
        self.place = tmp_path / "app"
        self.place.mkdir()
        self.folder = tmp_path / "documents"
        self.folder.mkdir()
        self.extractor = PlainExtractor()
        self.stage = Stage(self.place, extractor=extractor or self.extractor)
        self.id = 0

    @property
    def collections(self) -> Collections:
        return self.stage.controller.collections

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def add(self) -> None:
        self.id = self.collections.add([self.folder])
        self.settle()

    def settle(self) -> None:
        """Wait until all files are read and indexed."""
        own, indexing = self.collections, self.stage.states.indexing
        own._looked.clear()
        own._look()
        until(lambda: self.id in own._scans and not own._scanning)
        until(lambda: not (own._waiting or own._reads.path or indexing.view.is_working))
        own._show()
        self.stage.wait_until_idle()

    def use(self) -> None:
        """Let the shown chat be answered from the collection."""
        current = self.stage.state.current
        settings = replace(self.stage.state.settings(current), collections=(self.id,))
        self.stage.controller.chat_settings.change(current, settings)

    def ask(self, question: str) -> list[tuple[str, str]]:
        """The names and texts of the passages with which a question is asked."""
        stage = self.stage
        assert stage.controller.send((TextPart(question),))
        asked = stage.state.messages[-2].id
        until(lambda: passages_part(stage.state.message(asked).parts) is not None)  # type: ignore[union-attr]
        stage.wait_until_idle()
        stage.engine.write("So it is [1].")
        stage.engine.finish()
        stage.wait_until_idle()
        part = passages_part(stage.state.message(asked).parts)  # type: ignore[union-attr]
        return [(each.name, each.text) for each in part.passages] if part else []

    def problems(self) -> list[str]:
        return [each.sentence for each in self.collections.state.view(self.id).problems]

    def indexed(self) -> set[str]:
        """The keys in the index."""
        found: list[set[str]] = []
        indexing = self.stage.controller.indexing
        indexing._worker.run(lambda: indexing._index().keys(), found.append)
        until(lambda: bool(found))
        return found[0]

    def forget_unnamed(self) -> None:
        """Let the index forget what nothing names, and wait for that."""
        controller, done = self.stage.controller, list[int]()
        controller.indexed_files.forget_unnamed()
        self.stage.store_queue.flush(done.append)
        until(lambda: bool(done))
        flush()
        until(lambda: not (controller.indexing._working or controller.indexing._jobs))

    def restart(self) -> None:
        self.stage.close()
        self.extractor = PlainExtractor()
        self.stage = Stage(self.place, extractor=self.extractor)
        self.stage.ready(MODEL)
        until(lambda: self.collections._has_read)
        until(lambda: self.collections._files is not None)
