"""Settings: load, save, and invalid files."""

import json
import logging
import math
from dataclasses import asdict, fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.settings.table import (
    GROUPS,
    SAMPLING,
    SETTINGS,
    Settings,
    SettingsError,
    is_own,
    load,
    sampling,
    save,
    with_own,
    without_own,
    wrong_endpoint,
    wrong_proxy,
    wrong_search_address,
)
from engine import CacheType, Sampling


def _everything_changed():
    return Settings(
        theme="high contrast",
        language="de",
        last_model="/models/Bonsai é.gguf",
        last_elsewhere="a1 /models/b é.gguf",
        offer_better_model=False,
        check_updates=True,
        notify="off",
        model_titles="on",
        zoom=150,
        scale=125,
        last_conversation=3,
        new_chat_preset=5,
        sidebar_open=False,
        closed_folders="12 34",
        window_geometry="AdnQywADAAA=",
        system_prompt='Answer in "haiku"\n日本語 \ud800',
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        min_p=0.5,
        repeat_penalty=1.25,
        own_sampling="max_tokens min_p repeat_penalty temperature top_k top_p",
        dry_multiplier=0.5,
        dry_allowed_length=4,
        max_tokens=7,
        thinking="on",
        faster_answers="off",
        context=4096,
        threads=3,
        runs_on="split",
        memory_gb=2.5,
        cache="f16",
        tool_rounds=3,
        tool_seconds=5,
        search_provider="searxng",
        search_address="https://search.example/x",
        parallel_downloads=4,
        hub_endpoint="https://mirror.example/models",
        proxy="http://proxy.example:3128",
        snapshot_budget_gb=0.0,
        offline=True,
        serve=True,
        serve_closed=True,
        serve_texts=True,
        serve_key="abc",
        embedding_model="/models/encoder.gguf",
        serve_network="network",
        serve_port=9000,
        serve_minutes=0,
    )


def test_saved_settings_are_loaded(tmp_path):
    path = tmp_path / "new folder" / "settings.json"
    saved = _everything_changed()
    assert all(getattr(saved, f.name) != getattr(Settings(), f.name) for f in fields(Settings))
    save(path, saved)
    assert load(path) == saved
    assert [p.name for p in path.parent.iterdir()] == ["settings.json"]


def test_missing_file_gives_defaults(tmp_path):
    assert load(tmp_path / "settings.json") == Settings()
    assert list(tmp_path.iterdir()) == []


def test_every_default_is_in_its_range():
    for name, setting in SETTINGS.items():
        default = getattr(Settings(), name)
        if setting.choices:
            assert default in setting.choices
        if isinstance(default, int | float):
            assert setting.low <= default <= setting.high
        assert bool(setting.label) == bool(setting.help) == (setting.group in (*GROUPS, "server"))
        assert not setting.words or len(setting.words) == len(setting.choices)
        assert setting.check is None or setting.check(default) == ""


def test_cache_choices_match_the_engine():
    assert [CacheType(choice) for choice in SETTINGS["cache"].choices] == [
        CacheType.Q8_0,
        CacheType.F16,
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("theme", "purple"),
        ("theme", 3),
        ("last_model", None),
        ("last_model", ["a"]),
        ("sidebar_open", 1),
        ("sidebar_open", "true"),
        ("temperature", "hot"),
        ("temperature", True),
        ("temperature", -0.1),
        ("temperature", 1e300),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", 2.5),
        ("top_k", False),
        ("top_k", 10**400),
        ("top_p", 0),
        ("threads", -1),
        ("context", {}),
        ("cache", "f64"),
        ("tool_rounds", 0),
        ("tool_rounds", 101),
        ("tool_rounds", 1.5),
        ("tool_seconds", 0),
        ("tool_seconds", True),
        ("search_provider", "google"),
        ("search_address", "search.example"),
        ("search_address", "http://192.168.1.5:8888"),
        ("search_address", "https://search.example/?key=1"),
        ("parallel_downloads", 0),
        ("parallel_downloads", 5),
        ("snapshot_budget_gb", -1),
        ("hub_endpoint", ""),
        ("hub_endpoint", "huggingface.co"),
        ("hub_endpoint", "http://mirror.example"),
        ("hub_endpoint", "https://name:secret@mirror.example"),
        ("hub_endpoint", "https://mirror.example/?token=1"),
        ("hub_endpoint", "https://two words.example"),
        ("hub_endpoint", "https://" + "a" * 5000),
        ("proxy", "socks5://proxy.example:1080"),
        ("proxy", "http://proxy.example:port"),
        ("proxy", "http://"),
    ],
)
def test_invalid_value_becomes_the_default(tmp_path, caplog, name, value):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({name: value, "scale": 125}), encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert load(path) == Settings(scale=125)
    assert name in caplog.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hub_endpoint", "http://127.0.0.1:8080"),
        ("hub_endpoint", "https://mirror.example/hub/"),
        ("search_address", ""),
        ("search_address", "http://127.0.0.1:8888"),
        ("search_address", "https://search.example/searxng"),
        ("proxy", ""),
        ("proxy", "proxy.example:3128"),
        ("proxy", "http://name:secret@proxy.example:3128"),
    ],
)
def test_valid_address_is_kept(tmp_path, name, value):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({name: value}), encoding="utf-8")
    assert getattr(load(path), name) == value


@pytest.mark.parametrize("check", [wrong_endpoint, wrong_search_address, wrong_proxy])
@given(text=st.text())
def test_address_validation_never_raises(check, text):
    wrong = check(text)
    assert wrong == "" or wrong.endswith(".")


def test_integers_and_floats_are_converted(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text('{"temperature": 1, "top_k": 20.0}', encoding="utf-8")
    loaded = load(path)
    assert (loaded.temperature, loaded.top_k) == (1.0, 20)
    assert type(loaded.temperature) is float
    assert type(loaded.top_k) is int


def test_keys_of_a_newer_version_stay_in_the_file(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text('{"from_the_future": [1], "top_k": 3}', encoding="utf-8")
    save(path, replace(load(path), top_k=4))
    stored = json.loads(path.read_text(encoding="utf-8"))
    changed = {"from_the_future": [1], "top_k": 4, "own_sampling": "top_k"}
    assert stored == {**asdict(Settings()), **changed}


def test_a_chosen_sampling_value_is_the_users_even_if_it_is_the_usual_one(tmp_path):
    path = tmp_path / "settings.json"
    usual = Settings()
    assert not any(is_own(usual, name) for name in SAMPLING)
    chosen = with_own(usual, "temperature", "context")
    assert [name for name in SAMPLING if is_own(chosen, name)] == ["temperature"]
    save(path, chosen)
    assert is_own(load(path), "temperature")
    assert without_own(load(path), "temperature") == usual
    assert is_own(replace(usual, top_k=3), "top_k")
    assert without_own(replace(usual, top_k=3), "top_k") == usual


def test_an_unchosen_sampling_value_follows_the_usual_one(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text(
        '{"temperature": 0.9, "top_k": 3, "own_sampling": "top_k"}', encoding="utf-8"
    )  # usual before
    assert load(path) == Settings(top_k=3, own_sampling="top_k")
    path.write_text(
        '{"temperature": 0.9, "top_k": 3}', encoding="utf-8"
    )  # of a version that kept no names
    assert load(path) == with_own(Settings(temperature=0.9, top_k=3), "temperature", "top_k")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b"\xff\xfe{}", b"[" * 100_000])
def test_damaged_file_is_renamed_unchanged(tmp_path, caplog, content):
    path = tmp_path / "settings.json"
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert load(path) == Settings()
    (aside,) = tmp_path.iterdir()
    assert aside.name.startswith("settings.damaged-")
    assert aside.read_bytes() == content
    assert "set aside" in caplog.text


def test_values_are_not_logged(tmp_path, caplog):
    path = tmp_path / "settings.json"
    path.write_text('{"system_prompt": ["my secret"], "theme": "my secret"}', encoding="utf-8")
    with caplog.at_level(logging.DEBUG):
        load(path)
    assert caplog.text
    assert "secret" not in caplog.text


def test_uncreatable_folder_raises_settings_error(tmp_path, caplog):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(SettingsError, match="could not be saved") as raised:
        save(tmp_path / "file" / "settings.json", Settings())
    assert raised.value.remedy


def test_a_save_that_fails_leaves_the_old_file(tmp_path, caplog):
    path = tmp_path / "settings.json"
    path.mkdir()  # a folder cannot be replaced by a file
    (path / "kept").write_text("", encoding="utf-8")
    with pytest.raises(SettingsError):
        save(path, Settings())
    assert [p.name for p in tmp_path.iterdir()] == ["settings.json"]


def test_sampling_uses_the_settings():
    assert sampling(Settings()) == Sampling(repeat_penalty=1.1)
    assert sampling(_everything_changed()) == Sampling(
        temperature=0.0, top_k=0, top_p=1.0, min_p=0.5, repeat_penalty=1.25,
        dry_multiplier=0.5, dry_allowed_length=4, dry_breakers=(),
    )  # fmt: skip


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 10**400, -(10**400)])
def test_numbers_without_end_are_not_settings(tmp_path, caplog, value):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(dict.fromkeys(SETTINGS, value)), encoding="utf-8")
    loaded = load(path)
    for name in SETTINGS:
        kept, default = getattr(loaded, name), getattr(Settings(), name)
        assert type(kept) is type(default), name
        assert kept in (default, value), name
        assert kept not in (math.inf, -math.inf), name


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(stored=st.dictionaries(st.sampled_from(list(SETTINGS)) | st.text(), _JSON))
def test_any_json_object_loads_into_valid_types(tmp_path, caplog, stored):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(stored), encoding="utf-8")
    loaded = load(path)
    for field in fields(Settings):
        assert type(getattr(loaded, field.name)) is type(getattr(Settings(), field.name))
    save(path, loaded)
    assert load(path) == loaded
