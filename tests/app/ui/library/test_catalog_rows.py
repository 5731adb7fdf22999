"""Catalog rows of the library page: the choice for this computer, groups, refused models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QPushButton
from pytestqt.qtbot import QtBot

import scenes_library as scenes
from app.downloads.catalog import Thinking
from app.state.chat import ModelStatus
from app.ui.library.row_values import HeadingView
from app.ui.library.rows import catalog_row, views
from library_shown import Shown, show
from stage import flush


@pytest.fixture
def shown(qtbot: QtBot) -> Iterator[Shown]:
    made = Shown()
    yield made
    made.close()


def test_catalog_offers_supported_models_and_explains_others(qtbot: QtBot, shown: Shown) -> None:
    show(shown, scenes.library_empty)
    shown.library.set_catalog(scenes.offered(without="gemma4"), 8_400_000_000)
    flush()
    runs = shown.row("Ternary Bonsai 8B")
    assert runs.link.text() == "Apache-2.0"
    assert runs.link.accessibleName() == "Licence: Apache-2.0"
    with qtbot.waitSignal(shown.page.download_requested) as request:
        qtbot.mouseClick(runs.action, Qt.MouseButton.LeftButton)
    assert request.args[0].source.file == "Ternary-Bonsai-8B-Q2_0_g64.gguf"
    for row in shown.library.catalog:
        if row.offer.problem:
            shown.page.list.scroll_to(f"catalog:{row.model.id}")
            flush()
            assert shown.row(row.model.name).view.action is None
            assert shown.row(row.model.name).note.text() == row.offer.problem
            assert row.offer.problem == f"{row.model.name} is not supported yet."


@pytest.mark.parametrize(
    ("computer_gb", "available", "without", "name"),
    [
        (4, 2_300_000_000, "", "Ternary Bonsai 4B"),
        (8, 5_900_000_000, "", "Ternary Bonsai 8B"),
        (16, 13_100_000_000, "", "Qwen3.5 9B"),
        (32, 27_500_000_000, "", "Gemma 4 26B-A4B"),
        (32, 27_500_000_000, "gemma4", "Qwen3.5 9B"),  # the engine does not run the choice
        (32, 4_000_000_000, "", "Ternary Bonsai 8B"),  # other programs use the memory
        (4, 500_000_000, "", ""),
    ],
)
def test_one_model_is_recommended_for_this_computer(
    shown: Shown, computer_gb: int, available: int, without: str, name: str
) -> None:
    rows = scenes.offered(computer_gb, available, without)
    assert [row.model.name for row in rows if row.offer.recommended] == [name] * bool(name)
    shown.library.set_catalog(rows, computer_gb * 10**9)
    flush()
    shown.page.list.scroll_to("get")
    flush()
    badge = "Recommended for this computer"
    marked = [text for text in shown.texts() if text.startswith(badge)]
    assert len(marked) == bool(name)


def test_other_models_are_grouped_by_size_of_computer_this_one_first(shown: Shown) -> None:
    shown.library.set_catalog(scenes.offered(16, 13_100_000_000), 25_700_000_000)
    library_rows = views(shown.library, ModelStatus(), "")
    headings = [view for view in library_rows if isinstance(view, HeadingView) and view.small]
    assert [(view.text, view.detail) for view in headings] == [
        ("For 16 GB of memory or more", "this computer has 25.7 GB"),
        ("For 8 GB of memory or more", ""),
        ("For 4 GB of memory or more", ""),
        ("For 32 GB of memory or more", ""),
    ]


def test_a_search_shows_the_first_matches_of_the_catalog_and_how_many_there_are(
    shown: Shown,
) -> None:
    show(shown, scenes.library_full)
    rows = list(views(shown.library, ModelStatus(), "bonsai"))
    heading = next(view for view in rows if isinstance(view, HeadingView) and view.key == "get")
    assert (heading.text, heading.detail) == ("From the selection", "4 of 11")
    assert [view.key.partition(":")[0] for view in rows].count("catalog") == 4
    few = next(
        view
        for view in views(shown.library, ModelStatus(), "gpt-oss")
        if isinstance(view, HeadingView) and view.key == "get"
    )
    assert few.detail == ""
    assert few.links == ()


def test_all_matches_of_the_catalog_are_shown_on_request(qtbot: QtBot, shown: Shown) -> None:
    show(shown, scenes.library_full)
    page = shown.page

    def bonsai() -> int:
        """Number of its models among the visible rows, from those of the catalog on."""
        page.resize(816, 2400)
        page.list.scroll_to("get")
        flush()
        return sum(key.startswith("catalog:") for key in page.list.seen)

    page.search.setText("bonsai")
    assert bonsai() == 4
    (link,) = (each for each in page.findChildren(QPushButton) if each.text() == "Show all")
    qtbot.mouseClick(link, Qt.MouseButton.LeftButton)
    assert bonsai() == 11
    page.search.setText("bonsa")  # another query begins with the first matches again
    assert bonsai() == 4


def test_a_catalog_row_says_its_size_and_whether_the_model_thinks(shown: Shown) -> None:
    rows = {row.model.id: row for row in scenes.offered()}
    thinks, can = catalog_row(rows["bonsai-27b"]), catalog_row(rows["gemma4-e2b"])
    assert thinks.detail == "26.9B parameters · 1.1 bits each · 3.8 GB · "
    assert thinks.note.endswith("slow without a GPU. Thinks before it answers.")
    assert can.note.endswith("Can think before it answers.")
    assert not catalog_row(rows["bonsai-8b"]).note.endswith("it answers.")
    unknown = replace(rows["bonsai-27b"].model, size_bytes=0, thinking=Thinking.UNKNOWN)
    shown_row = catalog_row(replace(rows["bonsai-27b"], model=unknown))
    assert shown_row.detail == "26.9B parameters · Q1_0 · size unknown · "
    assert shown_row.note == unknown.description


def test_a_refused_architecture_names_the_nearest_family_and_has_details(
    qtbot: QtBot, shown: Shown
) -> None:
    show(shown, scenes.library_refused)
    row = shown.row("RWKV7 World 2.9B")
    assert row.note.text() == (
        "RWKV7-World-2.9B-Q8_0.gguf is a rwkv7 model, which is not supported yet. Choose a "
        "model of another family, such as Llama, Qwen or Gemma."
    )
    assert row.view.action is None
    assert row.view.note_tone == "warning"  # nothing is wrong with the file
    opened = shown.row("Qwen3.8 Flash Next")
    assert opened.note.text().splitlines() == [
        "Qwen3.8-Flash-Next-Q4_K_M.gguf is a qwen4exp model, which is not supported yet. Nearest "
        "are Qwen3.5 models (qwen35); choose one of these.",
        "The file is a 'qwen4exp' model, an architecture this version cannot run. Choose a model "
        "of one of these kinds: gemma3, llama, qwen3, qwen35.",
    ]
    assert opened.links[0].text() == "Hide details"


def test_models_that_search_documents_have_a_section_and_can_be_used(
    qtbot: QtBot, shown: Shown
) -> None:
    show(shown, scenes.library_embedders)
    shown.page.list.scroll_to("embedders")
    flush()
    offered = [row.model.name for row in shown.library.embedders]
    assert offered[0] == "EmbeddingGemma 300M"
    assert "Installed" in [each.text() for each in shown.row(offered[0]).findChildren(QLabel)]
    with qtbot.waitSignal(shown.page.download_requested) as request:
        qtbot.mouseClick(shown.row(offered[1]).action, Qt.MouseButton.LeftButton)
    assert request.args == [shown.library.embedders[1].offer]
    shown.page.list.scroll_to("installed")
    flush()
    used, other = shown.row("embeddinggemma-300M"), shown.row("all-MiniLM-L6-v2")
    assert used.view.status == "In use"
    assert used.view.action is None
    assert other.note.text() == "For searching documents by meaning"
    with qtbot.waitSignal(shown.page.embedder_chosen) as chosen:
        qtbot.mouseClick(other.action, Qt.MouseButton.LeftButton)
    assert chosen.args == [other.view.action.about]
