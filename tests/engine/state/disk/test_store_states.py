"""Page store against a model: after any saves, deletions, damage and kills, no byte is wrong."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from engine import delete_snapshots
from engine.state.disk import cleanup, page_file
from engine.state.disk.page_file import StateKey
from engine.state.disk.sequence_file import SavedSequence, conversation_prefix
from engine.state.disk.store import PageStore
from saved_pages import Saves, memory_pages, restored

KEYS = [StateKey("a" * 64, stack, "f16", (200, 90)) for stack in ("", "x")]
WINDOWS = (0, 300)
CONVERSATIONS = ["one", "two", "three"]
BUDGETS = [1, 2000, 4000, 1 << 30]

seeds = st.integers(0, 1 << 30)


class Store(RuleBasedStateMachine):
    """Two stores on one folder, as two processes have them, and a model of what is saved."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="tokonoma-states-"))
        self.folder = self.home / "data" / "sessions"
        self.stores = [PageStore(self.folder), PageStore(self.folder)]
        self.texts: list[list[int]] = []  # everything that was ever saved
        self.spoiled = False  # pages are missing or damaged, so sequences may be incomplete
        # Key, tokens and conversation of what must be on the disk, least recently used first.
        self.saved: list[tuple[StateKey, list[int], str]] = []

    @initialize()
    def no_sync(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(os, "fsync", lambda handle: None)  # a killed process needs none
        self.patch.setenv("TOKONOMA_HOME", str(self.home))

    def teardown(self) -> None:
        self.patch.undo()
        shutil.rmtree(self.home)

    # --- saving ---------------------------------------------------------------------------------

    def new_tokens(self, chance: random.Random) -> list[int]:
        """Often an extension or a branch of something saved before."""
        base = chance.choice(self.texts) if self.texts and chance.random() < 0.7 else []
        start = chance.choice([len(base), chance.randint(0, len(base)), len(base) // 256 * 256])
        more = chance.choice([1, 20, 255, 256, 300, chance.randint(1, 700)])
        first = chance.randrange(3) * 1000
        tokens = [*base[:start], *range(first, first + more)][:1300]
        self.texts.append(tokens)
        return tokens

    @rule(seed=seeds, key=st.sampled_from(KEYS), which=st.sampled_from([0, 1]),
          conversation=st.sampled_from(CONVERSATIONS), budget=st.sampled_from(BUDGETS))  # fmt: skip
    def save(self, seed: int, key: StateKey, which: int, conversation: str, budget: int) -> None:
        tokens = self.new_tokens(random.Random(seed))
        saves = Saves(self.stores[which], key, WINDOWS)
        result = saves.save(tokens, conversation, budget=budget)
        self.saved = [
            each
            for each in self.saved
            if each[::2] != (key, conversation) or tokens[: len(each[1])] != each[1]
        ]
        self.saved.append((key, tokens, conversation))
        assert len(self.sequences()) == len(self.saved) - result.evicted
        del self.saved[: result.evicted]
        assert result.total_bytes == cleanup.total_size(self.folder)
        assert result.total_bytes <= budget or len(self.saved) == 1
        assert not self.unreferenced()

    @rule(seed=seeds, conversation=st.sampled_from(CONVERSATIONS),
          budget=st.sampled_from(BUDGETS))  # fmt: skip
    def kill(self, seed: int, conversation: str, budget: int) -> None:
        """The folder becomes what it was at a random moment of a save."""
        chance = random.Random(seed)
        tokens, stop, calls = self.new_tokens(chance), chance.randint(1, 30), 0
        frozen = self.home / "frozen"

        def freeze() -> None:
            nonlocal calls
            calls += 1
            if calls == stop:
                shutil.copytree(self.folder, frozen)

        pages = memory_pages(tokens, KEYS[0], WINDOWS)
        self.stores[0].save(
            conversation, KEYS[0], {}, tokens, pages, {}, budget_bytes=budget, checkpoint=freeze
        )
        if not frozen.exists():
            shutil.copytree(self.folder, frozen)
        shutil.rmtree(self.folder)
        frozen.rename(self.folder)
        self.stores[0] = PageStore(self.folder)
        assert not self.unreferenced()
        new = (KEYS[0], tokens, conversation)
        possible = [each for each in self.saved if each != new] + [new]
        self.saved = [self.described(each) for each in reversed(self.sequences())]
        assert all(each in possible for each in self.saved)

    # --- using and deleting ---------------------------------------------------------------------

    @precondition(lambda self: self.saved)
    @rule(seed=seeds)
    def touch(self, seed: int) -> None:
        at = random.Random(seed).randrange(len(self.saved))
        self.stores[0].touch(self.found(at))
        self.saved.append(self.saved.pop(at))

    @precondition(lambda self: self.saved)
    @rule(seed=seeds)
    def delete(self, seed: int) -> None:
        at = random.Random(seed).randrange(len(self.saved))
        self.stores[1].delete(self.found(at))
        del self.saved[at]
        self.stores[1].collect()
        assert not self.unreferenced()

    @rule(conversation=st.sampled_from(CONVERSATIONS))
    def delete_conversation(self, conversation: str) -> None:
        before = cleanup.total_size(self.folder)
        freed = delete_snapshots([conversation])
        assert freed == before - cleanup.total_size(self.folder)
        self.saved = [each for each in self.saved if each[2] != conversation]
        assert not self.unreferenced()

    @rule()
    def reopen(self) -> None:
        self.stores[1] = PageStore(self.folder)

    # --- damage ---------------------------------------------------------------------------------

    @precondition(lambda self: self.page_files())
    @rule(seed=seeds, kind=st.sampled_from(["flip", "cut", "delete", "swap", "extend"]))
    def spoil(self, seed: int, kind: str) -> None:
        chance, files = random.Random(seed), self.page_files()
        path = chance.choice(files)
        whole = bytearray(path.read_bytes())
        self.spoiled = True
        if kind == "flip":
            whole[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        elif kind == "cut":
            del whole[chance.randrange(len(whole)) :]
        elif kind == "extend":
            whole += b"x"
        elif kind == "swap":
            other = chance.choice(files)
            whole, mine = bytearray(other.read_bytes()), whole
            other.write_bytes(mine)
        path.write_bytes(whole)
        if kind == "delete":
            path.unlink()

    # --- the model ------------------------------------------------------------------------------

    @invariant()
    def everything_saved_is_listed_in_order_of_use(self) -> None:
        for store in self.stores:
            listed = [self.described(saved) for saved in store.sequences()]
            assert listed == self.saved[::-1]

    @rule(seed=seeds)
    def restore(self, seed: int) -> None:
        """Compares every byte that is restored."""
        chance = random.Random(seed)
        for saved in self.sequences():
            tokens = len(saved.tokens)
            limit = chance.choice([tokens, chance.randint(0, tokens)])
            got = restored(self.stores[0], saved, WINDOWS, limit)
            assert got <= limit
            if limit == tokens and not self.spoiled:
                assert got == tokens

    def sequences(self) -> list[SavedSequence]:
        return self.stores[0].sequences()

    def found(self, at: int) -> SavedSequence:
        return self.sequences()[len(self.saved) - 1 - at]

    def described(self, saved: SavedSequence) -> tuple[StateKey, Sequence[int], str]:
        names = {conversation_prefix(name): name for name in CONVERSATIONS}
        return saved.key, list(saved.tokens), names[saved.path.name.split("-")[0]]

    def page_files(self) -> list[Path]:
        return sorted((self.folder / "pages").glob("*.page"))

    def unreferenced(self) -> list[Path]:
        names = {page.name for saved in self.sequences() for page in saved.pages}
        files = [path for path, _ in cleanup.files_of(self.folder)]
        parsed = {path: page_file.parse_name(path.name) for path in files}
        return [
            path
            for path, part in parsed.items()
            if (part and part[0] not in names) or path.suffix == ".tmp"
        ]


Store.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
TestStore = Store.TestCase


class ManyStates(Store):
    """The same, longer."""


ManyStates.TestCase.settings = settings(max_examples=500, stateful_step_count=50, deadline=None)
TestManyStates = pytest.mark.slow(ManyStates.TestCase)
