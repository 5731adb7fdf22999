"""Random chats by hypothesis, and the exports that other programs would write of them."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from app.domain.answer_details import AnswerDetails
from app.domain.chat import BUILT_IN, Preset
from app.domain.chat_settings import PARTS, AdapterChoice, ChatSettings, ResolvedText
from app.domain.chat_tree import ChatTree, FolderRecord
from app.domain.documents import PageUnit, Passage
from app.domain.message import AdapterMark, Message, MessageState
from app.domain.model_ref import Local, Remote
from app.domain.parts import (
    ErrorPart,
    FilePart,
    ImagePart,
    KeptFile,
    Part,
    PassagesPart,
    TablePart,
    TextPart,
    ThoughtPart,
    ToolCallPart,
    ToolResultPart,
)
from app.domain.tool_files import safe_file_name
from app.settings.samplers import Thinking
from engine import ContextPolicy, Fault, FaultKind, Role

ODD = [
    "\0",
    "\ud800",
    "\u202e",
    "\u2066",
    "\ufeff",
    "e\u0301",
    "😀",
    "\r\n",
    "\u2028",
    " \t",
    "كيف",
]
MARKED = ["# a", "```\nx\n```", "- b\n- c", "$x^2$", "|a|b|\n|-|-|\n|1|2|", "> q", "**b**", "\n\n",
          "1. one", "`c`", "[l](http://a.b)", "<i>", "&amp;", "---", "\\[y\\]",
          "\n\n3. a\n4. b\n   - [ ] c\n   - [x] d\n\n     e\n", "\n\n> - q\n>\n>   # h\n", "\n\n- ```py\n  x\n  ```\n",
          "\n\n| a | b |\n|:-:|--:|\n| **1** | $2$ |\n", "$\\nope$", "\n\n$$\\frac{a}{b}$$\n\n", "\n\n$$\\nope\n1$$\n\n",
          "\n\n* a\n* * b\n\n1) c\n", "~~*s*~~"]  # fmt: skip
texts = st.lists(
    st.one_of(st.text(max_size=12), st.sampled_from(ODD), st.sampled_from(MARKED)), max_size=6
).map("".join)
names = st.text(max_size=10)
finite = st.floats(0, 4e9, allow_nan=False)
kept_files = st.builds(
    KeptFile, names.map(safe_file_name), st.sampled_from(("a" * 64, "0" * 64)), st.integers(0, 99),
    st.integers(0, 9), st.integers(0, 9), st.sampled_from(("", "damaged")),
)  # fmt: skip
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(TextPart, texts),
    st.builds(ThoughtPart, texts, st.sampled_from(["<think>", "\n<think>\n", ""]), names),
    st.builds(ToolCallPart, names, texts, names, names),
    st.builds(
        ToolResultPart,
        names,
        texts,
        names,
        st.booleans(),
        files=st.lists(kept_files, max_size=2).map(tuple),
        files_left_out=st.integers(0, 2),
    ),
    st.builds(FilePart, names, texts),
    st.builds(ImagePart, names, names, st.just(""), st.integers(0, 9999), st.integers(0, 9999)),
    st.builds(
        PassagesPart,
        st.lists(
            st.builds(Passage, st.integers(1, 99), names, texts, names, st.sampled_from(PageUnit)),
            max_size=3,
        ).map(tuple),
    ),
    st.builds(
        TablePart,
        st.sampled_from(("", "|", "| a |\n| --- |\n| 1 |", "x")) | texts,
        names,
        st.sampled_from(('{"show": ["a", "sum of b"]}', "{", '{"show": 3}')) | texts,
        st.sampled_from(('{"rows": 3, "left_out": [{"column": "a", "empty": 1}]}', "3")) | texts,
        st.sampled_from(((), ("a", "b"))),
    ),
    st.builds(ErrorPart, st.builds(Fault, st.sampled_from(list(FaultKind))), names, names, names),
)
details = st.builds(
    AnswerDetails, model=names, ended=finite, temperature=finite, seed=st.integers(-1, 1 << 40),
    constraint=names, incomplete=st.booleans(),
)  # fmt: skip
ended = st.sampled_from([each for each in MessageState if each is not MessageState.STREAMING])


records = st.builds(
    ChatSettings,
    model=st.sampled_from([None, Local(Path("/m/a.gguf")), Remote("home", "m")]),
    instructions=st.one_of(st.none(), texts),
    sampling=st.dictionaries(
        st.sampled_from(["temperature", "min_p"]), st.floats(0, 1), max_size=2
    ),
    stop=st.lists(texts.filter(bool), max_size=2).map(tuple),
    thinking=st.sampled_from(list(Thinking)),
    policy=st.sampled_from(list(ContextPolicy)),
    adapters=st.lists(
        st.builds(AdapterChoice, st.just(Path("/a/b")), st.booleans(), st.floats(-2, 2)), max_size=2
    ).map(tuple),
    resolved=st.builds(ResolvedText, names, names),
    unknown=st.dictionaries(st.just("newer key"), st.integers(), max_size=1),
)


@st.composite
def chats(draw: st.DrawFn) -> ChatTree:
    """A chat whose messages are numbered as after an import: parents first, siblings in order."""
    count = draw(st.integers(0, 7))
    parents = [None, *(draw(st.one_of(st.none(), st.integers(1, n))) for n in range(1, count))]
    order = _depth_first(parents[:count])
    places = {old: new for new, old in enumerate(order, 1)}
    messages: list[Message] = []
    for old in order:
        parent = parents[old - 1]
        messages.append(
            Message(
                id=places[old],
                conversation=0,
                parent=None if parent is None else places[parent],
                role=draw(st.sampled_from(list(Role))),
                parts=tuple(draw(st.lists(parts, max_size=4))),
                state=draw(ended),
                created=draw(finite),
                model=draw(names),
                stop=draw(names),
                prompt_tokens=draw(st.integers(0, 1 << 40)),
                generated_tokens=draw(st.integers(0, 1 << 40)),
                seconds=draw(finite),
                sibling=1,
                siblings=1,
                adapters=tuple(
                    draw(st.lists(st.builds(AdapterMark, names, finite, names), max_size=2))
                ),
                details=draw(st.one_of(st.none(), details)),
            )
        )
    messages = _with_comparison(draw, messages)
    return ChatTree(
        title=draw(texts),
        created=draw(finite),
        updated=draw(finite),
        messages=tuple(messages),
        branch_tip=draw(st.sampled_from([m.id for m in messages])) if messages else None,
        settings=draw(records),
        folder=tuple(draw(st.lists(names, max_size=2))),
        pinned=draw(st.booleans()),
        archived=draw(st.booleans()),
        origin=draw(names),
    )


presets = st.one_of(
    st.none(),
    st.builds(Preset, st.integers(1, BUILT_IN), st.just("")),
    st.builds(
        Preset,
        st.just(0),
        texts.filter(bool),
        records.map(lambda r: replace(r, resolved=ResolvedText())),
        st.frozensets(st.sampled_from(list(PARTS))),
        texts,
        texts,
        st.lists(texts.filter(str.strip), max_size=2).map(tuple),
    ),
)
folder_records = st.builds(
    FolderRecord,
    st.lists(texts, min_size=1, max_size=3).map(tuple),
    st.one_of(st.none(), texts),
    presets,
    finite,
)
blobs = st.binary(max_size=50)


def _depth_first(parents: list[int | None]) -> list[int]:
    below: dict[int | None, list[int]] = {}
    for n, parent in enumerate(parents, 1):
        below.setdefault(parent, []).append(n)
    order, waiting = list[int](), below.get(None, [])[::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += below.get(order[-1], [])[::-1]
    return order


def _with_comparison(draw: st.DrawFn, messages: list[Message]) -> list[Message]:
    """Two siblings as compared answers, if there are some."""
    pairs = [
        (one, two) for one in messages for two in messages
        if one.id < two.id and one.parent == two.parent
    ]  # fmt: skip
    if not pairs or draw(st.booleans()):
        return messages
    one, two = draw(st.sampled_from(pairs))
    undecided = draw(st.booleans())
    both = {
        one.id: replace(one, compared=two.id, undecided=undecided),
        two.id: replace(two, compared=one.id, undecided=undecided),
    }
    return [both.get(each.id, each) for each in messages]


# --- a small tree, as each program would write it -------------------------------------------------

# (key, parent, role, text); "b2" is another answer than "b", and "c" follows the first one.
NODES = (
    ("a", "", "user", "What is 2 < 3?"),
    ("b", "a", "assistant", "It is **true**."),
    ("b2", "a", "assistant", "Yes."),
    ("c", "b", "user", "  And 3 > 2?\n"),
    ("d", "c", "assistant", "That too: $3 > 2$."),
)
SHOWN = ("a", "b", "c", "d")


def chatgpt_chat(number: str = "g1", nodes: Any = NODES, branch_tip: str = "d") -> dict[str, Any]:
    """A chat of conversations.json, with the nodes that are hidden or without a message."""
    mapping: dict[str, Any] = {
        "root": {"id": "root", "message": None, "parent": None, "children": ["system"]},
        "system": {
            "id": "system",
            "parent": "root",
            "children": ["context"],
            "message": {
                "id": "system",
                "author": {"role": "system"},
                "content": {"content_type": "text", "parts": [""]},
                "metadata": {"is_visually_hidden_from_conversation": True},
            },
        },
        "context": {
            "id": "context",
            "parent": "system",
            "children": [],
            "message": {
                "id": "context",
                "author": {"role": "user"},
                "content": {
                    "content_type": "user_editable_context",
                    "user_profile": "I am a gardener.",
                    "user_instructions": "Be brief.",
                },
                "metadata": {"is_visually_hidden_from_conversation": True},
            },
        },
    }
    for n, (key, parent, role, text) in enumerate(nodes):
        above = parent or "context"
        mapping[key] = {
            "id": key,
            "parent": above,
            "children": [],
            "message": {
                "id": key,
                "author": {"role": role},
                "create_time": 1_700_000_000.5 + n,
                "content": {"content_type": "text", "parts": [text]},
                "status": "finished_successfully",
                "recipient": "all",
                "metadata": {"model_slug": "gpt-4o"} if role == "assistant" else {},
            },
        }
        mapping[above]["children"].append(key)
    return {
        "title": "Numbers",
        "create_time": 1_700_000_000.25,
        "update_time": 1_700_000_100.0,
        "mapping": mapping,
        "current_node": branch_tip,
        "conversation_id": number,
        "id": number,
        "is_archived": False,
    }


def claude_chat(number: str = "c1") -> dict[str, Any]:
    """A chat of Claude's conversations.json."""
    root = "00000000-0000-4000-8000-000000000000"
    senders = {"user": "human", "assistant": "assistant"}
    return {
        "uuid": number,
        "name": "Numbers",
        "summary": "",
        "created_at": "2023-11-14T22:13:20.250000Z",
        "updated_at": "2023-11-14T22:15:00Z",
        "account": {"uuid": "x"},
        "current_leaf_message_uuid": "d",
        "chat_messages": [
            {
                "uuid": key,
                "text": text,
                "content": [{"type": "text", "text": text, "citations": []}],
                "sender": senders[role],
                "created_at": f"2023-11-14T22:13:2{n}Z",
                "attachments": [],
                "files": [],
                "parent_message_uuid": parent or root,
            }
            for n, (key, parent, role, text) in enumerate(NODES)
        ],
    }


def lm_studio_chat() -> dict[str, Any]:
    """A *.conversation.json."""

    def step(text: str, **more: Any) -> dict[str, Any]:
        return {"type": "contentBlock", "content": [{"type": "text", "text": text}], **more}

    def answer(*steps: dict[str, Any]) -> dict[str, Any]:
        sender = {"senderName": "qwen3-4b"}
        return {"type": "multiStep", "role": "assistant", "senderInfo": sender, "steps": steps}

    def question(text: str) -> dict[str, Any]:
        content = [{"type": "text", "text": text}]
        version = {"type": "singleStep", "role": "user", "content": content}
        return {"versions": [version], "currentlySelected": 0}

    return {
        "name": "Numbers",
        "pinned": False,
        "createdAt": 1_700_000_000_250,
        "tokenCount": 12,
        "systemPrompt": "Be brief.",
        "messages": [
            question("What is 2 < 3?"),
            {
                "versions": [
                    answer(
                        step("Compare.", style={"type": "thinking", "title": "Thought"}),
                        step("It is **true**."),
                        {"type": "debugInfoBlock", "debugInfo": "x"},
                    ),
                    answer(step("Yes.")),
                ],
                "currentlySelected": 0,
            },
            question("  And 3 > 2?\n"),
            {"versions": [answer(step("That too: $3 > 2$."))], "currentlySelected": 0},
        ],
    }


def write_jan(folder: Path) -> Path:
    """A data folder of Jan; it has no branches."""
    thread = folder / "threads" / "t1"
    thread.mkdir(parents=True)
    head = {
        "id": "t1",
        "object": "thread",
        "title": "Numbers",
        "assistants": [{"id": "jan", "instructions": "Be brief.", "model": {"id": "qwen3"}}],
        "created": 1_700_000_000,
        "updated": 1_700_000_100,
    }
    (thread / "thread.json").write_text(json.dumps(head), encoding="utf-8")
    shown = [node for node in NODES if node[0] in SHOWN]
    rows = [
        {
            "id": key,
            "object": "thread.message",
            "thread_id": "t1",
            "role": role,
            "content": [{"type": "text", "text": {"value": text, "annotations": []}}],
            "created_at": 1_700_000_000 + n,
            "status": "ready",
        }
        for n, (key, _, role, text) in enumerate(shown)
    ]
    lines = "\n".join(map(json.dumps, rows)) + "\n"
    (thread / "messages.jsonl").write_text(lines, encoding="utf-8")
    return folder


def write_silly_tavern(path: Path) -> Path:
    """A chat of SillyTavern, with two swipes."""
    rows = [
        {
            "user_name": "You",
            "character_name": "Numbers",
            "create_date": "2023-11-14@22h13m20s",
            "chat_metadata": {"integrity": "s1"},
        },
        {"name": "You", "is_user": True, "send_date": "November 14, 2023 10:13pm", "mes": NODES[0][3]},
        {
            "name": "Numbers",
            "is_user": False,
            "send_date": 1_700_000_001_000,
            "mes": NODES[1][3],
            "swipes": [NODES[1][3], NODES[2][3]],
            "swipe_id": 0,
            "swipe_info": [{}, {"extra": {"model": "m"}}],
            "extra": {"reasoning": "Compare.", "model": "m"},
        },
        {"name": "System", "is_system": True, "is_user": False, "mes": "hidden"},
        {"name": "You", "is_user": True, "send_date": "bad date", "mes": NODES[3][3]},
        {"name": "Numbers", "is_user": False, "mes": NODES[4][3]},
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def write_ollama(path: Path) -> Path:
    """A database of Ollama's app."""
    database = sqlite3.connect(path)
    database.executescript(
        """
        CREATE TABLE chats (id TEXT PRIMARY KEY, title TEXT, created_at TIMESTAMP);
        CREATE TABLE messages (id INTEGER PRIMARY KEY, chat_id TEXT, role TEXT, content TEXT,
            thinking TEXT, stream BOOLEAN, model_name TEXT, created_at TIMESTAMP);
        CREATE TABLE tool_calls (id INTEGER PRIMARY KEY, message_id INTEGER, function_name TEXT,
            function_arguments TEXT, function_result TEXT);
        CREATE TABLE attachments (id INTEGER PRIMARY KEY, message_id INTEGER, filename TEXT, data BLOB);
        """
    )
    database.execute("INSERT INTO chats VALUES ('o1', 'Numbers', '2023-11-14 22:13:20.123456789')")
    shown = [node for node in NODES if node[0] in SHOWN]
    for n, (key, _, role, text) in enumerate(shown, 1):
        thinking = "Compare." if key == "b" else ""
        database.execute(
            "INSERT INTO messages VALUES (?, 'o1', ?, ?, ?, 0, 'qwen3:4b', ?)",
            (n, role, text, thinking, f"2023-11-14T22:13:2{n}.5+00:00"),
        )
    database.execute("INSERT INTO attachments VALUES (1, 1, 'a.txt', ?)", (b"attached text",))
    database.execute("INSERT INTO attachments VALUES (2, 1, 'b.png', ?)", (b"\x89PNG\0\0",))
    database.commit()
    database.close()
    return path


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    """An archive with these files."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path
