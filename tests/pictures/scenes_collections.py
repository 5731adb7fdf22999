"""Scenes of collections: their page, chips, the "@" list, the offer for a large folder, the panel."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtTest import QTest

import scenes_passages
from app.domain.collection import Collection, CollectionView, Problem
from app.domain.parts import PassagesPart
from app.state.collection_faults import gone_problem, source_problem
from app.ui.collections.page import CollectionsPage
from scenes_chat import Scene, ready
from stage import Stage, flush, until

_HOME = "/home/ada"
HARBOUR = Collection(1, "Harbour", (f"{_HOME}/Harbour", f"{_HOME}/Desktop/fish tax.xlsx"))
LETTERS = Collection(2, "Letters of the council", (f"{_HOME}/Letters",))
LIBRARY = Collection(
    3,
    "Everything that was written on the rebuilding of the harbour walls, and what came after it",
    ("/media/ada/Library of the harbour authority/Books and papers, scanned, 1890 to 1970",),
)
NEW = Collection(4, "Minutes", (f"{_HOME}/Minutes",))
ALL = (HARBOUR, LETTERS, LIBRARY, NEW)


def _views() -> dict[int, CollectionView]:
    """In the language of the window."""
    return {
        1: CollectionView(
            214, 214, 3,
            (
                Problem(
                    f"{_HOME}/Harbour/plans.pdf", "plans.pdf is protected by a password.",
                    "Save it without the password.",
                ),
                gone_problem(f"{_HOME}/Harbour/walls 1926.docx"),
            ),
            scanned=True,
        ),
        2: CollectionView(31, 31, scanned=True),
        3: CollectionView(
            10_000, 4_312, problems=(source_problem(LIBRARY.sources[0]),), scanned=True
        ),
        4: CollectionView(),
    }  # fmt: skip


def _collect(stage: Stage, *collections: Collection) -> None:
    ready(stage)
    stage.states.collections.set(collections)
    stage.states.collections.set_views({each.id: _views()[each.id] for each in collections})


def _use(stage: Stage, *collections: Collection) -> None:
    for each in collections:
        stage.controller.chat_settings.use_collection(each.id)
    flush()


def _page(stage: Stage) -> CollectionsPage:
    page = stage.window.collections.open()
    flush()
    return page


def collections(stage: Stage) -> None:
    """Four of them; the chosen one has problems."""
    _collect(stage, *ALL)
    _page(stage).show_collection(1)


def collections_empty(stage: Stage) -> None:
    ready(stage)
    _page(stage)


def collections_reading(stage: Stage) -> None:
    """A long name, and a folder that cannot be reached; one was deleted."""
    _collect(stage, *ALL)
    page = _page(stage)
    page.show_collection(3)
    stage.states.collections.set((LETTERS, LIBRARY, NEW), HARBOUR)


def collections_narrow(stage: Stage) -> None:
    collections(stage)
    stage.window.resize(460, 640)
    flush()


def collection_chips(stage: Stage) -> None:
    """The chips of a chat that is answered from three, and a file."""
    _collect(stage, *ALL)
    _use(stage, HARBOUR, LETTERS, LIBRARY)
    stage.window.composer.insert("What did the harbour cost, and who paid for it?")
    stage.window.composer.chips.chips[0].setFocus()


def collections_at(stage: Stage) -> None:
    """The list behind "@"."""
    _collect(stage, *ALL)
    _use(stage, HARBOUR)
    editor = stage.window.composer.editor
    editor.setFocus()
    QTest.keyClicks(editor, "See @")
    flush()


def collections_offer(stage: Stage) -> None:
    """What is said of a folder with too many files."""
    ready(stage)
    folder = stage.folder / "Harbour"
    folder.mkdir()
    for number in range(30):
        (folder / f"letter {number}.txt").write_text("Dear Ada", encoding="utf-8")
    stage.window.attaching.attached.emit([folder])
    until(lambda: bool(stage.state.notices))


def collections_panel(stage: Stage) -> None:
    _collect(stage, *ALL)
    _use(stage, LETTERS)
    stage.window.open_panel("collections")
    flush()


def collection_passages(stage: Stage) -> None:
    """Passages of files in a collection, with the folders that these are in."""
    one, two, *_ = scenes_passages.PASSAGES
    path = f"{_HOME}/Harbour/Pumps/{one.name}"
    part = PassagesPart((replace(one, path=path), replace(two, path=f"{_HOME}/Letters/{two.name}")))
    scenes_passages.show(stage, part)
    scenes_passages.unfold(stage)


SCENES: dict[str, Scene] = {
    "collections": collections,
    "collections_empty": collections_empty,
    "collections_reading": collections_reading,
    "collections_narrow": collections_narrow,
    "collection_chips": collection_chips,
    "collections_at": collections_at,
    "collections_offer": collections_offer,
    "collections_panel": collections_panel,
    "collection_passages": collection_passages,
}
