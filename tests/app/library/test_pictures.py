"""Picture encoders in the library: offered with their models, added later, deleted with them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import tiny
from app.library.offers import offers
from app.library.pictures import PictureChoices
from app.net.hub import HubFile, Piece, Source, kind_of
from app.state.library import FileState, HubPhase, Offer
from encoder_keys import write_encoder
from engine import BeginningFacts, Fault, FaultKind
from hostile_hub import Fault as Fails
from hostile_hub import Hub
from library_fixture import LibraryFixture
from stage import until

GB = 1_000_000_000
CLIP = BeginningFacts(fault=Fault(FaultKind.OTHER_TYPE, "mmproj"), projector="gemma3", width=64)


def made(
    *names: str,
    room: int = 32 * GB,
    choices: PictureChoices | None = None,
    **read: BeginningFacts,
) -> dict[str, Offer]:
    """The offers of a repository, by file; what has been read is given by a part of the name."""
    files = [HubFile("o/n", "main", name, GB, "", kind_of(name)) for name in names]
    known = {file.source: read[key] for file in files for key in read if key in file.file}
    listed = offers(files, room, lambda _: None, lambda _: False, read=known, choices=choices)
    return {offer.source.file: offer for offer in listed}


def encoder_of(offer: Offer) -> str:
    return offer.encoder.file if offer.encoder else ""


@pytest.mark.parametrize(
    ("names", "model", "expected"),
    [
        # Of three formats the fast one, not the first of the list.
        (("m-Q4_0.gguf", "mmproj-BF16.gguf", "mmproj-F32.gguf", "mmproj-F16.gguf"), 0, 3),
        (("m-Q4_0.gguf", "mmproj-BF16.gguf", "mmproj-Q8_0.gguf"), 0, 2),
        # In a folder of its own, and a split model in another one.
        (("m-Q4_0.gguf", "mmproj/mmproj-BF16.gguf"), 0, 1),
        (("Q8_0/m-00001-of-00001.gguf", "mmproj-F16.gguf"), 0, 1),
        # Several models in one repository: by the folder, by the name.
        (("4b/m-Q4_0.gguf", "12b/m-Q4_0.gguf", "4b/mmproj.gguf", "12b/mmproj.gguf"), 1, 3),
        (("A-4B-Q4_0.gguf", "A-12B-Q4_0.gguf", "mmproj-A-12B-F16.gguf"), 1, 2),
        (("A-4B-Q4_0.gguf", "A-12B-Q4_0.gguf", "mmproj-A-12B-F16.gguf"), 0, None),
        (("gemma-4-E4B_q4_0-it.gguf", "gemma-4-E4B-it-mmproj.gguf"), 0, 1),
        (("m-Q4_0.gguf", "m-Q8_0.gguf"), 0, None),
    ],
)
def test_the_encoder_that_suits_a_model_comes_with_it(
    names: tuple[str, ...], model: int, expected: int | None
) -> None:
    found = encoder_of(made(*names)[names[model]])
    assert found == ("" if expected is None else names[expected])


def test_an_encoder_is_left_out_where_memory_does_not_suffice_and_by_choice() -> None:
    names = ("m-Q4_0.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf")
    small = made(*names, room=2 * GB)["m-Q4_0.gguf"]
    assert (small.encoder, small.source.encoder) == (None, None)
    assert [each.file for each in small.encoders] == ["mmproj-F16.gguf", "mmproj-F32.gguf"]
    assert small.size_bytes == GB
    large = made(*names)["m-Q4_0.gguf"]
    assert large.size_bytes == 2 * GB
    assert large.memory is not None
    assert (large.memory.needed_bytes, large.memory.encoder_bytes) == (2 * GB, GB)
    choices = PictureChoices()
    choices.choose(large.source, "mmproj-F32.gguf")
    assert encoder_of(made(*names, choices=choices)["m-Q4_0.gguf"]) == "mmproj-F32.gguf"
    choices.choose(large.source, "")
    assert encoder_of(made(*names, choices=choices)["m-Q4_0.gguf"]) == ""


def test_what_files_hold_decides_which_are_encoders() -> None:
    """A model named mmproj, an encoder named otherwise, one of another size, one of no use."""
    names = ("m-Q4_0.gguf", "mmproj-model.gguf", "eyes.gguf")
    model = BeginningFacts(is_model=True, architecture="gemma3", width=64)
    found = made(*names, mmproj=model, eyes=CLIP, Q4=model)
    assert encoder_of(found["m-Q4_0.gguf"]) == "eyes.gguf"
    assert not found["mmproj-model.gguf"].problem, "it is a model"
    assert found["eyes.gguf"].problem == (
        "Lets its model see pictures once it is in the same folder."
    )
    for other in (replace(CLIP, width=128), replace(CLIP, projector="an unknown kind")):
        assert not made(*names, mmproj=model, eyes=other, Q4=model)["m-Q4_0.gguf"].encoders


# --- from the list to the disk --------------------------------------------------------------------


@pytest.fixture
def content(tmp_path: Path) -> tuple[bytes, bytes]:
    """A model and a picture encoder that fits it."""
    model = tiny.write(tmp_path / "model.gguf")
    encoder = write_encoder(tmp_path / "encoder.gguf", "idefics3", 64)
    return model.read_bytes(), encoder.read_bytes()


def opened(online: LibraryFixture, hub: Hub, content: tuple[bytes, bytes]) -> None:
    """Open a repository with a model and its encoder."""
    names = {"Sees-4B-F32.gguf": content[0], "mmproj-F16.gguf": content[1]}
    rows = []
    for name, data in names.items():
        stored = hub.put(f"owner/name/{name}", data)
        large = {"oid": stored.sha256, "size": len(data)}
        rows.append({"type": "file", "path": name, "size": len(data), "lfs": large})
    hub.api["/api/models/owner/name/tree/main"] = Fails(body=json.dumps(rows).encode(), status=200)
    online.start()
    online.library.hub.submit_link("owner/name")
    until(lambda: online.library_state.hub.open_phase is HubPhase.ANSWERED)


def offered(online: LibraryFixture) -> Offer:
    return next(one for one in online.library_state.hub.files if "Sees" in one.source.file)


def inspected(online: LibraryFixture, name: str) -> FileState:
    row = online.row(name)
    online.library.model_index.inspect_files([row.path])
    until(lambda: online.row(name).state is not FileState.UNKNOWN)
    online.settle()
    return online.row(name).state


def test_a_model_sees_once_both_files_are_here_and_both_are_deleted(
    online: LibraryFixture, hub: Hub, own: Path, content: tuple[bytes, bytes]
) -> None:
    opened(online, hub, content)
    online.library.download(offered(online))
    until(lambda: len(online.names()) == 2)
    online.settle()
    assert sorted(online.names()) == ["Sees-4B-F32.gguf", "Sees-4B.mmproj-F16.gguf"]
    assert [each.path.name for each in online.state.installed] == ["Sees-4B-F32.gguf"]
    assert inspected(online, "Sees-4B-F32.gguf") is FileState.GOOD
    assert online.row("Sees-4B-F32.gguf").sees
    assert online.row("Sees-4B-F32.gguf").memory.encoder_bytes > 0
    assert [each.sees for each in online.state.installed] == [True]
    assert inspected(online, "Sees-4B.mmproj-F16.gguf") is FileState.BAD
    assert len(online.state.installed) == 1, "an encoder cannot chat"
    online.library.trash.delete(own / "Sees-4B-F32.gguf")
    until(lambda: not online.names())
    (trashed,) = online.library_state.trash
    assert trashed.size_bytes == sum(map(len, content))
    online.library.trash.undo_delete()
    until(lambda: len(online.names()) == 2)


def test_an_installed_model_gets_its_encoder_later(
    online: LibraryFixture, hub: Hub, own: Path, content: tuple[bytes, bytes]
) -> None:
    (own / "mine").mkdir(parents=True)
    (own / "mine" / "Sees-4B-F32.gguf").write_bytes(content[0])
    opened(online, hub, content)
    until(lambda: offered(online).here is not None)
    assert not offered(online).sees
    assert inspected(online, "Sees-4B-F32.gguf") is FileState.GOOD
    assert not online.row("Sees-4B-F32.gguf").sees
    online.library.add_pictures(offered(online))
    assert offered(online).sees, "it is on its way"
    until(lambda: online.library_state.line is not None)
    assert online.library_state.line.sentence == (
        "Pictures are added. They work once the model is loaded again."
    )
    assert (own / "mine" / "Sees-4B.mmproj-F16.gguf").read_bytes() == content[1]
    online.library.model_index.inspect_files([own / "mine" / "Sees-4B-F32.gguf"])
    until(lambda: online.row("Sees-4B-F32.gguf").sees)
    assert offered(online).sees


def test_a_shared_encoder_stays_until_its_last_model_is_deleted(
    fixture: LibraryFixture, own: Path, content: tuple[bytes, bytes]
) -> None:
    own.mkdir(parents=True, exist_ok=True)
    for name, data in (("S-Q4_0", content[0]), ("S-Q8_0", content[0]), ("S.mmproj", content[1])):
        (own / f"{name}.gguf").write_bytes(data)
    fixture.start()
    for name, left in (("S-Q4_0", ["S-Q8_0.gguf", "S.mmproj.gguf"]), ("S-Q8_0", [])):
        fixture.library.trash.delete(own / f"{name}.gguf")
        fixture.settle()
        assert sorted(fixture.names()) == left
    (own / "S.mmproj.gguf").write_bytes(content[1])
    fixture.library.trash.restore(fixture.library_state.trash)
    fixture.settle()
    assert sorted(fixture.names()) == ["S-Q4_0.gguf", "S-Q8_0.gguf", "S.mmproj.gguf"]
    assert not list(own.glob(".*")), "the encoder that came back is not kept twice"


def test_a_choice_is_shown_and_downloaded(
    online: LibraryFixture, hub: Hub, own: Path, content: tuple[bytes, bytes]
) -> None:
    opened(online, hub, content)
    assert offered(online).source.encoder == Piece(
        "mmproj-F16.gguf", len(content[1]), hub.files["owner/name/mmproj-F16.gguf"].sha256
    )
    online.library.choose_encoder(offered(online), "")
    assert offered(online).source == Source(
        "owner/name", "main", "Sees-4B-F32.gguf", len(content[0]),
        hub.files["owner/name/Sees-4B-F32.gguf"].sha256,
    )  # fmt: skip
    online.library.download(offered(online))
    until(lambda: online.library_state.line is not None)
    assert online.names() == ["Sees-4B-F32.gguf"]
