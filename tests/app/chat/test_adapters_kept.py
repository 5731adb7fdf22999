"""Stacks, mixes and marks of answers are restored after a restart; adapter names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from adapter_stage import (
    DIGEST,
    FORMAL,
    PIRATE,
    SHORT,
    AdapterStage,
    answer,
    begin,
    restart,
    uses,
)
from app.domain.message import AdapterMark, Message
from app.state.adapters import AdapterEntry, adapter_name, adapter_path, is_adapter_name
from store_contents import all_messages


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[AdapterStage]:
    made = AdapterStage(tmp_path)
    made.wait_until_idle()
    yield made
    made.close()


# --- restart --------------------------------------------------------------------------------------


def test_stacks_are_restored_after_a_restart(stage: AdapterStage, tmp_path: Path) -> None:
    stored = begin(stage)
    stage.adapters.add(PIRATE)
    stage.adapters.add(FORMAL)
    stage.adapters.set_strength(1, -0.75)
    stage.adapters.set_on(0, False)
    stage.state.show(None)
    stage.adapters.add(SHORT)
    stage.wait_until_idle()
    later = restart(stage, tmp_path)
    assert later.shown.stack == (AdapterEntry(SHORT),)
    later.state.show(stored)
    assert later.shown.stack == (
        AdapterEntry(PIRATE, on=False),
        AdapterEntry(FORMAL, strength=-0.75),
    )
    assert {known.path for known in later.shown.known} == {PIRATE, FORMAL, SHORT}
    later.close()


def test_strength_changed_just_before_closing_is_saved(stage: AdapterStage, tmp_path: Path) -> None:
    stage.adapters.add(PIRATE)
    stage.adapters.set_strength(0, 0.2)
    later = restart(stage, tmp_path)
    assert later.shown.stack == (AdapterEntry(PIRATE, strength=0.2),)
    later.close()


def test_refused_adapter_is_tried_again_after_a_restart(
    stage: AdapterStage, tmp_path: Path
) -> None:
    stage.load()
    stage.adapters.add(FORMAL)
    stage.refuse()
    later = restart(stage, tmp_path)
    assert later.shown.stack == (AdapterEntry(FORMAL),)
    later.close()


def test_mixes_are_saved_applied_replaced_and_deleted(stage: AdapterStage, tmp_path: Path) -> None:
    stage.adapters.save_mix("nothing to keep")
    stage.adapters.add(PIRATE)
    stage.adapters.add(FORMAL)
    stage.adapters.set_strength(0, 0.5)
    stage.adapters.save_mix("  Calm \n sea ")
    assert stage.shown.mix == "Calm sea"
    stage.adapters.clear()
    assert stage.shown.mix == ""
    stage.adapters.add(SHORT)
    stage.adapters.save_mix("Brief")
    stage.adapters.apply_mix("Calm sea")
    assert stage.shown.stack == (AdapterEntry(PIRATE, strength=0.5), AdapterEntry(FORMAL))
    stage.adapters.apply_mix("no such mix")
    later = restart(stage, tmp_path)
    assert list(later.shown.mixes) == ["Brief", "Calm sea"]
    later.adapters.delete_mix("Brief")
    later.adapters.delete_mix("Brief")
    last = restart(later, tmp_path)
    assert list(last.shown.mixes) == ["Calm sea"]
    last.close()


def test_mix_does_not_store_errors_of_the_engine(stage: AdapterStage) -> None:
    stage.load()
    stage.adapters.add(FORMAL)
    stage.refuse()
    stage.adapters.save_mix("German")
    assert stage.shown.mixes["German"] == (AdapterEntry(FORMAL),)
    assert stage.shown.mix == "German"


def test_deleted_files_are_marked_missing(stage: AdapterStage, tmp_path: Path) -> None:
    there = tmp_path / "there.gguf"
    there.write_bytes(b"GGUF")
    stage.adapters.add(there)
    stage.adapters.add(PIRATE)
    stage.adapters.find_missing()
    stage.wait_until_idle()
    assert [known.missing for known in stage.shown.known] == [False, True]


def test_everything_is_written_again_after_a_repair(stage: AdapterStage, tmp_path: Path) -> None:
    stage.adapters.add(PIRATE)
    stage.adapters.save_mix("Sea")
    stage.wait_until_idle()
    stage.store_queue.write(lambda store: store.set_settings(None, ""))
    stage.store_queue.write(lambda store: store.set_adapter_mix("Sea", ()))
    stage.adapters.write_all()
    stage.settings.write_all()
    later = restart(stage, tmp_path)
    assert later.shown.stack == (AdapterEntry(PIRATE),)
    assert list(later.shown.mixes) == ["Sea"]
    later.close()


# --- marks on answers -----------------------------------------------------------------------------


def test_answer_stores_its_adapters(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    stage.adapters.add(PIRATE)
    stage.adapters.add(FORMAL)
    stage.adapters.set_on(1, False)
    stage.adapters.set_strength(0, 0.8)
    stage.adapters.flush()
    stage.answer_requests()
    number = answer(stage, shown)
    assert stage.start_answer(shown)
    stage.adapters.record_on(number, stage.uses)
    marks = (AdapterMark("pirate-speech", 0.8, DIGEST[:12]),)
    message = stage.state.message(number)
    assert message is not None
    assert message.adapters == marks
    found: list[Message] = []
    stage.store_queue.read(lambda store: all_messages(store)[number], found.append)
    stage.wait_until_idle()
    assert found[0].adapters == marks


def test_answer_without_adapters_has_no_mark(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    number = answer(stage, shown)
    changed: list[Message] = []
    stage.state.message_changed.connect(changed.append)
    stage.adapters.record_on(number, ())
    assert changed == []


def test_answer_continued_with_other_adapters_stores_both(stage: AdapterStage) -> None:
    stage.load()
    shown = begin(stage)
    number = answer(stage, shown)
    for strength in (1.0, 0.5, 0.5):
        stage.adapters.add(PIRATE)
        stage.adapters.set_strength(0, strength)
        stage.adapters.flush()
        stage.answer_requests()
        assert stage.start_answer(shown)
        stage.adapters.record_on(number, stage.uses)
    message = stage.state.message(number)
    assert message is not None
    assert [mark.strength for mark in message.adapters] == [1.0, 0.5]


def test_mark_for_a_deleted_message_is_dropped(
    stage: AdapterStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.adapters.record_on(12345, uses((PIRATE, 1.0)))
    stage.wait_until_idle()
    assert "its row no longer exists" in caplog.text
    caplog.clear()


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/short_answers.gguf", "short answers"),
        ("/a/Upper.GGUF", "Upper"),
        ("/a/run-1.5", "run-1.5"),
        ("/a/_.gguf", str(Path("/a/_.gguf"))),
    ],
)
def test_adapter_names_come_from_their_files(path: str, name: str) -> None:
    assert adapter_name(Path(path)) == name


def test_file_in_a_peft_folder_resolves_to_the_folder(tmp_path: Path) -> None:
    assert adapter_path(tmp_path / "adapter_config.json") == tmp_path
    assert adapter_path(tmp_path / "adapter_model.safetensors") == tmp_path
    assert adapter_path(tmp_path / "a.gguf") == tmp_path / "a.gguf"
    assert adapter_path(Path("a.gguf")).is_absolute()


def test_only_possible_adapters_can_be_dropped(tmp_path: Path) -> None:
    assert is_adapter_name(tmp_path)
    assert is_adapter_name(tmp_path / "A.GGUF")
    assert is_adapter_name(tmp_path / "adapter_model.safetensors")
    assert not is_adapter_name(tmp_path / "notes.txt")
