"""Scenes of updates and of chats that a newer version saved, for tests/pictures/shots.py."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from app.chat.store_faults import NEWER_NOTICE
from app.chat.updates import NEWS_NOTICE, NOTICE
from app.domain.release import InstallKind, Package, Release, Version
from app.state.chat import Notice
from app.state.updates import GetPhase, Leftover, UpdateStatus
from app.store.schema import MIGRATIONS
from app.store.store import Store
from app.system.translation import sentences, tr
from app.ui.settings.page import ABOUT, Preferences
from fakes import MODEL
from scenes_settings import narrow, page, scroll_to
from stage import Stage, flush, until

Scene = Callable[[Stage], None]

_NOTES = """## 0.2.0
- Answers on this computer's GPU are **twice as fast** with 4-bit models.
- `Ctrl+Shift+U` looks for a newer version; it is off until you ask for it.
- A chat that another version saved can be read and exported.

| Model | Before | Now |
|---|--:|--:|
| 1-bit, 8B | 21 tok/s | 34 tok/s |
| 4-bit, 4B | 18 tok/s | 36 tok/s |

More on [the page of the release](https://tokonoma.example/0.2.0).
"""


def _status(kind: InstallKind, **values: object) -> UpdateStatus:
    url = f"https://tokonoma.example/tokonoma-0.2.0-x86_64.{kind.value}"
    package = Package(kind, "x86_64", url, 214_000_000, "a" * 64)
    newer = Release(Version(0, 2, 0), _NOTES, "https://tokonoma.example/0.2.0", (package,))
    status = UpdateStatus(
        "tokonoma.example", kind, checked=1_795_000_000.0, newer=newer, package=package
    )
    return replace(status, **values)  # type: ignore[arg-type]


def _show(stage: Stage, status: UpdateStatus, **settings: object) -> Preferences:
    preferences = page(stage, **settings)
    stage.states.updates.set_status(status)
    scroll_to(preferences, ABOUT)
    flush()
    return preferences


def updates_off(stage: Stage) -> None:
    """This build asks nobody."""
    _show(stage, UpdateStatus())


def updates_newest(stage: Stage) -> None:
    status = UpdateStatus("tokonoma.example", checked=1_795_000_000.0)
    _show(stage, status, check_updates=True)


def updates_fault(stage: Stage) -> None:
    late = tr("{host} took too long to answer.", host="tokonoma.example")
    fault = sentences(late, tr("Try again later."))
    _show(stage, UpdateStatus("tokonoma.example", checked=1_795_000_000.0, fault=fault))


def updates_newer(stage: Stage) -> None:
    _show(stage, _status(InstallKind.SETUP))


def updates_getting(stage: Stage) -> None:
    _show(stage, _status(InstallKind.ARCHIVE, phase=GetPhase.GETTING, percent=42))


def updates_ready(stage: Stage) -> None:
    file = Path("C:/Users/Ada/Downloads/Tokonoma-0.2.0-setup.exe")
    _show(stage, _status(InstallKind.SETUP, phase=GetPhase.READY, file=file))


def updates_command(stage: Stage) -> None:
    """A package that the system's package manager installs; a version that is left."""
    file = Path("/home/ada/Downloads/tokonoma_0.2.0_amd64.deb")
    left = (Leftover("0.0.9", Path("/home/ada/Tokonoma-0.0.9")),)
    _show(stage, _status(InstallKind.DEB, phase=GetPhase.READY, file=file, leftovers=left))


def updates_narrow(stage: Stage) -> None:
    narrow(stage)
    updates_command(stage)


def updates_notes(stage: Stage) -> None:
    _show(stage, UpdateStatus()).show_notes(_NOTES)
    until(lambda: not stage.window.preferences.page.notes.text.working)  # type: ignore[union-attr]
    flush()


def updates_own_notes(stage: Stage) -> None:
    _show(stage, UpdateStatus()).show_notes()
    until(lambda: not stage.window.preferences.page.notes.text.working)  # type: ignore[union-attr]
    flush()


def updates_notices(stage: Stage) -> None:
    """After an update, and when a weekly check has found a newer version."""
    stage.ready(MODEL)
    stage.wait_until_idle()
    updated = tr("Tokonoma is now version {version}.", version="0.2.0")
    newer = tr("There is a newer version of Tokonoma: {version}.", version="0.3.0")
    stage.state.set_notice(NEWS_NOTICE, Notice(updated, "", tr("What is new")))
    stage.state.set_notice(NOTICE, Notice(newer, "", tr("Show")))
    flush()


def newer_chats(stage: Stage) -> None:
    """Chats that a newer version saved."""
    path = stage.store_queue.path
    Store.open(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    stage.ready(MODEL)
    until(lambda: NEWER_NOTICE in stage.state.notices)
    stage.controller.open_conversation(stage.state.conversations[0].id)
    until(lambda: bool(stage.state.messages))
    flush()


SCENES: dict[str, Scene] = {
    each.__name__: each
    for each in (
        updates_off, updates_newest, updates_fault, updates_newer, updates_getting, updates_ready,
        updates_command, updates_narrow, updates_notes, updates_own_notes, updates_notices, newer_chats,
    )
}  # fmt: skip
