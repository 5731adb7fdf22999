"""ModelSession: prefix reuse across turns, and switching of adapters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tiny
import tiny_lora
from engine import (
    AdaptersSet,
    AdapterUse,
    Chat,
    Event,
    Failed,
    Finished,
    PromptProgress,
    Sampling,
    SetAdapters,
)
from engine.adapters import stack as lora
from engine_bench import (
    GREEDY,
    SEEDED,
    Bench,
    answer_text,
    computed_prompt_tokens,
    count_tokens,
    finished,
    run_turns,
    turns_of,
)

# --- prefix reuse -------------------------------------------------------------------------------


def test_editing_the_last_of_twenty_turns_prefills_only_that_turn(
    bench: Bench, model: Path
) -> None:
    bench.load(model)
    texts = run_turns(bench, 20)
    before, edited = texts[:38], "another question"
    shared = count_tokens(bench, 1, *before)
    events = bench.generate(2, *before, edited, max_tokens=3)
    end = finished(events)
    # All tokens before the edited turn are reused, except those that end the last answer.
    assert end.prompt_tokens - shared < 45
    assert shared - end.reused_tokens <= 4
    assert computed_prompt_tokens(events) <= end.prompt_tokens - shared + 4
    assert end.prompt_tokens > 700


def test_next_turn_prefills_only_the_new_tokens(bench: Bench, model: Path) -> None:
    bench.load(model)
    texts = run_turns(bench, 6)
    new = count_tokens(bench, 1, *texts, "and now") - count_tokens(bench, 2, *texts)
    events = bench.generate(3, *texts, "and now", max_tokens=3)
    # Besides the new turn: the last answer's last token and end, and the generation prompt.
    assert computed_prompt_tokens(events) <= new + 20


def test_generated_answers_stay_cached_with_the_generated_ids(bench: Bench, model: Path) -> None:
    """The tokenizer splits the answer's text into other ids; the generated ones are reused."""
    bench.load(model)
    texts = ["hello"]
    for turn in range(8):
        events = bench.generate(10 + turn, *texts, max_tokens=40)
        if turn:
            assert computed_prompt_tokens(events) < 45
        texts += [answer_text(events), "go on"]


def test_regenerating_computes_one_prompt_token(bench: Bench, model: Path) -> None:
    bench.load(model)
    texts = run_turns(bench, 3)
    events = bench.generate(1, *texts[:-1], max_tokens=30)
    assert computed_prompt_tokens(events) == 1
    assert answer_text(events).startswith(texts[-1][:3])


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_interrupted_answer_continues_as_if_uninterrupted(
    sampling: Sampling, bench: Bench, model: Path
) -> None:
    bench.load(model)
    whole = answer_text(bench.generate(1, "hello", max_tokens=60, sampling=sampling))
    bench.load(model, request=2)
    text = answer_text(bench.generate(3, "hello", max_tokens=20, sampling=sampling))
    for request in range(4, 8):
        events = bench.generate(request, "hello", text, max_tokens=10, sampling=sampling)
        assert computed_prompt_tokens(events) == 1  # the pending token
        text += answer_text(events)
    assert text == whole


def test_answer_cut_inside_a_character_can_be_continued(bench: Bench, tmp_path: Path) -> None:
    bench.load(tiny.write(tmp_path / "breaking.gguf", context=2048))
    for cut in range(1, 30):
        text = answer_text(bench.generate(cut * 2, "hello", max_tokens=cut))
        events = bench.generate(cut * 2 + 1, "hello", text, max_tokens=3)
        assert isinstance(events[-1], Finished)


def test_branch_prefills_only_tokens_after_the_shared_prefix(bench: Bench, model: Path) -> None:
    bench.load(model)
    texts = run_turns(bench, 8)
    early = count_tokens(bench, 1, *texts[:4])
    events = bench.generate(2, *texts[:4], "elsewhere", max_tokens=3)
    # The tokens that open the next turn are shared too.
    assert early - 1 <= finished(events).reused_tokens <= early + 8


@pytest.mark.real
def test_starter_model_prefills_only_the_new_tokens(bench: Bench, starter_model: Path) -> None:
    bench.load(starter_model)
    texts = ["Name three trees."]
    for turn in range(3):
        events = bench.generate(1 + turn, *texts, max_tokens=24)
        if turn:
            # The end of the previous answer, the question, and the generation prompt.
            assert computed_prompt_tokens(events) <= 16
        texts += [answer_text(events), "And one more?"]
    assert computed_prompt_tokens(bench.generate(9, *texts[:-2], max_tokens=4)) == 1


# --- adapters -----------------------------------------------------------------------------------


@pytest.fixture
def leaf(llama: Path) -> Path:
    return tiny_lora.write(llama.with_name("leaf.gguf"), llama, rank=4)


@pytest.fixture
def root(llama: Path) -> Path:
    return tiny_lora.write(llama.with_name("root.gguf"), llama, seed=3, rank=8)


def test_adapters_change_answers_and_can_be_removed(
    bench: Bench, llama: Path, leaf: Path, root: Path
) -> None:
    bench.load(llama)
    plain = answer_text(bench.generate(1, "hello", max_tokens=30))
    done = bench.set_adapters(2, (leaf, 1.0), (root, -0.5))
    assert done.changed
    assert [(info.path, info.name, info.strength) for info in done.adapters] == [
        (leaf, "leaf", 1.0),
        (root, "root", -0.5),
    ]
    assert done.adapters[1].rank == 8
    assert done.adapters[0].kind == "GGUF"
    assert done.adapters[0].targets == 14
    assert done.adapters[0].size_bytes > 0
    assert answer_text(bench.generate(3, "hello", max_tokens=30)) != plain
    assert bench.set_adapters(4).changed
    assert answer_text(bench.generate(5, "hello", max_tokens=30)) == plain


def test_stack_with_the_same_effect_keeps_the_cache(
    bench: Bench, llama: Path, leaf: Path, root: Path
) -> None:
    bench.load(llama)
    bench.generate(1, "hello", max_tokens=5)
    done = bench.set_adapters(2, (leaf, 0.0))
    assert not done.changed
    assert computed_prompt_tokens(bench.generate(3, "hello", max_tokens=5)) == 1
    bench.set_adapters(4, (leaf, 1.0), (root, 0.5))
    bench.generate(5, "hello", max_tokens=5)
    done = bench.set_adapters(6, (root, 0.5), (leaf, 1.0))
    assert not done.changed
    assert [info.name for info in done.adapters] == ["root", "leaf"]
    assert computed_prompt_tokens(bench.generate(7, "hello", max_tokens=5)) == 1


@pytest.mark.parametrize("strength", [2.01, -3.0, float("nan"), float("inf")])
def test_a_strength_out_of_range_keeps_the_stack(
    strength: float, bench: Bench, llama: Path, leaf: Path
) -> None:
    bench.load(llama)
    bench.set_adapters(1, (leaf, 1.0))
    adapted = answer_text(bench.generate(2, "hello", max_tokens=20))
    bench.send(3, SetAdapters((AdapterUse(leaf, strength),)))
    failed = bench.until(Failed, AdaptersSet)[-1]
    assert isinstance(failed, Failed)
    assert "leaf" in failed.message
    assert answer_text(bench.generate(4, "hello", max_tokens=20)) == adapted


def test_a_faulty_adapter_is_named_and_keeps_the_stack(
    bench: Bench, llama: Path, leaf: Path, tmp_path: Path
) -> None:
    bench.load(llama)
    bench.set_adapters(1, (leaf, 1.0))
    adapted = answer_text(bench.generate(2, "hello", max_tokens=20))
    (broken := tmp_path / "broken.gguf").write_bytes(b"GGUF and nothing more")
    for request, bad in enumerate((broken, tmp_path / "nowhere.gguf", llama), start=3):
        bench.send(request, SetAdapters((AdapterUse(leaf, 0.5), AdapterUse(bad))))
        failed = bench.until(Failed, AdaptersSet)[-1]
        assert isinstance(failed, Failed)
        assert bad.name in failed.message
        assert failed.remedy
    assert answer_text(bench.generate(9, "hello", max_tokens=20)) == adapted


def test_newly_loaded_model_has_no_adapters(bench: Bench, llama: Path, leaf: Path) -> None:
    bench.load(llama)
    plain = answer_text(bench.generate(1, "hello", max_tokens=20))
    bench.set_adapters(2, (leaf, 1.0))
    bench.load(llama, request=3)
    assert answer_text(bench.generate(4, "hello", max_tokens=20)) == plain


@pytest.mark.parametrize("name", ["leaf.gguf", "leaf.GGUF", "leaf"])
def test_adapter_changed_on_disk_is_read_again(
    bench: Bench, llama: Path, leaf: Path, name: str
) -> None:
    leaf = leaf.rename(leaf.with_name(name))
    leaf.with_name("adapter.txt").write_text(
        "a file beside the adapter is ignored", encoding="utf-8"
    )
    bench.load(llama)
    first = bench.set_adapters(1, (leaf, 1.0)).adapters[0]
    assert not bench.set_adapters(2, (leaf, 1.0)).changed
    os.replace(tiny_lora.write(leaf.with_name("new.bin"), llama, seed=8), leaf)
    done = bench.set_adapters(3, (leaf, 1.0))
    assert done.changed
    assert done.adapters[0].sha256 != first.sha256


def test_adapter_listed_twice_is_loaded_once(bench: Bench, llama: Path, leaf: Path) -> None:
    bench.load(llama)
    bench.set_adapters(1, (leaf, 1.0), (leaf, -0.5))
    host = bench.engine._loop._residents.main.session
    assert host is not None
    (first, _), (second, _) = host._adapters.stack.entries
    assert first is second


def test_recently_used_adapters_stay_in_memory_up_to_a_limit(
    bench: Bench, llama: Path, leaf: Path
) -> None:
    bench.load(llama)
    host = bench.engine._loop._residents.main.session
    assert host is not None
    many = [tiny_lora.write(llama.with_name(f"{n}.gguf"), llama, seed=n) for n in range(10)]
    bench.set_adapters(1, (leaf, 1.0))
    adapter = host._adapters._cached[leaf].adapter
    for toggle in range(50):
        bench.set_adapters(2 + 2 * toggle)
        bench.set_adapters(3 + 2 * toggle, (leaf, 1.0))
    assert host._adapters._cached[leaf].adapter is adapter
    for number, path in enumerate(many):
        bench.set_adapters(200 + number, (path, 1.0))
    assert len(host._adapters._cached) == 5
    assert host.memory_bytes < host.model.plan.weights_bytes + 6 * adapter.size_bytes + 10_000_000


def test_cancelled_set_adapters_keeps_the_stack(bench: Bench, llama: Path, leaf: Path) -> None:
    bench.load(llama)
    bench.set_adapters(1, (leaf, 1.0))

    def react(event: Event) -> None:
        if isinstance(event, PromptProgress) and not sent:  # the engine's thread waits here
            sent.append(event)
            bench.send(3, SetAdapters(()))
            bench.cancel(3)

    sent: list[Event] = []
    bench.react = react
    bench.send(2, Chat(turns_of("hello"), sampling=GREEDY, max_tokens=2))
    last = bench.until(AdaptersSet)[-1]
    assert isinstance(last, AdaptersSet)
    assert not last.changed
    assert [info.name for info in last.adapters] == ["leaf"]


def test_adapters_of_answers_stay_in_memory(
    bench: Bench, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.load(llama)
    files = [tiny_lora.write(tmp_path / f"{seed}.gguf", llama, seed=seed) for seed in range(3)]
    bench.set_adapters(1, (files[0], 1.0))
    read: list[str] = []
    real = lora.load_adapter
    monkeypatch.setattr(
        lora, "load_adapter", lambda path, *more: read.append(path.name) or real(path, *more)
    )
    for request, path in enumerate([*files, *files], 2):
        bench.generate(request, "hello", max_tokens=1, adapters=(AdapterUse(path),))
    bench.set_adapters(9, (files[0], 1.0), (files[2], 0.5))
    assert read == ["1.gguf", "2.gguf"]
