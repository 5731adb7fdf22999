"""Picture encoders in the list of installed models: in the row of their model, and offered there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytestqt.qtbot import QtBot

import scenes_library as scenes
from app.state.chat import ModelStatus
from app.state.library import FileState, InstalledRow, Offer
from app.ui.library.installed_rows import on_this_machine, own_encoders
from app.ui.library.row_values import HeadingView, Verb
from engine import Fault, FaultKind
from library_shown import Shown, show
from scenes_library import BONSAI, QWEN, SMOL
from stage import flush


def test_a_picture_encoder_of_one_model_is_in_its_row(shown: Shown, qtbot: QtBot) -> None:
    folder = BONSAI.path.parent
    encoder = replace(
        SMOL, path=folder / "mmproj-F16.gguf", name="mmproj", size_bytes=700_000_000, format="",
        state=FileState.BAD, fault=Fault(FaultKind.OTHER_TYPE, "mmproj"), memory=None,
    )  # fmt: skip
    seeing = replace(BONSAI, encoder=encoder.path)
    shown.library.set_installed([seeing, encoder, QWEN])
    flush()
    row = shown.row("Bonsai 8B")
    assert "1.2 GB + 700 MB for pictures" in row.view.detail
    assert "sees pictures" not in row.view.detail
    assert not any("mmproj" in text for text in shown.texts())
    orphan = replace(encoder, path=QWEN.path.with_name("mmproj.gguf"), size_bytes=0)
    rows = (seeing, encoder, QWEN, orphan)
    heading = next(on_this_machine(rows, ModelStatus(), searched=True, catalog=False))
    assert isinstance(heading, HeadingView)
    assert heading.detail == "2 models · 6.9 GB"
    menu = row.menu()
    entries = [entry.text() for entry in menu.actions()]
    assert entries[2:] == ["Move to trash (1.9 GB)", "Move its pictures file to trash (700 MB)"]
    with qtbot.waitSignal(shown.page.delete_requested) as deleted:
        menu.actions()[-1].trigger()
    menu.close()
    assert deleted.args == [encoder.path]
    other = replace(seeing, path=folder / "other.gguf", name="Other")
    shown.library.set_installed([seeing, other, encoder])
    flush()
    assert "sees pictures" in shown.row("Bonsai 8B").view.detail
    assert shown.row("mmproj").view.detail == "700 MB"


def test_before_a_model_is_inspected_names_tell_whose_an_encoder_is() -> None:
    def unread(name: str) -> InstalledRow:
        return replace(SMOL, path=Path("/models") / name, state=FileState.UNKNOWN, encoder=None)

    model, other, elsewhere = unread("A-4B-Q4_0.gguf"), unread("B-8B.gguf"), unread("x/A.gguf")
    common, named = unread("mmproj-F16.gguf"), unread("mmproj-B-8B-F16.gguf")

    def own(*rows: InstalledRow) -> dict[str, str]:
        return {path.name: each.path.name for path, each in own_encoders(rows).items()}

    assert own(model, common) == {model.path.name: common.path.name}
    assert own(model, other, common) == {}
    assert own(model, other, named) == {other.path.name: named.path.name}
    assert own(elsewhere, common) == {}
    inspected = replace(model, state=FileState.GOOD)
    assert own(inspected, common) == {}, "it does not fit"
    assert own(inspected, other, common) == {other.path.name: common.path.name}


def test_an_installed_model_of_the_catalog_offers_its_pictures_in_its_menu(
    shown: Shown, qtbot: QtBot
) -> None:
    show(shown, scenes.library_empty)
    rows = scenes.offered(16, 13_100_000_000)
    at = next(at for at, row in enumerate(rows) if row.offer.encoders)
    here = replace(rows[at].offer, here=BONSAI.path)
    shown.library.set_installed([BONSAI, QWEN])

    def entries(offer: Offer) -> list[str]:
        shown.library.set_catalog([*rows[:at], replace(rows[at], offer=offer)], 16 * 10**9)
        flush()
        return [entry.text for entry in shown.row("Bonsai 8B").view.menu]

    known = entries(replace(here, sees=True))
    assert entries(here)[1:] == known
    menu = shown.row("Bonsai 8B").menu()
    assert menu.actions()[0].text().startswith("Add pictures, ")
    with qtbot.waitSignal(shown.page.pictures_requested) as asked:
        menu.actions()[0].trigger()
    menu.close()
    assert asked.args == [here]
    assert all(entry.verb is not Verb.ADD_PICTURES for entry in shown.row("Qwen3 8B").view.menu)
