"""What is allowed to tools and the calls of them in the store: repaired, and not named by them."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from app.domain.tool_activity import Allowed, CallState, Grant, ToolActivity
from app.store.salvage import mend
from app.store.store import Store

GRANT = Grant("builtin/page", "5a" * 32, "example.org", None, "page", 1.0)
CALL = ToolActivity(
    90, 1, 2, "call_0", "builtin/page", "page", "", "{}", "done", CallState.DONE, Allowed.CHAT, 1.0
)


def test_what_was_allowed_in_a_lost_chat_is_not_allowed_in_all(path: Path) -> None:
    with closing(Store.open(path)) as store:
        chat = store.create_conversation("A chat").id
        lost = store.create_conversation("Another").id
        for conversation in (None, chat, lost):
            store.write_grant(replace(GRANT, conversation=conversation))
        store.write_call(replace(CALL, conversation=lost))
    with closing(sqlite3.connect(path)) as database:
        database.create_function("fold", 1, str)
        database.execute("DELETE FROM conversation WHERE id = ?", (lost,))  # its page is lost
        database.execute("UPDATE tool_activity SET result = 'done'")
        mend(database)
        database.commit()
    with closing(Store.open(path)) as store:
        assert [each.conversation for each in store.grants()] == [chat, None]
        assert [each.result for each in store.tool_calls(9)[0]] == ["done"]  # that it was made


def test_a_hash_in_the_text_of_a_call_or_a_grant_keeps_no_file(store: Store) -> None:
    blobs = [store.blobs.add(content) for content in (b"a", b"b", b"c")]
    store.write_call(replace(CALL, arguments=blobs[0], result=blobs[1]))
    store.write_grant(replace(GRANT, digest=blobs[2], shown=blobs[2]))
    for each in store.blobs.folder.rglob("*"):
        os.utime(each, (1_000, 1_000))
    store.remove_unnamed_blobs()
    assert not store.blobs
