"""Records a database of an earlier version of the store, and what that version reads from it.

Run with the `app` and `engine` of that version on the path, such as an export of its commit:
`PYTHONPATH=EXPORT python tests/recorders/old_stores.py NAME` writes `tests/app/store/old/NAME.sqlite.gz`
and `NAME.json`. The first is the file as SQLite left it, with an answer that was being written; the
second is read from a copy through the queries of that version.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

try:
    from app.domain.message import MessageState
    from app.store.store import Store
except ImportError:  # before the store was a package
    from app.store import MessageState, Store  # type: ignore[attr-defined, no-redef]
from app.store.unsent import unsent_of
from engine import Role

OUT = Path(__file__).parents[1] / "app" / "store" / "old"
THOUGHTS = (
    "<think>\nThe sky scatters blue.\n</think>\n\nIt scatters **blue** light.",
    "\n <think></think>Nothing to think about.",
    "<think>\nA thought that was never ended: naïve Größe",
    "No thought, but <think>a tag</think> in the text.\n\n",
    "<think>one</think>\r\n\r\n```python\nprint('</think>')\n```\n",
    "<think>NUL \x00 and 𝄞 and עברית</think>  \n 天空为什么是蓝色的？",
    "   ",
)
STOPS = ("user", "length", "context", "", "Stopped at the answer length set in Settings")
OPTIONS = json.dumps(
    {
        "sampling": {"temperature": 0.25, "seed": 7},
        "format": "choices",
        "texts": {"choices": "blue\nnaïve Größe", "regex": "[a-z]+"},
        "thinking": "budget",
        "thinking_budget": 512,
    }
)
NEW_OPTIONS = json.dumps({"sampling": {"top_k": 5}, "format": "json", "texts": {}})
QUERIES = (
    "blue",
    "scatters",
    "think",
    "天空",
    "groesse",
    "größe",
    "draft",
    "gone",
    "sky",
    "pasted",
)


def write(store: Any) -> None:
    """Conversations with branches, thoughts, and answers that ended in every way."""
    made = store.create_conversation("Why is the sky blue?").id
    asked = store.add_message(made, None, Role.USER, "Why is the sky blue?\n\n    indented").id
    for number, text in enumerate(THOUGHTS):
        answer = store.add_message(made, asked, Role.ASSISTANT, "", MessageState.STREAMING, "Small")
        for at in range(0, len(text), 7):
            store.append_text(answer.id, text[at : at + 7])
        counts = {"prompt_tokens": 20 + number, "generated_tokens": 9, "seconds": 1.5 + number}
        store.finish(answer.id, MessageState.COMPLETE, **counts)
    again = store.add_message(made, answer.id, Role.USER, "And at night?").id
    for number, stop in enumerate(STOPS):
        answer = store.add_message(made, again, Role.ASSISTANT, "", MessageState.STREAMING, "Small")
        store.append_text(answer.id, f"<think>Night {number}</think>\n\nBecause")
        finish(store, answer.id, MessageState.STOPPED, stop)
    for error in errors():
        answer = store.add_message(made, again, Role.ASSISTANT, "", MessageState.STREAMING, "Small")
        store.append_text(answer.id, "It")
        finish(store, answer.id, MessageState.FAILED, error)
    empty = store.add_message(made, again, Role.ASSISTANT, "", MessageState.STREAMING, "Small")
    finish(store, empty.id, MessageState.FAILED, "It failed before its first word.")
    store.select_sibling(empty.id, -4)
    store.set_draft(made, unsent_of("a draft\nof two lines"))
    store.set_draft(None, unsent_of("a draft of the new chat"))

    long = store.create_conversation("A long pasted text").id
    parent = None
    for turn in range(6):
        role = Role.ASSISTANT if turn % 2 else Role.USER
        text = f"pasted {turn}: " + "much text, " * 300
        parent = store.add_message(long, parent, role, text, MessageState.COMPLETE, "Small").id
    continued = store.add_message(long, parent, Role.ASSISTANT, "<think>Firs", MessageState.STOPPED)
    store.append_text(continued.id, "t</think>")
    store.append_text(continued.id, "\nThen")  # left as it is: interrupted

    gone = store.create_conversation("A gone chat").id
    store.add_message(gone, None, Role.USER, "This is gone.")
    store.delete([gone])
    if hasattr(store, "mark_message"):
        write_adapters(store, made, answer.id)
    if hasattr(store, "delete_message"):
        kept = store.create_conversation("With a deleted answer").id
        first = store.add_message(kept, None, Role.USER, "First").id
        last = store.add_message(kept, first, Role.ASSISTANT, THOUGHTS[0]).id
        finish(store, last, MessageState.FAILED, errors()[-1])
        store.add_message(kept, last, Role.USER, "Last")
        store.delete_message(last)
    if hasattr(store, "set_policy"):
        from engine import ContextPolicy

        store.set_policy(made, ContextPolicy.STOP)
    if hasattr(store, "set_answer_options"):
        store.set_answer_options(made, OPTIONS)
        store.set_answer_options(None, NEW_OPTIONS)
        store.set_answer_options(gone, "")


def finish(store: Any, message: int, state: Any, reason: Any) -> None:
    """End an answer for a reason, which is its `stop` or `error` once the version has both."""
    try:
        from app.domain.parts import ErrorPart
    except ImportError:
        store.finish(message, state, error=reason)
        return
    if state is MessageState.STOPPED:
        store.finish(message, state, stop=reason)
    else:
        error = ErrorPart(message=reason) if isinstance(reason, str) else reason
        store.finish(message, state, error=error)


def errors() -> list[Any]:
    """The errors of failed answers: sentences, and codes once the version had them."""
    found: list[Any] = ["The memory of this machine ran out. Close other programs."]
    try:
        from engine import Fault, FaultKind
    except ImportError:
        return found
    fault = Fault(FaultKind.CHAT_FULL, most_context=4096)
    values = fault, "Small.gguf", "The prompt has 5,000 tokens.", "Shorten it."
    try:
        from app.domain.parts import ErrorPart
    except ImportError:
        from app.state.faults import stored_text  # type: ignore[attr-defined]

        return [*found, stored_text(*values)]
    return [*found, ErrorPart(*values)]


def error_text(message: Any) -> str:
    """Why a message ended, as the versions without parts kept it: a sentence, or JSON."""
    if not hasattr(message, "stop"):
        return message.error
    if message.error is None:
        return message.stop
    code = message.error.fault.kind.value != "other"
    return json.dumps(asdict(message.error)) if code else message.error.message


def write_adapters(store: Any, conversation: int, answer: int) -> None:
    """A known adapter file, a stack, a mix, and the marks of an answer."""
    from app.domain.message import AdapterMark
    from app.store.store import StoredUse

    uses = [StoredUse(Path("/a/pirate.gguf"), True, 0.5), StoredUse(Path("/a/poet"), False, -1.0)]
    store.set_known_adapter(Path("/a/pirate.gguf"), "Pirate")
    store.set_adapter_stack(conversation, uses)
    store.set_adapter_stack(None, uses[:1])
    store.set_adapter_mix("Mine", uses)
    store.mark_message(answer, [AdapterMark("Pirate", 0.5, "0123456789ab")])


def read(store: Any) -> dict[str, Any]:
    """All of a store as JSON values."""
    conversations = store.conversations()
    shown = {str(c.id): [m.id for m in store.branch(c.id)] for c in conversations}
    messages: dict[str, Any] = {}
    for conversation in conversations:
        todo = list(store.branch(conversation.id))
        while todo:
            message = todo.pop()
            if str(message.id) in messages:
                continue
            messages[str(message.id)] = asdict(message) | {
                "role": message.role.value,
                "state": message.state.value,
                "text": message.text,
                "error": error_text(message),
            }
            for place in range(1, message.siblings + 1):
                if place != message.sibling:
                    todo += store.select_sibling(message.id, place - message.sibling)
    found: dict[str, Any] = {
        "conversations": [
            {"id": c.id, "title": c.title, "created": c.created, "updated": c.updated}
            | ({"policy": c.policy.value} if hasattr(c, "policy") else {})
            for c in conversations
        ],
        "shown": shown,
        "messages": messages,
        "drafts": {str(c.id): store.draft(c.id).text for c in conversations}
        | {"0": store.draft(None).text},
        "search": {query: [c.id for c in store.conversations(query)] for query in QUERIES},
    }
    if hasattr(store, "answer_options"):
        options = store.answer_options().items()
        found["options"] = {str(number): json.loads(text) for number, text in options}
    if hasattr(store, "adapters"):
        found["adapters"] = json.loads(json.dumps(asdict(store.adapters()), default=str))
    if hasattr(store, "trash"):
        found["trash"] = [asdict(each) for each in store.trash()]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    name = parser.parse_args().name
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path, copy = Path(folder, "store.sqlite"), Path(folder, "copy.sqlite")
        store = Store.open(path)
        write(store)
        store.close()
        shutil.copy(path, copy)
        with gzip.GzipFile(OUT / f"{name}.sqlite.gz", "wb", mtime=0) as file:
            file.write(path.read_bytes())
        store = Store.open(copy)
        found = read(store)
        store.close()
        text = json.dumps(found, indent=1, ensure_ascii=True)
        (OUT / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
