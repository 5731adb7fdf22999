"""Presets: their JSON in the store and in files, what damage leaves, and what they do to a chat."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.chat import Preset
from app.domain.chat_settings import (
    NO_SETTINGS,
    PARTS,
    AdapterChoice,
    AnswerFormat,
    ChatSettings,
    ResolvedText,
)
from app.domain.model_ref import Local
from app.domain.presets import (
    apply,
    begin,
    file_text,
    is_in_use,
    made,
    preset_from_chat,
    preset_from_file,
    preset_of,
    preset_text,
    shared,
)
from app.settings.samplers import Thinking
from engine import ContextPolicy

TEXT = st.text(max_size=40)
FULL = TEXT.filter(str.strip)
SCALARS = st.none() | st.booleans() | st.floats() | TEXT
SETTINGS = st.builds(
    ChatSettings,
    model=st.none() | st.builds(lambda name: Local(Path(f"/m/{name}.gguf")), st.just("a")),
    instructions=st.none() | TEXT,
    sampling=st.fixed_dictionaries(
        {}, optional={"temperature": st.floats(0, 2), "top_k": st.integers(0, 1000)}
    ).map(MappingProxyType),
    stop=st.lists(TEXT.filter(bool), max_size=3).map(tuple),
    format=st.sampled_from(AnswerFormat),
    texts=st.fixed_dictionaries({}, optional={"regex": TEXT.filter(bool)}).map(MappingProxyType),
    thinking=st.sampled_from(Thinking),
    thinking_budget=st.integers(1, 1_000_000),
    policy=st.sampled_from(ContextPolicy),
    adapters=st.lists(
        st.builds(AdapterChoice, st.just(Path("/a.gguf")), st.booleans(), st.floats(-2, 2)),
        max_size=2,
    ).map(tuple),
    collections=st.lists(st.integers(1, 2**53), max_size=2, unique=True).map(tuple),
)
PRESETS = st.builds(
    Preset,
    id=st.integers(1, 2**53),
    name=FULL,
    settings=SETTINGS,
    parts=st.frozensets(st.sampled_from(list(PARTS))),
    description=TEXT,
    greeting=TEXT,
    greetings=st.lists(FULL, max_size=3).map(tuple),
    hidden=st.booleans(),
)


@given(PRESETS)
@settings(max_examples=60, deadline=None)
def test_a_preset_comes_back_from_the_store(preset: Preset) -> None:
    assert preset_of(preset.id, preset.name, preset_text(preset)) == preset
    assert made(made(preset)) == made(preset)


@given(PRESETS)
@settings(max_examples=60, deadline=None)
def test_a_preset_comes_back_from_its_file(preset: Preset) -> None:
    found = preset_from_file(preset.id, json.loads(file_text(preset)))
    assert found == shared(preset)
    assert found is not None
    assert found.parts == preset.parts - {"model", "adapters", "collections", "tools"}
    assert apply(found, ChatSettings()) == begin(found)
    assert "/a.gguf" not in file_text(preset)
    assert "/m/a.gguf" not in file_text(preset)


@given(SCALARS | st.lists(SCALARS | st.lists(SCALARS, max_size=2), max_size=3))
@settings(max_examples=60, deadline=None)
def test_values_of_wrong_types_are_as_usual(value: Any) -> None:
    keys = ("name", "description", "greeting", "greetings", "parts", "settings", "hidden")
    for key in keys:
        whole = {"format": "tokonoma preset", "name": "A", "description": "B", key: value}
        found = preset_from_file(1, whole)
        assert found is None if key == "name" and not isinstance(value, str) else True
        kept = preset_of(1, "A", json.dumps(whole))
        assert kept.name == "A"
        assert kept.description == "B" or key == "description"


def test_damaged_text_is_an_empty_preset() -> None:
    for text in ("", "{", "[]", "1", "[" * 5000):
        assert preset_of(7, "A", text) == Preset(7, "A", parts=frozenset())
    assert preset_from_file(0, {"format": "tokonoma preset", "name": " "}) is None
    assert preset_from_file(0, {"name": "A"}) is None


def test_a_preset_changes_only_its_parts() -> None:
    chat = ChatSettings(instructions="Old", stop=("x",), resolved=ResolvedText("Old", "Old"))
    preset = Preset(1, "A", ChatSettings(instructions="New", stop=("y",)), frozenset(["stop"]))
    assert apply(preset, chat) == replace(chat, stop=("y",))
    assert begin(preset) == ChatSettings(stop=("y",))
    assert begin(None) == NO_SETTINGS
    assert is_in_use(preset, apply(preset, chat))
    assert not is_in_use(preset, chat)
    assert not is_in_use(Preset(2, "Nothing"), NO_SETTINGS)


def test_the_model_of_a_chats_first_answer_is_not_a_change() -> None:
    chat = ChatSettings(model=Local(Path("/m/a.gguf")), stop=("x",))
    preset = preset_from_chat(5, "Mine", chat)
    assert preset.parts == {"stop"}
    assert preset.settings == replace(chat, model=None)
    assert begin(preset).model is None
    every = Preset(1, "A", ChatSettings(stop=("x",)))
    assert is_in_use(every, chat)
    other = replace(every, settings=replace(chat, model=Local(Path("/m/b.gguf"))))
    assert not is_in_use(other, chat)


def test_a_preset_of_a_chat_has_what_the_chat_has_changed() -> None:
    chat = ChatSettings(instructions="A", resolved=ResolvedText("A", "B"))
    chat = chat.with_value("temperature", 0.3)
    preset = preset_from_chat(5, "  My\n preset ", chat)
    assert preset.name == "My preset"
    assert preset.parts == {"instructions", "sampling"}
    assert preset.settings == replace(chat, resolved=ResolvedText())
