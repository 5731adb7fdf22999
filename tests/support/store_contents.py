"""Reads every message of a store through its public queries, to compare whole stores in tests."""

from __future__ import annotations

from app.domain.message import Message
from app.store.store import Store


def tree(store: Store, conversation_id: int) -> dict[int, Message]:
    """Every message of a conversation by id, of all branches; the selected branch is kept."""
    shown = store.branch(conversation_id)
    found: dict[int, Message] = {}
    todo = list(shown)
    while todo:
        message = todo.pop()
        if message.id in found:
            continue
        found[message.id] = message
        for place in range(1, message.siblings + 1):
            if place != message.sibling:
                todo += store.select_sibling(message.id, place - message.sibling)
    if len(found) > len(shown):
        store.select_sibling(shown[-1].id, 0)
    return found


def all_messages(store: Store) -> dict[int, Message]:
    """Every message of all listed conversations, by id."""
    return {
        number: message
        for conversation in store.conversations()
        for number, message in tree(store, conversation.id).items()
    }
