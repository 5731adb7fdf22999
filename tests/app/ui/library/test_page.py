"""Model library page: rows and their actions, search, file drops, one model's settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QLabel, QPushButton
from pytestqt.qtbot import QtBot

import scenes_library as scenes
from app.domain.model_ref import Local
from app.downloads.catalog import Thinking
from app.downloads.queue import Phase
from app.net.hub import Piece
from app.settings.model_settings import ModelDefaults
from app.state.chat import ModelPhase, ModelStatus
from app.state.library import FileState, Line, LineAction, Memory, Place
from app.ui.library import rows as library_rows
from app.ui.library.page import LibraryPage
from app.ui.library.row import LibraryRow
from app.ui.library.row_values import HeadingView, Verb
from app.ui.library.rows import catalog_row, offer_row, views
from engine import Fault, FaultKind
from library_shown import Shown, press, show
from scenes_library import BONSAI, QWEN, SMOL
from stage import flush

# --- on this machine ----------------------------------------------------------------------------


def test_valid_model_can_be_used(qtbot: QtBot, shown: Shown) -> None:
    show(shown, scenes.library_full)
    with qtbot.waitSignal(shown.page.use_requested) as used:
        qtbot.mouseClick(shown.row("Bonsai 8B").action, Qt.MouseButton.LeftButton)
    assert used.args == [BONSAI.path]


@pytest.mark.parametrize("state", [FileState.UNKNOWN, FileState.BAD, FileState.MISSING])
def test_other_files_cannot_be_used(shown: Shown, state: FileState) -> None:
    bad = replace(BONSAI, state=state, problem="It is damaged.", remedy="Get another copy.")
    shown.library.set_installed([bad])
    flush()
    row = shown.row("Bonsai 8B")
    assert row.view.action is None
    assert not row.action.isVisible()
    assert all(entry.verb is not Verb.USE for entry in row.view.menu)


def test_incomplete_file_shows_a_sentence_and_details_on_request(
    qtbot: QtBot, shown: Shown
) -> None:
    show(shown, scenes.library_failed)
    row = shown.row("half")
    assert row.note.text() == "half-Q4_0.gguf is incomplete. Download it again."
    assert row.links[0].text() == "Details"
    qtbot.mouseClick(row.links[0], Qt.MouseButton.LeftButton)
    flush()
    row = shown.row("half")
    assert "blk.7.ffn_up.weight" in row.note.text()
    assert row.links[0].text() == "Hide details"
    qtbot.mouseClick(row.links[0], Qt.MouseButton.LeftButton)
    flush()
    assert "blk.7" not in shown.row("half").note.text()


def test_failed_load_beside_a_loaded_model_is_shown_in_the_row_of_the_failed_file(
    shown: Shown,
) -> None:
    show(shown, scenes.library_full)
    shown.state.set_model(
        replace(
            shown.state.model,
            error="It broke.",
            failed=Local(BONSAI.path),
            fault=Fault(
                FaultKind.MEMORY, needed_bytes=9_000_000_000, available_bytes=6_200_000_000
            ),
        )
    )
    flush()
    note = shown.row("Bonsai 8B").note.text()
    assert note.startswith(f"{BONSAI.path.name} needs 9.0 GB of memory; 6.2 GB is free.")
    assert not shown.row(SMOL.name).note.text()


def test_memory_is_predicted_then_measured(shown: Shown) -> None:
    show(shown, scenes.library_full)
    predicted, measured = shown.row("Bonsai 8B"), shown.row(SMOL.name)
    assert predicted.meter_words.text() == "2.1 GB of 6.2 GB free"
    assert predicted.meter_under.text() == "fits in memory"
    assert measured.meter_words.text() == "Uses 310 MB"  # by the definition of the prediction
    assert measured.meter_under.text() == ""
    assert "The whole app holds 418,000,000 bytes now" in measured.meter_bar.toolTip()


@pytest.mark.parametrize(
    ("needed", "words"),
    [
        (3.0e9, "fits in memory"),
        (5.2e9, "just fits in memory"),
        (9.0e9, "too large for this computer"),
    ],
)
def test_memory_fit_is_shown_in_words(shown: Shown, needed: float, words: str) -> None:
    row = replace(BONSAI, memory=Memory(int(needed), 6_200_000_000, 4096))
    shown.library.set_installed([row])
    flush()
    assert shown.row("Bonsai 8B").meter_under.text() == words
    assert words in shown.row("Bonsai 8B").accessibleDescription()


def test_the_memory_says_what_it_is_made_of(shown: Shown) -> None:
    parts = 2_200_000_000, 1_900_000_000, 100_000_000
    memory = Memory(4_200_000_000, 22_500_000_000, 32_768, *parts)
    shown.library.set_installed([replace(BONSAI, memory=memory)])
    flush()
    row = shown.row("Bonsai 8B")
    assert row.meter_words.text() == "4.2 GB of 22.5 GB free"
    made_of = "2.2 GB model, 1.9 GB for 32,768 tokens, 100 MB working memory"
    assert made_of in row.meter_words.toolTip()
    assert "Picture encoder" not in row.meter_words.toolTip()
    seeing = replace(memory, needed_bytes=5_000_000_000, encoder_bytes=800_000_000)
    shown.library.set_installed([replace(BONSAI, memory=seeing)])
    flush()
    tip = shown.row("Bonsai 8B").meter_words.toolTip()
    assert "3.0 GB model, 1.9 GB for 32,768 tokens, 100 MB working memory" in tip
    assert "Picture encoder: 800,000,000" in tip


@pytest.mark.parametrize(("seconds", "words"), [(2.04, "about 2 s for each word"), (0, "slowly")])
def test_a_model_larger_than_the_memory_says_how_slow_it_is(
    shown: Shown, seconds: float, words: str
) -> None:
    memory = Memory(
        5_000_000_000, 6_200_000_000, 4096, offloaded_bytes=3_700_000_000, offloaded_seconds=seconds
    )
    shown.library.set_installed([replace(BONSAI, memory=memory)])
    flush()
    row = shown.row("Bonsai 8B")
    assert row.meter_under.text() == "runs from the disk, slowly"
    assert row.note.text().startswith("Does not fit in memory: it runs from the disk")
    assert words in row.note.text()
    assert "Read for each token: 3,700,000,000" in row.meter_bar.toolTip()
    assert row.action.isEnabled()


def test_the_model_in_use_can_be_unloaded_from_its_menu(qtbot: QtBot, shown: Shown) -> None:
    show(shown, scenes.library_full)
    row = shown.row(SMOL.name)
    assert row.status.text() == "In use"
    menu = row.menu()
    entry = next(each for each in menu.actions() if each.text() == "Unload")
    with qtbot.waitSignal(shown.page.unload_requested):
        entry.trigger()
    menu.deleteLater()


def test_load_shows_progress_and_can_be_cancelled(qtbot: QtBot, shown: Shown) -> None:
    show(shown, scenes.library_loading)
    row = shown.row("Bonsai 8B")
    assert row.progress.share == pytest.approx(0.37, abs=0.01)
    assert row.action.accessibleName() == "Cancel loading Bonsai 8B"
    with qtbot.waitSignal(shown.page.cancel_load_requested):
        qtbot.mouseClick(row.action, Qt.MouseButton.LeftButton)


def test_failed_load_shows_the_error_in_its_row(shown: Shown) -> None:
    show(shown, scenes.library_full)
    shown.state.set_model(
        ModelStatus(
            ModelPhase.FAILED,
            Local(BONSAI.path),
            BONSAI.name,
            error="It broke.",
            remedy="Try again.",
        )
    )
    flush()
    assert shown.row("Bonsai 8B").note.text() == "It broke. Try again."


def test_delete_actions_depend_on_where_the_file_is(shown: Shown) -> None:
    file = replace(BONSAI, path=Path("/elsewhere/b.gguf"), name="Linked", place=Place.FILE)
    bundled = replace(BONSAI, path=Path("/app/b.gguf"), name="Bundled", place=Place.BUNDLED)
    shown.library.set_installed([BONSAI, QWEN, file, bundled])
    flush()
    entries = {
        name: [entry.text for entry in shown.row(name).view.menu][2:]
        for name in ("Bonsai 8B", "Qwen3 8B", "Linked", "Bundled")
    }
    assert entries == {
        "Bonsai 8B": ["Move to trash (1.2 GB)"],
        "Qwen3 8B": ["Move file to trash (5.0 GB)"],
        "Linked": ["Remove from list", "Move file to trash (1.2 GB)"],
        "Bundled": [],
    }


def test_an_empty_library_says_so_and_offers_the_catalog(qtbot: QtBot, shown: Shown) -> None:
    assert "Looking for models…" in shown.texts()
    show(shown, scenes.library_empty)
    note = next(text for text in shown.texts() if text.startswith("No models yet"))
    row = next(r for r in shown.page.findChildren(LibraryRow) if r.accessibleName() == note)
    with qtbot.waitSignal(shown.page.open_file_requested):
        qtbot.mouseClick(row.links[0], Qt.MouseButton.LeftButton)
    assert "Get a model" in shown.texts()


# --- downloads and offers -----------------------------------------------------------------------


def test_downloads_show_amount_speed_and_time_left(shown: Shown) -> None:
    show(shown, scenes.library_downloading)
    assert shown.row("Qwen3 4B · Q4_K_M").detail.text() == "1.2 of 2.5 GB · 14 MB/s · 2 min left"
    assert shown.row("Bonsai 4B · Q1_0").detail.text() == "paused · 90 of 572 MB"
    assert "Trying again" in shown.row("gemma 3 1b it · Q4_K_M").note.text()


def test_a_stalled_download_shows_no_old_speed(shown: Shown) -> None:
    row = scenes.download(1, "a.gguf", Phase.RUNNING, 10_000_000, 20_000_000)
    shown.library.set_downloads([row])
    flush()
    assert shown.row("a").detail.text() == "10 of 20 MB · no data arriving"


def test_downloads_are_paused_resumed_cancelled_and_tried_again(qtbot: QtBot, shown: Shown) -> None:
    show(shown, scenes.library_downloading)
    page = shown.page
    for name, place, signal, number in (
        ("Qwen3 4B · Q4_K_M", 0, page.pause_requested, 1),
        ("Bonsai 4B · Q1_0", 0, page.resume_requested, 2),
        ("Qwen3 4B · Q4_K_M", 1, page.cancel_requested, 1),
    ):
        with qtbot.waitSignal(signal) as request:
            qtbot.mouseClick(shown.row(name).icons[place], Qt.MouseButton.LeftButton)
        assert request.args == [number]
    show(shown, scenes.library_failed)
    row = shown.row("Qwen3 4B · Q4_K_M")
    assert "SHA-256" in row.note.text()
    with qtbot.waitSignal(page.retry_requested):
        qtbot.mouseClick(row.links[0], Qt.MouseButton.LeftButton)


# --- search -------------------------------------------------------------------------------------


def test_typing_filters_local_rows_without_a_request(qtbot: QtBot, shown: Shown) -> None:
    show(shown, scenes.library_full)
    sent: list[str] = []
    shown.page.searched.connect(sent.append)
    qtbot.keyClicks(shown.page.search, "qwen 8B")
    flush()
    names = [text for text in shown.texts() if text in (SMOL.name, "Qwen3 8B", "Bonsai 8B")]
    assert names == ["Qwen3 8B", "Qwen3 8B"]  # installed, and in the catalog
    assert "Nothing is sent until you search." in shown.texts()
    assert sent == []


@pytest.mark.parametrize(
    ("text", "link"),
    [("qwen3", False), ("owner/name", True), ("https://hf.co/owner/name", True)],
)
def test_enter_searches_hugging_face(qtbot: QtBot, shown: Shown, text: str, link: bool) -> None:
    page = shown.page
    qtbot.keyClicks(page.search, f" {text} ")
    with qtbot.waitSignal(page.link_submitted if link else page.searched) as request:
        press(qtbot, Qt.Key.Key_Return)
    assert request.args == [text]


def test_visible_files_of_the_hub_are_reported(qtbot: QtBot, shown: Shown) -> None:
    shown.page.resize(816, 700)
    with qtbot.waitSignal(shown.page.offers_seen) as seen:
        show(shown, scenes.library_hub)
    keys = shown.page.list.seen
    visible = [one.source for one in shown.library.hub.files if library_rows.offer_key(one) in keys]
    assert list(seen.args[0]) == visible
    assert 0 < len(visible) < len(shown.library.hub.files)


def test_results_open_to_their_files(qtbot: QtBot, shown: Shown) -> None:
    show(shown, scenes.library_hub)
    best = shown.row("Q4_K_M")
    assert best.badge.text() == "Recommended"
    assert "Qwen3-8B-Q4_K_M.gguf" in best.detail.text()
    other = next(
        row
        for row in shown.page.findChildren(LibraryRow)
        if row.isVisible() and row.view.detail.startswith("by unsloth")
    )
    with qtbot.waitSignal(shown.page.repository_opened) as opened:
        qtbot.mouseClick(other.action, Qt.MouseButton.LeftButton)
    assert opened.args == ["unsloth/Qwen3-8B-GGUF"]
    shown.page.list.scroll_to(
        "repository:somebody/Qwen3-8B-private-tune-with-a-very-long-name-GGUF"
    )
    flush()
    assert any("sign in" in text for text in shown.texts())


def test_offline_shows_one_line_and_local_rows_work(shown: Shown) -> None:
    show(shown, scenes.library_offline)
    assert any(text.startswith("huggingface.co cannot be reached.") for text in shown.texts())
    assert shown.row("Qwen3 8B").action.isVisible()


def test_escape_clears_the_search_then_closes_the_page(qtbot: QtBot, shown: Shown) -> None:
    qtbot.keyClicks(shown.page.search, "qwen")
    press(qtbot, Qt.Key.Key_Escape)
    assert shown.page.search.text() == ""
    with qtbot.waitSignal(shown.page.closed):
        press(qtbot, Qt.Key.Key_Escape)


def test_typing_anywhere_on_the_page_searches(qtbot: QtBot, shown: Shown) -> None:
    show(shown, scenes.library_full)
    shown.row("Bonsai 8B").action.setFocus()
    qtbot.keyClick(shown.row("Bonsai 8B").action, Qt.Key.Key_Q)
    assert shown.page.search.text() == "q"
    assert shown.page.search.hasFocus()


# --- drops, message line, settings of one model -------------------------------------------------


def drop(page: LibraryPage, *paths: Path) -> bool:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    place, action = QPoint(200, 300), Qt.DropAction.CopyAction
    button, none = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    enter = QDragEnterEvent(place, action, data, button, none)
    QApplication.sendEvent(page, enter)
    event = QDropEvent(place.toPointF(), action, data, button, none)
    QApplication.sendEvent(page, event)
    return enter.isAccepted()


def test_a_dropped_model_is_listed_in_place_and_used(
    qtbot: QtBot, shown: Shown, tmp_path: Path
) -> None:
    path = tmp_path / "model.GGUF"
    path.touch()
    with qtbot.waitSignals([shown.page.files_dropped, shown.page.use_requested]):
        assert drop(shown.page, path)


def test_a_dropped_folder_is_added_and_other_files_are_refused(
    qtbot: QtBot, shown: Shown, tmp_path: Path
) -> None:
    dropped: list[tuple[Path, ...]] = []
    shown.page.files_dropped.connect(dropped.append)
    (text := tmp_path / "notes.txt").touch()
    assert not drop(shown.page, text)
    assert drop(shown.page, tmp_path, text)
    assert dropped == [(tmp_path,)]


def test_message_line_shows_its_action(qtbot: QtBot, shown: Shown) -> None:
    shown.library.set_line(Line("Deleted Bonsai 8B (1.2 GB).", action=LineAction.UNDO))
    assert shown.page.news.isVisible()
    with qtbot.waitSignal(shown.page.line_acted):
        qtbot.mouseClick(shown.page.news_link, Qt.MouseButton.LeftButton)
    shown.library.set_line(Line("Model unloaded. 612 MB of memory is free again."))
    assert not shown.page.news_link.isVisible()
    shown.library.set_line(None)
    assert not shown.page.news.isVisible()


def test_card_emits_valid_input_and_marks_invalid_input(qtbot: QtBot, shown: Shown) -> None:
    show(shown, scenes.library_defaults)
    card = shown.page.card
    assert card.fields["context"].text() == "16,384"
    assert card.fields["top_k"].placeholderText() == "40"
    assert "5.1 GB of 6.2 GB" in card.memory_words.text()
    field = card.fields["context"]
    field.clear()
    with qtbot.waitSignal(shown.page.defaults_changed) as changed:
        qtbot.keyClicks(field, "4096")
    assert changed.args[0] == BONSAI.path
    assert changed.args[1].context == 4096
    field.clear()
    qtbot.keyClicks(field, "lots")
    card._commit()
    assert field.property("wrong") is True
    assert card._values.context == 4096
    with qtbot.waitSignal(shown.page.defaults_changed) as changed:
        qtbot.mouseClick(card.precisions[card_type("q8_0")], Qt.MouseButton.LeftButton)
    assert changed.args[1].cache is card_type("q8_0")
    with qtbot.waitSignal(shown.page.defaults_changed) as changed:
        qtbot.mouseClick(card.reset, Qt.MouseButton.LeftButton)
    assert changed.args[1] == type(changed.args[1])()
    with qtbot.waitSignal(shown.page.defaults_closed):
        qtbot.mouseClick(card.close_button, Qt.MouseButton.LeftButton)


def test_what_a_model_runs_on_is_chosen_where_there_is_a_choice(qtbot: QtBot, shown: Shown) -> None:
    show(shown, scenes.library_defaults)
    card = shown.page.card
    assert not card.device_label.isVisible()  # only the processor
    show(shown, scenes.library_split)
    assert card.device_label.isVisible()
    assert card.devices[None].isChecked()
    assert all(button.isEnabled() for button in card.devices.values())
    assert "24 layers: NVIDIA GeForce RTX 4070 (3.7 GB)" in card.device_words.text()
    assert "2.4 times as fast" in card.device_words.text()
    for choice in ("auto", "cpu", "gpu", "split", None):
        card._values = ModelDefaults(runs_on="gpu" if choice != "gpu" else "cpu")
        with qtbot.waitSignal(shown.page.defaults_changed) as changed:
            qtbot.mouseClick(card.devices[choice], Qt.MouseButton.LeftButton)
        assert changed.args[1].runs_on == choice
    show(shown, scenes.library_gpu_refused)
    assert not card.devices["gpu"].isEnabled()
    assert card.devices["split"].isHidden()
    assert card.devices["gpu"].toolTip() == "The GPU of this computer is too old."
    assert card.device_words.text().endswith("The processor runs the model.")


def test_a_draft_model_is_chosen_from_a_menu(qtbot: QtBot, shown: Shown) -> None:
    show(shown, scenes.library_defaults)
    button = shown.page.card.draft
    assert button.isVisible()
    assert button.text() == "No model"
    menu = button.menu_of_models()
    small, middle = (path for path, _ in button._models)
    names = [action.text() for action in menu.actions()]
    assert names == ["No model", "Bonsai 0.6B (Q1_0)", "Bonsai 1.7B (Q1_0)"]
    assert [action.isChecked() for action in menu.actions()] == [True, False, False]
    with qtbot.waitSignal(shown.page.defaults_changed) as changed:
        menu.actions()[2].trigger()
    assert changed.args[1].draft == middle
    show(shown, scenes.library_draft_model)
    assert button.text() == "Bonsai 0.6B (Q1_0)"
    with qtbot.waitSignal(shown.page.defaults_changed) as changed:
        button.menu_of_models().actions()[0].trigger()
    assert changed.args[1].draft is None
    button.show_choice((), small)  # the chosen one is not installed any more
    assert [action.text() for action in button.menu_of_models().actions()] == ["No model", "small"]
    button.show_choice((), None)
    assert not button.isVisible()
    assert not button.words.isVisible()


def card_type(value: str) -> object:
    from engine import CacheType

    return CacheType(value)


# --- the catalog ----------------------------------------------------------------------------------


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
        (8, 5_900_000_000, "", "Qwen3.5 4B"),  # the one that sees
        (8, 4_000_000_000, "", "Ternary Bonsai 8B"),  # there is no room for its encoder
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
    assert thinks.note.endswith("slow without a GPU. Sees pictures. Thinks before it answers.")
    assert can.note.endswith("Can think before it answers.")
    assert not catalog_row(rows["bonsai-8b"]).note.endswith("it answers.")
    unknown = replace(rows["bonsai-27b"].model, size_bytes=0, thinking=Thinking.UNKNOWN)
    shown_row = catalog_row(replace(rows["bonsai-27b"], model=unknown))
    assert shown_row.detail == "26.9B parameters · Q1_0 · size unknown · "
    assert shown_row.note == f"{unknown.description} Sees pictures."


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


def test_pictures_are_a_check_box_of_a_download_and_a_link_of_an_installed_model(
    qtbot: QtBot, shown: Shown
) -> None:
    show(shown, scenes.library_empty)
    rows = scenes.offered(16, 13_100_000_000)
    shown.library.set_catalog(rows, 16 * 10**9)
    flush()
    shown.page.list.scroll_to("catalog:qwen3.5-9b")
    flush()
    row = shown.row("Qwen3.5 9B")
    assert (row.option.text(), row.option.isChecked()) == ("Add pictures, 918 MB", True)
    assert row.option in row.controls()
    assert "Sees pictures." in row.note.text()
    with qtbot.waitSignal(shown.page.encoder_chosen) as chosen:
        qtbot.mouseClick(row.option, Qt.MouseButton.LeftButton)
    offer, file = chosen.args
    assert (offer.encoder.file, file) == ("mmproj-F16.gguf", "")
    here = next(row.offer for row in rows if row.model.id == "qwen3.5-9b")
    here = replace(here, here=Path("/models/a.gguf"))
    view = catalog_row(next(replace(row, offer=here) for row in rows if row.offer.recommended))
    assert view.option is None
    (link,) = view.links
    assert (link.verb, link.text) == (Verb.ADD_PICTURES, "Add pictures, 918 MB")
    several = replace(here, here=None, encoders=(*here.encoders, Piece("mmproj-F32.gguf", 10**9)))
    menu = [action.text for action in offer_row(several, 1).menu]
    assert menu == ["Picture encoder: mmproj-F32.gguf, 1.0 GB", "Open web page"]
