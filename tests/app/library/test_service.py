"""Library service: downloads, hub requests, catalog and per-model settings, with a local hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

import tiny
from app.domain.model_ref import Local
from app.downloads.catalog import computer_of
from app.downloads.queue import Phase
from app.settings.model_settings import AS_IN_SETTINGS, ModelDefaults
from app.settings.table import Settings
from app.state.chat import ModelPhase, ModelStatus
from app.state.library import HubPhase, LineAction
from app.system import json_file
from app.ui.library.row_values import RowView
from app.ui.library.rows import on_the_hub
from engine import CacheType, supported_architectures
from hostile_hub import Fault, Hub
from library_fixture import LibraryFixture, found, offer
from stage import until

# --- downloads ----------------------------------------------------------------------------------


def test_finished_download_is_announced_after_verification_and_inspection(
    online: LibraryFixture, hub: Hub, own: Path, tmp_path: Path
) -> None:
    content = tiny.write(tmp_path / "tiny.gguf").read_bytes()
    stored = hub.put("owner/name/Tiny-F32.gguf", content)
    online.start()
    online.library.download(offer("Tiny-F32.gguf", len(content), stored.sha256))
    assert online.library_state.downloads[0].phase is not Phase.DONE
    until(lambda: online.library_state.line is not None)
    assert online.library_state.line.sentence == "Tiny · F32 is downloaded."
    assert online.library_state.line.action is LineAction.USE
    assert online.names() == ["Tiny-F32.gguf"]
    used: list[Path] = []
    online.library.use_requested.connect(used.append)
    online.library.act_on_line()
    assert used == [own / "Tiny-F32.gguf"]


def test_file_with_a_wrong_hash_is_not_listed(online: LibraryFixture, hub: Hub, own: Path) -> None:
    hub.put("owner/name/bad.gguf", b"GGUF" + bytes(4000))
    online.start()
    online.library.download(offer("bad.gguf", 4004, "0" * 64))
    until(lambda: online.library_state.downloads[0].phase is Phase.FAILED)
    assert online.library_state.downloads[0].error.endswith(".")
    online.library.opened()
    online.settle()
    assert online.names() == []
    online.library.cancel(online.library_state.downloads[0].id)
    assert online.library_state.downloads == ()


def test_a_verified_file_this_version_cannot_run_is_not_offered(
    online: LibraryFixture, hub: Hub, own: Path
) -> None:
    content = b"GGUF" + bytes(4000)
    stored = hub.put("owner/name/odd.gguf", content)
    online.start()
    online.library.download(offer("odd.gguf", len(content), stored.sha256))
    until(lambda: online.library_state.line is not None)
    assert "cannot be used" in online.library_state.line.sentence
    assert online.library_state.line.action is None


def test_download_larger_than_the_free_space_is_refused_with_sizes(
    online: LibraryFixture, hub: Hub, own: Path
) -> None:
    online.free = 1_100_000_000
    online.start()
    online.library.download(offer("big.gguf", 2_500_000_000))
    line = online.library_state.line
    assert "2.5 GB" in line.sentence
    assert "1.1 GB" in line.sentence
    assert line.trouble
    assert online.library_state.downloads == ()
    assert hub.requests == []


def test_disk_space_of_other_downloads_is_not_counted_as_free(
    online: LibraryFixture, hub: Hub, own: Path
) -> None:
    online.free = 10_000
    content = b"GGUF" + bytes(6000)
    hub.put("owner/name/a.gguf", content)
    hub.faults.append(Fault(stall_after=100))
    online.start()
    online.library.download(offer("a.gguf", len(content)))
    online.library.download(offer("b.gguf", 6000))
    assert len(online.library_state.downloads) == 1
    assert "other downloads" in online.library_state.line.sentence
    hub.released.set()


def test_unfinished_download_is_paused_after_a_restart(
    qtbot: QtBot, hub: Hub, own: Path, tmp_path: Path
) -> None:
    content = tiny.write(tmp_path / "tiny.gguf").read_bytes()
    stored = hub.put("owner/name/Tiny-F32.gguf", content)
    hub.faults.append(Fault(stall_after=len(content) // 2))
    first = LibraryFixture(tmp_path, hub.endpoint)
    first.start()
    first.library.download(offer("Tiny-F32.gguf", len(content), stored.sha256))
    until(lambda: hub.stalled.is_set() and first.library_state.downloads[0].done_bytes > 0)
    first.close()
    hub.released.set()
    second = LibraryFixture(tmp_path, hub.endpoint)
    second.start()
    until(lambda: bool(second.library_state.downloads))
    (left,) = second.library_state.downloads
    assert left.phase is Phase.PAUSED
    second.library.downloads.resume(left.id)
    until(lambda: second.names() == ["Tiny-F32.gguf"])
    assert (own / "Tiny-F32.gguf").read_bytes() == content
    second.close()


# --- the hub ------------------------------------------------------------------------------------


def test_a_search_shows_repositories_and_the_files_of_the_one_that_is_opened(
    online: LibraryFixture, hub: Hub
) -> None:
    found(hub, "owner/Qwen3-GGUF")
    for form in ("Q4_K_M", "Q8_0", "Q4_0_8_8"):
        hub.put(f"owner/Qwen3-GGUF/Qwen3-{form}.gguf", b"GGUF" + bytes(1000 * len(form)))
    online.start()
    online.library.hub.search("qwen")
    assert online.library_state.hub.phase is HubPhase.ASKING
    until(lambda: online.library_state.hub.phase is HubPhase.ANSWERED)
    assert [row.id for row in online.library_state.hub.results] == ["owner/Qwen3-GGUF"]
    online.library.hub.open("owner/Qwen3-GGUF")
    until(lambda: online.library_state.hub.open_phase is HubPhase.ANSWERED)
    shown = [(each.format, each.recommended) for each in online.library_state.hub.files]
    assert shown == [("Q4_K_M", True), ("Q8_0", False), ("Q4_0_8_8", False)]
    assert "Q4_0_8_8" in online.library_state.hub.files[-1].problem
    online.library.hub.open("")
    assert online.library_state.hub.open == ""


def test_a_link_opens_its_repository_with_the_linked_file_first(
    online: LibraryFixture, hub: Hub
) -> None:
    for form in ("Q4_K_M", "Q8_0"):
        hub.put(f"owner/name/Model-{form}.gguf", b"GGUF" + bytes(1000))
    online.start()
    online.library.hub.submit_link("https://huggingface.co/owner/name/blob/main/Model-Q8_0.gguf")
    until(lambda: online.library_state.hub.open_phase is HubPhase.ANSWERED)
    assert [each.format for each in online.library_state.hub.files] == ["Q8_0", "Q4_K_M"]


def test_unusable_link_shows_the_reason(fixture: LibraryFixture) -> None:
    fixture.library.hub.submit_link("https://example.org/readme.md")
    assert fixture.library_state.hub.phase is HubPhase.FAILED
    assert fixture.library_state.hub.remedy


def test_files_are_judged_by_how_they_begin_once_their_rows_are_seen(
    online: LibraryFixture, hub: Hub, tmp_path: Path
) -> None:
    repository = "owner/name"
    big = tiny.write(tmp_path / "t.gguf", format="Q8_0").read_bytes() + bytes(1 << 20)
    kinds = {
        "m-Q4_K_M.gguf": {"general.type": "imatrix"},
        "m-Q8_0.gguf": {"general.architecture": "unheard-of"},
        "my-lora-Q8_0.gguf": {},
    }
    for name, keys in kinds.items():
        tiny.rewrite(tmp_path / "t.gguf", tmp_path / name, keys)
        hub.put(f"{repository}/{name}", (tmp_path / name).read_bytes() + bytes(1 << 20))
    hub.put(f"{repository}/m-Q9_Z.gguf", big)
    hub.put(f"{repository}/unseen-Q4_0.gguf", big)
    online.start()
    online.library.hub.open(repository)
    state = online.library_state
    until(lambda: state.hub.open_phase is HubPhase.ANSWERED)
    assert hub.store_requests() == []  # nothing is read before its row is visible

    def problems() -> dict[str, str]:
        return {each.source.file: each.problem for each in state.hub.files}

    seen = [each.source for each in state.hub.files if "unseen" not in each.source.file]
    for _ in range(3):  # the page reports them with every update
        online.library.hub.read_beginnings(seen)
    until(lambda: len(hub.store_requests()) >= 4 and "importance" in problems()["m-Q4_K_M.gguf"])
    until(lambda: "unheard-of" in problems()["m-Q8_0.gguf"] and not problems()["m-Q9_Z.gguf"])
    until(lambda: not problems()["my-lora-Q8_0.gguf"])
    assert all("unseen" not in one.path for one in hub.store_requests())
    assert {one.headers["Range"] for one in hub.store_requests()} == {"bytes=0-262143"}
    online.library.hub.read_beginnings(seen)
    online.settle()
    assert len(hub.store_requests()) == len(seen)  # nothing is read twice


def test_a_file_that_cannot_be_read_keeps_what_its_name_says(
    online: LibraryFixture, hub: Hub
) -> None:
    hub.put("owner/name/m-Q4_K_M.gguf", b"GGUF" + bytes(1000))
    hub.put("owner/name/n-imatrix.gguf", b"GGUF" + bytes(1000))
    hub.faults.extend([Fault(status=403), Fault(status=500)])
    online.start()
    online.library.hub.open("owner/name")
    state = online.library_state
    until(lambda: state.hub.open_phase is HubPhase.ANSWERED)
    online.library.hub.read_beginnings([each.source for each in state.hub.files])
    until(lambda: len(hub.store_requests()) == 2)
    online.settle()
    assert [bool(each.problem) for each in state.hub.files] == [False, True]


def test_the_quantization_of_a_pasted_command_is_first(online: LibraryFixture, hub: Hub) -> None:
    for form in ("Q4_K_M", "Q8_0", "Q6_K_L"):
        hub.put(f"owner/name/Model-{form}.gguf", b"GGUF" + bytes(1000))
    online.start()
    online.library.hub.submit_link("ollama run hf.co/owner/name:Q6_K_L")
    until(lambda: online.library_state.hub.open_phase is HubPhase.ANSWERED)
    assert online.library_state.hub.files[0].format == "Q6_K_L"
    assert not online.library_state.hub.files[0].problem


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("owner/name:Q5_K_M", "Q5_K_M"),
        ("owner/name:latest", ""),
        ("owner/name:q8_0", ""),
        ("https://hf.co/owner/name/blob/main/Other-Q8_0.gguf", "Other-Q8_0.gguf"),
        ("https://hf.co/owner/name/blob/main/Big-Q6_K-00002-of-00002.gguf", ""),
    ],
)
def test_a_link_to_what_a_repository_does_not_have_says_so(
    online: LibraryFixture, hub: Hub, text: str, missing: str
) -> None:
    for name in ("Model-Q8_0", "Big-Q6_K-00001-of-00002", "Big-Q6_K-00002-of-00002"):
        hub.put(f"owner/name/{name}.gguf", b"GGUF" + bytes(1000))
    online.start()
    online.library.hub.submit_link(text)
    state = online.library_state
    until(lambda: state.hub.open_phase is HubPhase.ANSWERED)
    assert state.hub.missing == missing
    if "Big" in text:
        assert state.hub.files[0].format == "Q6_K"
    notes = [view.note for view in on_the_hub(state.hub, text) if isinstance(view, RowView)]
    assert any(missing in note for note in notes if note) == bool(missing)
    online.library.hub.open("")
    assert state.hub.missing == ""


def test_unreachable_hub_shows_an_error_and_the_rest_works(
    qtbot: QtBot, tmp_path: Path, hub: Hub, own: Path
) -> None:
    tiny.write(own / "own.gguf")
    hub.close()
    fixture = LibraryFixture(tmp_path, hub.endpoint)
    fixture.start()
    fixture.library.hub.search("qwen")
    until(lambda: fixture.library_state.hub.phase is HubPhase.FAILED)
    assert fixture.library_state.hub.error.endswith(".")
    assert fixture.names() == ["own.gguf"]
    fixture.close()


def test_only_the_latest_request_is_shown(online: LibraryFixture, hub: Hub) -> None:
    hub.silent = True
    online.start()
    online.library.hub.search("alpha")
    until(hub.stalled.is_set)
    hub.silent = False
    found(hub, "owner/beta-GGUF")
    online.library.hub.search("beta")
    until(lambda: online.library_state.hub.phase is HubPhase.ANSWERED)
    hub.released.set()
    until(lambda: not online.library.hub._workers)
    assert online.library_state.hub.query == "beta"
    assert [row.id for row in online.library_state.hub.results] == ["owner/beta-GGUF"]


# --- the catalog and settings -------------------------------------------------------------------


def test_catalog_rows_have_predicted_memory(fixture: LibraryFixture) -> None:
    fixture.start()
    until(lambda: bool(fixture.library_state.catalog))
    fixture.library.opened()
    until(lambda: any(row.offer.memory for row in fixture.library_state.catalog))
    for row in fixture.library_state.catalog:
        assert (row.offer.memory is None) == bool(row.offer.problem)
        runs = row.model.architecture in supported_architectures()
        assert runs != bool(row.offer.problem)


def test_the_choice_for_this_computer_comes_first(fixture: LibraryFixture) -> None:
    fixture.start()
    fixture.library.opened()
    until(lambda: any(row.offer.memory for row in fixture.library_state.catalog))
    rows = fixture.library_state.catalog
    best = [row.model for row in rows if row.offer.recommended]
    assert best == [rows[0].model]
    assert best[0].choice
    assert best[0].memory_gb <= computer_of(fixture.library_state.computer_bytes)


def test_per_model_settings_are_saved_and_override_the_settings(
    fixture: LibraryFixture, own: Path, tmp_path: Path
) -> None:
    path = tiny.write(own / "model.gguf", context=4096)
    fixture.start()
    fixture.library.model_index.inspect_files([path])
    until(lambda: fixture.row("model.gguf").memory is not None)
    before = fixture.row("model.gguf").memory
    values = ModelDefaults(context=512, temperature=0.25, cache=CacheType.Q8_0)
    fixture.library.defaults.show(path)
    fixture.library.defaults.change(path, values)
    until(lambda: (view := fixture.library_state.defaults) is not None and view.memory is not None
          and view.memory.context == 512)  # fmt: skip
    until(lambda: fixture.row("model.gguf").memory.context == 512)
    assert fixture.row("model.gguf").memory.needed_bytes < before.needed_bytes
    assert fixture.row("model.gguf").own_settings
    settings = fixture.library.defaults.settings_for(path)
    assert (settings.context, settings.temperature) == (512, 0.25)
    assert fixture.library.defaults.whole(path).cache is CacheType.Q8_0
    assert fixture.library.defaults.settings_for(None) == Settings()
    fixture.settle()
    kept = LibraryFixture(tmp_path)
    kept.start()
    kept.settle()
    assert kept.library.defaults.own(path) == values
    kept.library.defaults.change(path, AS_IN_SETTINGS)
    kept.settle()
    assert json_file.read(tmp_path / "models.json")["defaults"] == {}
    kept.close()


def test_unloading_shows_the_freed_memory(fixture: LibraryFixture) -> None:
    fixture.state.set_model(ModelStatus(freed_bytes=612_000_000))
    assert fixture.library_state.line.sentence == "Model unloaded. 612 MB of memory is free again."
    fixture.state.set_model(ModelStatus(ModelPhase.LOADING, Local(Path("/x.gguf")), "x"))
    assert fixture.library_state.line is None


def test_closing_twice_or_before_the_start_is_allowed(qtbot: QtBot, tmp_path: Path) -> None:
    fixture = LibraryFixture(tmp_path)
    fixture.library.close()
    fixture.close()
