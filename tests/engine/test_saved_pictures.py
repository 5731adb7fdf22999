"""Texts with pictures on the disk: restored after a restart, when the pictures have other ids."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import seeing_files
from engine import (
    ApplyTemplate,
    CacheType,
    Chat,
    Complete,
    Event,
    Failed,
    Finished,
    ImagePart,
    Restore,
    Role,
    Save,
    SnapshotLoaded,
    SnapshotSaved,
    TemplateApplied,
    TextPart,
    Turn,
    snapshots_folder,
)
from engine.loading import sight
from engine.loading.identity import ModelFiles, stamps
from engine.loading.loader import load
from engine.state.disk.disk_tier import encoder_key
from engine.vision.pairing import EncoderFile
from engine.vision.sight import Sight
from engine_bench import AMPLE_BYTES, GREEDY, Bench, answer_text, finished
from kernels.ops import Spans
from seeing_files import Reader

CAT, DOG, BIRD = (ImagePart(name) for name in (b"cat", b"dog", b"bird"))
LONG = "the quick brown fox " * 34


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seeing_files.write_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def path(pair: Path, tmp_path: Path) -> Path:
    """A copy of the model and its encoder, for one test."""
    for file in pair.parent.glob("*.gguf"):
        shutil.copy2(file, tmp_path)
    return tmp_path / pair.name


@pytest.fixture
def seeing(bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """An engine with the model that sees."""
    monkeypatch.setattr(sight, "PictureReader", Reader)
    bench.load(path, cache=CacheType.F32)
    return bench


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What encoders were given."""
    found: list[object] = []
    encode = EncoderFile.encode

    def noted(self: EncoderFile, *given: object) -> object:
        found.append(given[0])
        return encode(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(EncoderFile, "encode", noted)
    return found


def shown(*pictures: ImagePart, before: str = "x") -> Turn:
    return Turn(Role.USER, (TextPart(before), *pictures, TextPart("what is it")))


def ask(bench: Bench, number: int, *turns: Turn, **options: object) -> list[Event]:
    options = {"sampling": GREEDY, "max_tokens": 8, **options}
    bench.send(number, Chat(turns, **options))  # type: ignore[arg-type]
    return bench.until(Finished, Failed)


def save(bench: Bench, number: int, answer: int, conversation: str = "one") -> SnapshotSaved:
    return bench.expect(number, Save(conversation, AMPLE_BYTES, answer=answer), SnapshotSaved)


def restart(bench: Bench, path: Path) -> None:
    """Nothing is in memory, and the first ids of images are those of another picture."""
    bench.load(path, 90, CacheType.F32)
    ask(bench, 91, shown(BIRD), max_tokens=1)


def after(bench: Bench, number: int, turn: Turn, *answers: str, **options: object) -> list[Event]:
    """Ask on, after a turn and an answer."""
    history = [Turn(Role.ASSISTANT, one) for one in answers]
    return ask(bench, number, turn, *history, Turn(Role.USER, "why"), **options)


def test_a_chat_with_pictures_goes_on_after_a_restart_without_encoding_them(
    seeing: Bench, path: Path, encoded: list[object]
) -> None:
    turn = shown(CAT, DOG, CAT)
    first = ask(seeing, 1, turn, conversation="one")
    answer = answer_text(first)
    saved = save(seeing, 3, 1).tokens
    assert saved > finished(first).prompt_tokens
    went_on = answer_text(after(seeing, 2, turn, answer))
    restart(seeing, path)
    encoded.clear()
    turns = turn, Turn(Role.ASSISTANT, answer), Turn(Role.USER, "why")
    promised = ApplyTemplate(turns, measures_cache=True)
    cached = seeing.expect(4, promised, TemplateApplied).cached_tokens
    again = after(seeing, 5, turn, answer)
    assert answer_text(again) == went_on
    assert finished(again).reused_tokens == cached == saved
    assert encoded == []


def test_another_picture_of_the_size_is_never_taken_for_the_saved_one(
    seeing: Bench, path: Path
) -> None:
    answer = answer_text(ask(seeing, 1, shown(CAT), conversation="one"))
    saved = save(seeing, 2, 1).tokens
    wanted = [answer_text(after(seeing, 3, shown(one), answer)) for one in (CAT, DOG)]
    assert wanted[0] != wanted[1]
    restart(seeing, path)
    found = [after(seeing, number, shown(one), answer) for number, one in ((4, DOG), (5, CAT))]
    assert [answer_text(one) for one in found] == wanted[::-1]
    assert [finished(one).reused_tokens for one in found] == [0, saved]


def test_what_precedes_a_picture_is_restored_with_another_one(seeing: Bench, path: Path) -> None:
    system = Turn(Role.SYSTEM, LONG)
    ask(seeing, 1, system, shown(CAT), conversation="one")
    other = answer_text(ask(seeing, 2, system, shown(DOG)))
    assert save(seeing, 3, 1).tokens > 0
    restart(seeing, path)
    found = ask(seeing, 4, system, shown(DOG))
    assert (answer_text(found), finished(found).reused_tokens) == (other, 256)


def test_a_saved_text_goes_on_without_its_pictures(seeing: Bench, path: Path) -> None:
    begun = ask(seeing, 2, shown(CAT, DOG), max_tokens=7, conversation="one")
    save(seeing, 3, 2)
    whole = finished(ask(seeing, 1, shown(CAT, DOG), max_tokens=20)).token_ids
    ask(seeing, 4, shown(BIRD), conversation="two")
    save(seeing, 5, 4, "two")
    restart(seeing, path)
    found = seeing.expect(6, Restore((), "one"), SnapshotLoaded)
    assert found.ready_tokens >= found.total_tokens - 1
    seeing.send(7, Complete((), GREEDY, max_tokens=13, conversation="one"))
    more = finished(seeing.until(Finished, Failed))
    assert (*finished(begun).token_ids, *more.token_ids) == whole
    assert more.reused_tokens == more.prompt_tokens - 1


def test_a_saved_text_whose_pages_are_gone_needs_its_pictures(seeing: Bench, path: Path) -> None:
    ask(seeing, 1, shown(CAT), conversation="one")
    save(seeing, 2, 1)
    seeing.load(path, 3, CacheType.F32)
    for file in (snapshots_folder() / "pages").glob("*.page"):
        file.write_bytes(file.read_bytes()[:-1])
    seeing.send(4, Complete((), GREEDY, max_tokens=3, conversation="one"))
    (*_, failed) = seeing.until(Finished, Failed)
    assert isinstance(failed, Failed)
    assert failed.message == "A picture of this chat is not there any more."
    assert answer_text(ask(seeing, 5, shown(CAT)))


def test_what_another_encoder_read_is_not_used(
    seeing: Bench, path: Path, encoded: list[object]
) -> None:
    first = answer_text(ask(seeing, 1, shown(CAT), conversation="one"))
    saved = save(seeing, 2, 1).tokens
    encoder = path.with_name("mmproj-tiny.gguf")
    kept = encoder.rename(path.with_name("kept"))
    seeing_files.write_encoder(encoder, 256, seed=4)
    restart(seeing, path)
    assert answer_text(ask(seeing, 3, shown(CAT))) != first
    assert finished(after(seeing, 8, shown(CAT), first)).reused_tokens < saved
    for number, turns in ((4, (shown(CAT),)), (5, ())):
        loaded = seeing.expect(number, Restore(turns, "one"), SnapshotLoaded)
        assert loaded.restored_tokens == 0
        if not turns:
            assert loaded.refused == "The session has pictures that another picture encoder read."
    seeing.send(6, Complete((), GREEDY, max_tokens=3, conversation="one"))
    (*_, failed) = seeing.until(Finished, Failed)
    assert isinstance(failed, Failed)
    assert "another picture encoder" in failed.message
    encoder.unlink()
    kept.rename(encoder)
    restart(seeing, path)
    encoded.clear()
    found = after(seeing, 7, shown(CAT), first)
    assert finished(found).reused_tokens == saved
    assert encoded == []


def test_nothing_is_saved_after_the_encoders_file_has_changed(seeing: Bench, path: Path) -> None:
    ask(seeing, 1, shown(CAT), conversation="one")
    save(seeing, 2, 1)
    ask(seeing, 3, shown(DOG), conversation="two")
    encoder = path.with_name("mmproj-tiny.gguf")
    status = encoder.stat()
    os.utime(encoder, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000_000))
    seeing.send(4, Save("two", AMPLE_BYTES, answer=3))
    (*_, failed) = seeing.until(SnapshotSaved, Failed)
    assert isinstance(failed, Failed)
    assert failed.message.startswith("The file of the picture encoder has changed since")
    ask(seeing, 5, Turn(Role.USER, LONG), conversation="three")
    assert save(seeing, 6, 5, "three").tokens > 0


def test_texts_with_and_without_pictures_share_the_pages_before_them(
    seeing: Bench, path: Path
) -> None:
    system = Turn(Role.SYSTEM, LONG)
    for number, turn in ((1, Turn(Role.USER, "x")), (3, shown(CAT))):
        ask(seeing, number, system, turn, conversation=str(number))
        save(seeing, number + 1, number, str(number))
    names = [file.name for file in (snapshots_folder() / "pages").glob("*.0.page")]
    assert len(names) == 3  # of two texts of two pages
    path.with_name("mmproj-tiny.gguf").unlink()
    seeing.load(path, 5, CacheType.F32)
    found = ask(seeing, 6, system, Turn(Role.USER, "y"))
    assert finished(found).reused_tokens == 256
    seeing.send(7, Complete((), GREEDY, conversation="3"))
    (*_, failed) = seeing.until(Finished, Failed)
    assert isinstance(failed, Failed)
    assert "another picture encoder" in failed.message


def test_the_key_of_an_encoder_says_how_a_text_reads_its_rows(path: Path, tmp_path: Path) -> None:
    model, file = load(path, sees=True), path.with_name("mmproj-tiny.gguf")
    files = ModelFiles([file], stamps([file]), tmp_path / "hashes.json")
    assert model.sight is not None
    keys = set[str]()
    for spans in Spans:
        seeing = replace(model.sight.seeing, spans=spans)
        seen = Sight(seeing, model.sight.registry, model.sight.encoder)
        keys.add(encoder_key(files, replace(model, sight=seen)))
    assert len(keys) == len(Spans)
