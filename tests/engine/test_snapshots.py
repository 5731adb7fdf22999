"""Save and Restore: exact and partial restores, refusals, budget, cancellation."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import tiny
import tiny_lora
from engine import (
    AdaptersSet,
    AdapterUse,
    ApplyTemplate,
    CacheType,
    Chat,
    Failed,
    Fault,
    FaultKind,
    Finished,
    Load,
    ModelLoaded,
    ModelUnloaded,
    PromptProgress,
    Restore,
    Sampling,
    Save,
    SetAdapters,
    SnapshotLoaded,
    SnapshotSaved,
    TemplateApplied,
    Unload,
    snapshots_folder,
    snapshots_size,
)
from engine.state.disk.store import PageStore
from engine_bench import (
    AMPLE_BYTES,
    GREEDY,
    SEEDED,
    TIMEOUT_SECONDS,
    UNKNOWN,
    Bench,
    answer_text,
    computed_prompt_tokens,
    count_tokens,
    finished,
    run_turns,
    turns_of,
)


@pytest.fixture
def leaf(llama: Path) -> Path:
    return tiny_lora.write(llama.with_name("leaf.gguf"), llama, rank=4)


@pytest.fixture
def root(llama: Path) -> Path:
    return tiny_lora.write(llama.with_name("root.gguf"), llama, seed=3, rank=8)


@pytest.mark.parametrize("cache", list(CacheType))
def test_conversation_is_restored_in_another_engine(cache: CacheType, model: Path) -> None:
    bench = Bench()
    bench.load(model, cache=cache)
    texts = run_turns(bench, 5)
    saved = bench.save(1)
    expected = answer_text(bench.generate(2, *texts, "and then", max_tokens=20))
    bench.engine.stop()
    assert saved.tokens > 100
    assert saved.size_bytes == snapshots_size() > 0
    assert saved.evicted == 0
    again = Bench()
    again.load(model, cache=cache)
    loaded = again.load_snapshot(3, *texts)
    assert loaded.refused == ""
    assert loaded.restored_tokens >= saved.tokens - 1
    assert loaded.total_tokens - 4 <= loaded.ready_tokens <= loaded.total_tokens
    assert loaded.seconds > 0
    assert loaded.remaining_prefill_seconds == 0
    events = again.generate(4, *texts, "and then", max_tokens=20)
    assert computed_prompt_tokens(events) < 45
    assert answer_text(events) == expected
    again.engine.stop()


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_interrupted_answer_continues_in_another_engine(sampling: Sampling, llama: Path) -> None:
    bench = Bench()
    bench.load(llama)
    whole = answer_text(bench.generate(1, "hello", max_tokens=60, sampling=sampling))
    bench.load(llama, request=2)
    begun = answer_text(bench.generate(3, "hello", max_tokens=23, sampling=sampling))
    assert bench.save(4).tokens
    bench.engine.stop()
    again = Bench()
    again.load(llama)
    events = again.generate(6, "hello", begun, max_tokens=60 - 23, sampling=sampling)
    assert begun + answer_text(events) == whole
    assert computed_prompt_tokens(events) == 1
    again.engine.stop()


def test_generate_restores_the_snapshot_of_another_conversation(bench: Bench, model: Path) -> None:
    bench.load(model)
    one = run_turns(bench, 4)
    assert bench.save(1, "one").tokens
    two = ["something else altogether"]
    two.append(answer_text(bench.generate(2, *two, max_tokens=20)))
    assert bench.save(3, "two").tokens
    assert computed_prompt_tokens(bench.generate(4, *one, "more", max_tokens=2)) < 45
    assert computed_prompt_tokens(bench.generate(5, *two, "more", max_tokens=2)) < 45


def test_how_much_of_a_prompt_is_cached_is_known_before_it_is_read(
    bench: Bench, model: Path
) -> None:
    """In memory, in another chat that begins with the same document, and on the disk."""
    document = "What a document says, again and again. " * 30

    def measured(number: int, text: str) -> TemplateApplied:
        request = ApplyTemplate(turns_of(text), measures_cache=True)
        return bench.expect(number, request, TemplateApplied)

    bench.load(model)
    assert measured(1, document + "First?").cached_tokens == 0
    events = bench.generate(2, document + "First?", max_tokens=4, conversation="one")
    second = measured(3, document + "Second?")
    assert 0 < second.tokens - second.cached_tokens < 45
    plain = bench.expect(4, ApplyTemplate(turns_of(document + "Second?")), TemplateApplied)
    assert plain == replace(second, request=4, cached_tokens=0, prefill_seconds=0.0)
    assert bench.save(5, "one").tokens > finished(events).prompt_tokens
    bench.load(model, request=6)
    saved = measured(7, document + "Second?")
    assert saved.cached_tokens > 0
    events = bench.generate(8, document + "Second?", max_tokens=4, conversation="two")
    assert finished(events).reused_tokens == saved.cached_tokens
    assert measured(9, document * 90).prefill_seconds == 0.0  # longer than the context
    other = measured(10, "Something else, of which nothing is cached at all. " * 20)
    assert (other.cached_tokens < 45, other.prefill_seconds > 0) == (True, True)


def test_saving_twice_writes_once(bench: Bench, model: Path) -> None:
    bench.load(model)
    assert bench.save(1).tokens == 0
    assert snapshots_size() == 0
    run_turns(bench, 2)
    first = bench.save(2)
    assert first.tokens
    assert bench.save(3) == SnapshotSaved(3, 0, 0, 0.0, 0)
    for file in stored_files():
        file.unlink()
    assert bench.save(4).tokens == first.tokens


def test_only_the_named_conversation_is_saved(bench: Bench, llama: Path) -> None:
    """Neither an unknown one, nor with the answer of another, nor one without a name."""
    bench.load(llama)
    bench.generate(2, "a secret", conversation="one", max_tokens=9)
    for number, command in enumerate(
        (
            Save("two", AMPLE_BYTES, UNKNOWN),
            Save("two", AMPLE_BYTES, answer=7),
            Save("two", AMPLE_BYTES, answer=2),
            Save("", AMPLE_BYTES, answer=2),
        )
    ):
        assert bench.expect(10 + number, command, SnapshotSaved) == SnapshotSaved(
            10 + number, 0, 0, 0.0, 0
        )
    bench.generate(3, "another secret", max_tokens=9)
    assert bench.expect(14, Save("two", AMPLE_BYTES, answer=2), SnapshotSaved).tokens == 0
    assert snapshots_size() == 0
    assert bench.expect(15, Save("one", AMPLE_BYTES, answer=2), SnapshotSaved).tokens
    assert bench.expect(16, Save("two", AMPLE_BYTES, answer=3), SnapshotSaved).tokens


def test_restored_session_is_not_written_again(bench: Bench, llama: Path) -> None:
    bench.load(llama)
    texts = run_turns(bench, 3)
    bench.save(1)
    bench.load(llama, request=2)
    assert bench.load_snapshot(3, *texts).restored_tokens
    assert bench.save(4).tokens == 0
    bench.generate(5, *texts, "more", max_tokens=2)
    assert bench.save(6).tokens
    assert len(sequence_files()) == 1


def test_session_with_a_longer_prefix_is_not_replaced(bench: Bench, llama: Path) -> None:
    bench.load(llama)
    texts = run_turns(bench, 2)
    bench.save(1)
    texts += ["more"]
    texts += [answer_text(bench.generate(2, *texts, max_tokens=30))]
    loaded = bench.load_snapshot(3, *texts)
    assert loaded.restored_tokens == 0
    assert loaded.total_tokens - loaded.ready_tokens <= 4


def test_load_without_a_snapshot_estimates_the_prefill_time(bench: Bench, llama: Path) -> None:
    bench.load(llama)
    texts = ("hello " * 40, "yes", "and " * 40)
    loaded = bench.load_snapshot(1, *texts)
    assert (loaded.restored_tokens, loaded.ready_tokens, loaded.refused) == (0, 0, "")
    assert loaded.total_tokens > 150
    assert loaded.remaining_prefill_seconds > 0
    bench.generate(2, *texts, max_tokens=2)
    known = bench.load_snapshot(3, *texts[:-1], "another end " * 30)
    assert 0 < known.ready_tokens < known.total_tokens
    assert known.remaining_prefill_seconds > 0


def test_snapshot_of_a_branch_restores_the_shared_prefix(bench: Bench, llama: Path) -> None:
    bench.load(llama)
    texts = run_turns(bench, 6)
    bench.save(1)
    bench.load(llama, request=2)
    other = [*texts[:6], "an edited question"]
    loaded = bench.load_snapshot(3, *other)
    assert loaded.restored_tokens >= count_tokens(bench, 4, *texts[:6]) - 4
    assert loaded.refused == ""


def stored_files() -> list[Path]:
    """The files of the store: sequences and pages."""
    return [file for file in snapshots_folder().rglob("*") if file.is_file()]


def sequence_files() -> list[Path]:
    return list(snapshots_folder().glob("*.sequence"))


def page_files() -> list[Path]:
    return list(snapshots_folder().rglob("*.page"))


def test_damaged_page_is_refused_once_and_deleted(bench: Bench, llama: Path) -> None:
    bench.load(llama)
    texts = run_turns(bench, 3)
    bench.save(1)
    (file,) = page_files()
    whole = bytearray(file.read_bytes())
    whole[-5000] ^= 4
    file.write_bytes(whole)
    bench.load(llama, request=2)
    loaded = bench.load_snapshot(3, *texts)
    assert loaded.refused == "The saved session is damaged."
    assert (loaded.restored_tokens, loaded.ready_tokens) == (0, 0)
    assert loaded.remaining_prefill_seconds > 0
    assert page_files() == []
    assert bench.load_snapshot(4, *texts).refused == ""
    assert computed_prompt_tokens(bench.generate(5, *texts, "more", max_tokens=2)) > 60


def test_a_damaged_header_is_refused_for_its_own_conversation_only(
    bench: Bench, llama: Path
) -> None:
    bench.load(llama)
    texts = run_turns(bench, 3)
    bench.save(1)
    (file,) = sequence_files()
    whole = file.read_bytes()
    for at in (3, 9, 20, 60):
        spoiled = bytearray(whole)
        spoiled[at] ^= 4
        for conversation in ("one", "two"):
            file.write_bytes(spoiled)
            bench.load(llama, request=2)
            refused = bench.load_snapshot(3, *texts, conversation=conversation).refused
            assert bool(refused) == (conversation == "one")
            # A refused file of the conversation is deleted, as its digest is wrong.
            assert not (file.exists() and conversation == "one")


def test_snapshot_of_other_adapters_cache_or_model_is_refused_with_the_reason(
    bench: Bench, llama: Path, tmp_path: Path
) -> None:
    adapter = tiny_lora.write(tmp_path / "leaf.gguf", llama)
    bench.load(llama)
    texts = run_turns(bench, 3)
    bench.save(1)
    bench.set_adapters(2, (adapter, 1.0))
    assert bench.load_snapshot(3, *texts).refused == "The session was saved without adapters."
    assert bench.load_snapshot(4, *texts, conversation="two").refused == ""
    bench.set_adapters(5)
    loaded = bench.load_snapshot(6, *texts)  # still in memory
    assert loaded.ready_tokens > 60
    bench.load(llama, request=7, cache=CacheType.F16)
    assert "type q8_0" in bench.load_snapshot(8, *texts).refused
    bench.load(tiny.write(tmp_path / "other.gguf", seed=5, context=2048), request=9)
    loaded = bench.load_snapshot(10, *texts)
    assert loaded.refused == "The session was saved with another model, tiny · F32."
    assert loaded.fault == Fault(FaultKind.SAVED_MODEL, "tiny · F32")
    bench.load(llama, request=11, context=64)
    loaded = bench.load_snapshot(12, *texts)
    assert (loaded.refused, loaded.restored_tokens) == ("", 64)  # as many as the context holds
    bench.load(llama, request=13)
    assert bench.load_snapshot(14, *texts).refused == ""


def test_save_fails_when_the_model_file_was_replaced(
    bench: Bench, llama: Path, tmp_path: Path
) -> None:
    bench.load(llama)
    texts = run_turns(bench, 2)
    os.replace(tiny.write(tmp_path / "new.gguf", seed=9, context=2048), llama)
    bench.send(1, bench.saving())
    failed = bench.until(SnapshotSaved, Failed)[-1]
    assert isinstance(failed, Failed)
    assert "changed since it was loaded" in failed.message
    assert isinstance(bench.generate(2, *texts, "more", max_tokens=2)[-1], Finished)


def test_session_above_the_budget_is_refused_and_evicts_nothing(bench: Bench, llama: Path) -> None:
    bench.load(llama)
    run_turns(bench, 2)
    bench.save(1)
    bench.generate(2, "something else", max_tokens=40)
    bench.send(3, bench.saving("two", 1000))
    failed = bench.until(SnapshotSaved, Failed)[-1]
    assert isinstance(failed, Failed)
    assert "MB" in failed.message
    assert len(sequence_files()) == 1


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_save_to_a_read_only_folder_fails(bench: Bench, llama: Path) -> None:
    bench.load(llama)
    run_turns(bench, 1)
    snapshots_folder().mkdir(parents=True, exist_ok=True)
    snapshots_folder().chmod(0o500)
    bench.send(1, bench.saving())
    assert isinstance(bench.until(SnapshotSaved, Failed)[-1], Failed)
    snapshots_folder().chmod(0o700)


def test_save_fails_when_the_folder_is_a_file(bench: Bench, llama: Path) -> None:
    bench.load(llama)
    run_turns(bench, 1)
    snapshots_folder().parent.mkdir(parents=True, exist_ok=True)
    snapshots_folder().write_text("in the way", encoding="utf-8")
    bench.send(1, bench.saving())
    failed = bench.until(SnapshotSaved, Failed)[-1]
    assert isinstance(failed, Failed)
    assert failed.message.startswith("The conversation's cached context could not be saved:")
    assert bench.load_snapshot(2, "hello").refused == ""


def test_stop_waits_for_queued_saves(llama: Path) -> None:
    bench = Bench()
    bench.load(llama)
    texts = run_turns(bench, 2)
    bench.send(1, bench.saving())
    bench.engine.stop()
    saved = bench.until(SnapshotSaved)[-1]
    assert isinstance(saved, SnapshotSaved)
    assert saved.tokens
    again = Bench()
    again.load(llama)
    assert again.load_snapshot(2, *texts).restored_tokens
    again.engine.stop()


def test_answers_go_on_while_a_save_waits_for_another(
    bench: Bench, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a slow disk; a save that is cancelled meanwhile ends at once."""
    bench.load(llama)
    for number, name in enumerate(("one", "two")):
        bench.generate(2 + number, f"question {name}", conversation=name, max_tokens=3)
    go, save = threading.Event(), PageStore.save

    def slow(*operands: object, **options: object) -> object:
        assert go.wait(TIMEOUT_SECONDS)
        return save(*operands, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(PageStore, "save", slow)
    for request, name, answer in ((4, "one", 2), (5, "two", 3), (6, "two", 3)):
        bench.send(request, Save(name, AMPLE_BYTES, answer))
    assert isinstance(bench.generate(7, "something else", max_tokens=3)[-1], Finished)
    bench.cancel(6)
    assert bench.until(SnapshotSaved)[-1] == SnapshotSaved(6, 0, 0, 0.0, 0)
    go.set()
    saved = [bench.until(SnapshotSaved)[-1] for _ in range(2)]
    assert [event.request for event in saved] == [4, 5]
    assert all(isinstance(event, SnapshotSaved) and event.tokens for event in saved)


def test_the_store_is_searched_beside_the_answers(
    bench: Bench, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.load(llama)
    bench.generate(2, "a question to save " * 4, conversation="one", max_tokens=3)
    bench.save(3)
    bench.load(llama, request=4)
    threads, sequences = set[str](), PageStore.sequences

    def watched(store: PageStore) -> object:
        threads.add(threading.current_thread().name)
        return sequences(store)

    monkeypatch.setattr(PageStore, "sequences", watched)
    assert bench.load_snapshot(5, "a question to save " * 4).restored_tokens
    assert threads
    assert "engine" not in threads


def test_unload_waits_for_a_running_save(bench: Bench, llama: Path) -> None:
    bench.load(llama)
    run_turns(bench, 2)
    bench.send(1, bench.saving())
    bench.send(2, Unload())
    events = bench.until(ModelUnloaded)
    assert any(isinstance(event, SnapshotSaved) and event.tokens for event in events)
    unloaded = events[-1]
    assert isinstance(unloaded, ModelUnloaded)
    assert unloaded.resident_bytes > 1_000_000


@pytest.mark.parametrize("kind", ["load", "save"])
def test_snapshot_command_cancelled_before_its_start_has_0_tokens(
    kind: str, bench: Bench, llama: Path
) -> None:
    bench.load(llama)
    started, go = threading.Event(), threading.Event()

    def hold(event: object) -> None:
        if isinstance(event, PromptProgress) and event.request == 6:
            started.set()
            assert go.wait(TIMEOUT_SECONDS)

    bench.react = hold
    bench.send(6, Chat(turns_of("hello"), sampling=GREEDY, max_tokens=2))
    assert started.wait(TIMEOUT_SECONDS)
    if kind == "load":
        bench.send(7, Restore(turns_of("hello"), "one"))
    else:
        bench.send(7, bench.saving())
    bench.cancel(7)
    go.set()
    last = bench.until(SnapshotLoaded, SnapshotSaved)[-1]
    assert last in (SnapshotLoaded(7, 0, 0, 0, 0.0, 0.0, ""), SnapshotSaved(7, 0, 0, 0.0, 0))


def test_commands_without_a_model_fail_with_message_and_remedy(bench: Bench) -> None:
    for request, command in enumerate(
        (
            Restore(turns_of("hello"), "one"),
            Save("one", AMPLE_BYTES, answer=1),
            SetAdapters(()),
        )
    ):
        bench.send(request, command)
        failed = bench.until(Failed, SnapshotLoaded, SnapshotSaved, AdaptersSet)[-1]
        none = Fault(FaultKind.NOT_LOADED)
        wanted = Failed(request, "No model is loaded.", "Choose a model first.", fault=none)
        assert failed == wanted


def test_model_hash_is_cached_on_disk(bench: Bench, llama: Path) -> None:
    then = llama.stat().st_mtime_ns - 60 * 10**9
    os.utime(llama, ns=(then, then))
    bench.load(llama)
    run_turns(bench, 1)
    bench.save(1)
    hashes = snapshots_folder().parent / "hashes.json"
    assert str(llama) in json.loads(hashes.read_text(encoding="utf-8"))


def test_snapshot_is_restored_with_the_same_adapter_stack_only(
    bench: Bench, llama: Path, leaf: Path, root: Path
) -> None:
    bench.load(llama)
    bench.set_adapters(1, (leaf, 1.0), (root, 0.5))
    texts = run_turns(bench, 3)
    bench.save(2)
    bench.load(llama, request=3)
    assert "leaf at 1.0, root at 0.5" in bench.load_snapshot(4, *texts).refused
    bench.set_adapters(5, (root, 0.5), (leaf, 1.0))
    loaded = bench.load_snapshot(6, *texts)
    assert loaded.restored_tokens > 60
    assert loaded.refused == ""


def test_snapshot_is_restored_with_the_adapters_of_the_command(
    bench: Bench, llama: Path, leaf: Path
) -> None:
    bench.load(llama)
    uses = (AdapterUse(leaf, 0.5),)
    question = "question " * 60
    text = answer_text(bench.generate(1, question, max_tokens=9, adapters=uses))
    bench.save(2)
    bench.load(llama, request=3)
    turns = turns_of(question, text)
    plain = bench.expect(4, Restore(turns, "one"), SnapshotLoaded)
    assert "leaf at 0.5" in plain.refused
    found = bench.expect(5, Restore(turns, "one", adapters=uses), SnapshotLoaded)
    assert found.refused == ""
    assert found.restored_tokens > 60
    assert finished(bench.generate(6, question, adapters=uses, max_tokens=1)).reused_tokens > 60
    assert finished(bench.generate(7, question, max_tokens=1)).reused_tokens == 0


def test_same_tokens_are_saved_again_with_another_adapter_stack(
    bench: Bench, llama: Path, leaf: Path
) -> None:
    bench.load(llama)
    bench.generate(1, "hello", max_tokens=1)
    assert bench.save(2).tokens
    bench.set_adapters(3, (leaf, 1e-9))
    bench.generate(4, "hello", max_tokens=1)
    assert bench.save(5).tokens
    assert len(sequence_files()) == 2


@pytest.mark.parametrize("next_command", ["answer", "adapters", "load", "unload"])
def test_commands_during_a_save_do_not_change_the_file(
    next_command: str, llama: Path, leaf: Path
) -> None:
    commands = {
        "answer": Chat(turns_of("elsewhere " * 60), sampling=GREEDY, max_tokens=9),
        "adapters": SetAdapters((AdapterUse(leaf),)),
        "load": Load(llama),
        "unload": Unload(),
    }
    contents: list[dict[str, bytes]] = []
    for waits in (True, False):
        bench = Bench()
        bench.load(llama)
        bench.generate(9, "something " * 100, max_tokens=9, sampling=SEEDED)
        bench.send(10, bench.saving())
        if waits:
            bench.until(SnapshotSaved)
        bench.send(11, commands[next_command])
        seen = bench.until(Finished, AdaptersSet, ModelLoaded, ModelUnloaded, Failed)
        bench.engine.stop()
        assert not any(isinstance(event, Failed) for event in seen)
        contents.append({file.name: file.read_bytes() for file in page_files()})
        for file in stored_files():
            file.unlink()
    first, second = contents
    assert first == second
    assert len(first) == 5
