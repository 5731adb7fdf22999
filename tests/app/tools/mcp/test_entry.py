"""Entries of servers: the text that the user allows, checks, the file, imports."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.system.secret_store import SecretStore
from app.tools.mcp.entries import EntryStore
from app.tools.mcp.entry import EntryError, ServerEntry, checked, exact
from app.tools.mcp.import_json import read
from tool_servers import no_keyring

STDIO = ServerEntry("1", "Files", "npx", ("-y", "@x/files", "/home/a b"), "/tmp")
HTTP = ServerEntry("2", "Site", address="https://tools.example/mcp")


def test_the_text_that_the_user_allows_is_whole_and_tells_no_secret() -> None:
    entry = replace(STDIO, environment=(("API_KEY", "hunter2"), ("PATH", "/opt")))
    first, *lines = entry.origin.splitlines()
    assert first == 'npx -y @x/files "/home/a b"'
    assert lines[0] == "folder: /tmp"
    assert [line.partition(" (value ")[0] for line in lines[1:]] == [
        "environment: API_KEY",
        "environment: PATH",
    ]
    assert "hunter2" not in entry.origin + repr(entry)
    site = replace(HTTP, headers=(("Authorization", "Bearer hunter2"),), client_secret="hunter2")
    assert site.origin.startswith("https://tools.example/mcp\nheader: Authorization (value ")
    assert "hunter2" not in site.origin + repr(site)


@pytest.mark.parametrize(
    "changed",
    [
        {"command": "npx2"},
        {"arguments": ("-y", "@x/files /home/a", "b")},
        {"arguments": ("-y", "@x/files", "/home/a b", "")},
        {"folder": "/"},
        {"environment": (("A", "1"),)},
        {"environment": (("A", "2"),)},
    ],
)
def test_whatever_is_started_differently_is_allowed_anew(changed: dict[str, Any]) -> None:
    origins = {each.origin for each in (STDIO, replace(STDIO, environment=(("A", "3"),)))}
    assert replace(STDIO, **changed).origin not in origins


def test_a_command_cannot_look_like_another_one() -> None:
    assert exact("a\u202eb\nfolder: /") == '"a\\u202eb\\nfolder: /"'
    assert exact("\U000e0041") == '"\\U000e0041"'
    long = replace(STDIO, arguments=("x" * 5_000, "; rm -rf ~"))
    assert long.command_line == f'npx {"x" * 5_000} "; rm -rf ~"'


WORDS = st.lists(st.text(max_size=3), min_size=1, max_size=3)


@given(WORDS, WORDS)
def test_no_two_commands_are_shown_alike(one: list[str], other: list[str]) -> None:
    shown = [ServerEntry("", "x", each[0], tuple(each[1:])).command_line for each in (one, other)]
    assert (shown[0] == shown[1]) == (one == other)


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (replace(STDIO, name=" "), "The server has no name of 1 to 64 letters."),
        (replace(STDIO, command=""), "The server “Files” needs a command or an address."),
        (replace(STDIO, address="https://x.example"), "needs a command or an address."),
        (replace(STDIO, folder="here"), "The folder of “Files” is not a full path."),
        (replace(STDIO, environment=(("A=B", "1"),)), "under “environment” that cannot be used"),
        (replace(STDIO, arguments=("a\0b",)), "under “command” that cannot be used"),
        (replace(STDIO, seconds=0), "The time limit of “Files” is not from 1 to 600 seconds."),
        (replace(HTTP, address="http://tools.example"), "The address of “Site” cannot be used"),
        (replace(HTTP, address="file:///etc/passwd"), "The address of “Site” cannot be used"),
        (replace(HTTP, address="https://u:p@tools.example"), "The address of “Site” cannot be"),
        (replace(HTTP, headers=(("Host", "other.example"),)), "under “headers” that cannot"),
        (replace(HTTP, headers=(("X", "a\r\nY: b"),)), "under “headers” that cannot be used"),
    ],
)
def test_an_entry_that_cannot_be_used_says_why(entry: ServerEntry, sentence: str) -> None:
    with pytest.raises(EntryError) as failure:
        checked(entry)
    assert sentence in str(failure.value)
    assert failure.value.remedy


def test_entries_are_kept_in_a_file_of_the_user_alone(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    store = EntryStore(file)
    made = store.save(replace(STDIO, id="", environment=(("KEY", "1"),), enabled=True))
    site = store.save(replace(HTTP, id="", headers=(("X-Key", "2"),), client_id="me"))
    assert os.name == "nt" or stat.S_IMODE(file.stat().st_mode) == 0o600
    assert EntryStore(file).all() == (made, site)
    with pytest.raises(EntryError, match="Another server is named"):
        store.save(replace(HTTP, id="", name="SITE"))
    store.delete(made.id)
    assert EntryStore(file).all() == (site,)


def test_a_secret_that_is_taken_out_of_an_entry_is_forgotten(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    secrets = SecretStore(keys, no_keyring)
    store = EntryStore(tmp_path / "servers.json", secret_store=secrets)
    headers = (("X-Key", "first-secret"),)
    made = store.save(
        replace(HTTP, id="", headers=headers, client_id="me", client_secret="second-secret")
    )
    assert "secret" not in (tmp_path / "servers.json").read_text("utf-8").replace("_secret", "")
    made = store.save(replace(made, client_secret=""))
    assert "second-secret" not in keys.read_text("utf-8")
    assert EntryStore(tmp_path / "servers.json", secret_store=secrets).all() == (made,)
    made = store.save(replace(made, headers=()))
    assert "first-secret" not in keys.read_text("utf-8")
    assert EntryStore(tmp_path / "servers.json", secret_store=secrets).all() == (made,)


def test_a_row_that_cannot_be_read_is_named_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "servers.json"
    row = {"id": "3", "name": "Odd", "command": ["npx"], "arguments": "no"}
    file.write_text(json.dumps({"servers": [row, 7, {"name": "A", "command": "b"}]}), "utf-8")
    store = EntryStore(file)
    assert [each.name for each in store.all()] == ["A"]
    assert store.problems[0] == (
        "The server “Odd” has a value under “command” that cannot be used."
    )
    assert "a server of tools was skipped: The server “Odd”" in caplog.text
    store.save(replace(STDIO, id=""))
    assert row in json.loads(file.read_text("utf-8"))["servers"]


# --- imports ------------------------------------------------------------------------------------

CURSOR = """{"mcpServers": {
  "files": {"command": "npx", "args": ["-y", "@x/files", 8080], "env": {"A": "1", "B": 2, "C": true},
            "autoApprove": ["*"], "alwaysAllow": ["write"], "disabled": false, "enabled": true},
  "site": {"url": "https://tools.example/mcp", "headers": {"Authorization": "Bearer x"}}
}}"""
VS_CODE = """\ufeff{
  // servers of this project
  "servers": {"files": {"type": "stdio", "command": "uvx", "args": ["a//b", "c,]"], "cwd": "/tmp",},
    "site": {"type": "http", "url": "https://tools.example/mcp"}, /* no more */
  },
}"""
LM_STUDIO = '{"mcpServers": {"site": {"url": "https://tools.example/mcp", "timeout": 90000}}}'
CLAUDE = '{"globalShortcut": "", "mcpServers": {"a": {"command": "docker", "args": ["run"]}}}'
PART = '"files": {"command": "npx", "args": []},'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (CURSOR, ["files", "site"]),
        (VS_CODE, ["files", "site"]),
        (LM_STUDIO, ["site"]),
        (CLAUDE, ["a"]),
        (PART, ["files"]),
        ('{"mcp": {"servers": {"a": {"command": "b"}}}}', ["a"]),
    ],
)
def test_files_of_other_programs_are_read_and_nothing_is_on(text: str, names: list[str]) -> None:
    found = read(text)
    assert [each.name for each in found.entries] == names
    assert not any(each.enabled for each in found.entries)
    assert found.problems == ()


def test_values_of_an_import_are_taken_as_they_are() -> None:
    files, site = read(CURSOR).entries
    assert files.arguments == ("-y", "@x/files", "8080")
    assert files.environment == (("A", "1"), ("B", "2"), ("C", "true"))
    assert site.headers == (("Authorization", "Bearer x"),)
    code = read(VS_CODE).entries[0]
    assert (code.arguments, code.folder) == (("a//b", "c,]"), "/tmp")
    assert read(LM_STUDIO).entries[0].seconds == 90


def test_what_an_import_leaves_out_is_said() -> None:
    found = read(json.dumps({"mcpServers": {
        "old": {"type": "sse", "url": "https://tools.example/sse"},
        "odd": {"type": "carrier-pigeon", "url": "https://tools.example"},
        "plain": {"url": "http://tools.example/mcp"},
        "empty": {}, "text": "npx", "list": {"command": ["npx"]},
        "asks": {"command": "npx", "env": {"KEY": "${input:key}"}},
    }}))  # fmt: skip
    assert [each.name for each in found.entries] == ["asks"]
    assert len(found.problems) == 7
    assert found.problems[0].startswith("“old” uses the transport SSE of 2024")
    assert "“carrier-pigeon”" in found.problems[1]
    assert "“asks” contains ${input:key}" in found.problems[-1]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"a": 1}', "{}", "[" * 100_000, '{"mcpServers": []}', "null"]
)
def test_other_text_contains_no_servers(text: str) -> None:
    found = read(text)
    assert found.entries == ()
    assert found.problems == ("This text contains no servers of tools.",)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_no_import_raises(value: object) -> None:
    read(json.dumps({"mcpServers": {"a": value, "b": {"command": value, "args": value}}}))


def test_imported_servers_are_stored_off_and_under_names_of_their_own(tmp_path: Path) -> None:
    store = EntryStore(tmp_path / "servers.json")
    store.save(replace(STDIO, id="", name="files"))
    added = store.add(CURSOR.replace('"site"', '"FILES"'))
    assert [each.name for each in added.entries] == ["files 2", "FILES 3"]
    assert not any(each.enabled for each in EntryStore(tmp_path / "servers.json").all())


def test_an_app_without_servers_does_not_import_the_sdk() -> None:
    code = (
        "import sys, app.tools.mcp.servers, app.tools.mcp.entries;"
        "sys.exit(str([each for each in ('mcp', 'pydantic', 'anyio', 'httpx2')"
        " if each in sys.modules] or ''))"
    )
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.stderr.strip() == ""
