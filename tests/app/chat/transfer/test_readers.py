"""Reading the exports of other programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.chat.transfer.faults import Cancelled, TransferError
from app.chat.transfer.imported import ImportedChat
from app.chat.transfer.sources import counted, has_chats, opened
from app.domain.chat_settings import ChatSettings
from app.domain.chat_tree import ChatTree, shown_branch
from app.domain.message import MessageState
from app.domain.parts import (
    FilePart,
    TextPart,
    ThoughtPart,
    ToolCallPart,
    ToolResultPart,
    prompt_text,
)
from app.domain.transfer import TESTED, Dropped, Program
from chat_makers import (
    NODES,
    chatgpt_chat,
    claude_chat,
    lm_studio_chat,
    write_jan,
    write_ollama,
    write_silly_tavern,
    zipped,
)
from engine import Role

TEXTS = {key: text for key, _, _, text in NODES}
SHOWN_TEXTS = [TEXTS[key] for key in ("a", "b", "c", "d")]
HERE = Path(__file__).parent


def read(*paths: Path) -> list[tuple[Program, ImportedChat]]:
    with opened(paths) as source:
        return list(source.chats(lambda _: None))


def only(path: Path, program: Program) -> ChatTree:
    [(found, chat)] = read(path)
    assert found is program
    assert chat.tree is not None
    return chat.tree


def said(tree: ChatTree) -> list[str]:
    """What the shown branch says, without thoughts."""
    return [
        prompt_text(part for part in message.parts if isinstance(part, TextPart))
        for message in shown_branch(tree)
    ]


def children(tree: ChatTree, number: int | None) -> list[str]:
    return [prompt_text(each.parts) for each in tree.messages if each.parent == number]


def written(folder: Path, program: Program) -> Path:
    """The chat of `NODES`, as a program would export it."""
    path = folder / "some file"
    match program:
        case Program.CHATGPT:
            content = json.dumps([chatgpt_chat()]).encode()
            return zipped(path, {"user.json": b"{}", "conversations.json": content})
        case Program.CLAUDE:
            content = json.dumps([claude_chat()]).encode()
            return zipped(path, {"users.json": b"[{}]", "conversations.json": content})
        case Program.LM_STUDIO:
            path.write_text(json.dumps(lm_studio_chat()), encoding="utf-8")
            return path
        case Program.JAN:
            return write_jan(path)
        case Program.SILLY_TAVERN:
            return write_silly_tavern(path)
        case Program.OLLAMA:
            return write_ollama(path)
        case _:
            raise AssertionError(program)


FOREIGN = [each for each in Program if each not in (Program.TOKONOMA, Program.OPEN_WEBUI)]
BRANCHED = (Program.CHATGPT, Program.CLAUDE, Program.LM_STUDIO, Program.SILLY_TAVERN)


@pytest.mark.parametrize("program", FOREIGN)
def test_each_program_s_chat_is_read_whole(program: Program, tmp_path: Path) -> None:
    tree = only(written(tmp_path, program), program)
    assert tree.title == "Numbers"
    assert said(tree) == SHOWN_TEXTS
    assert [each.role for each in shown_branch(tree)] == [Role.USER, Role.ASSISTANT] * 2
    assert tree.origin.startswith(f"{program.value}:")
    assert len(tree.origin) > len(program.value) + 1
    assert 1_699_900_000 < tree.created < 1_700_100_000
    assert all(message.created for message in tree.messages)
    if program in BRANCHED:
        assert [text.rpartition("</think>")[2] for text in children(tree, 1)] == [
            TEXTS["b"],
            TEXTS["b2"],
        ]


@pytest.mark.parametrize("program", [Program.CHATGPT, Program.LM_STUDIO, Program.JAN])
def test_system_prompts_become_instructions(program: Program, tmp_path: Path) -> None:
    tree = only(written(tmp_path, program), program)
    assert str(tree.settings.instructions).endswith("Be brief.")


def test_thoughts_are_parts_of_answers(tmp_path: Path) -> None:
    for program in (Program.LM_STUDIO, Program.SILLY_TAVERN, Program.OLLAMA):
        (tmp_path / program.value).mkdir()
        tree = only(written(tmp_path / program.value, program), program)
        assert shown_branch(tree)[1].parts[0] == ThoughtPart("Compare.")


def test_the_export_of_the_real_open_webui() -> None:
    chats = read(HERE / "open_webui_0.12.4.json")
    assert [program for program, _ in chats] == [Program.OPEN_WEBUI] * 2
    picture, thought = (chat for _, chat in chats)
    assert picture.dropped == Counter({Dropped.IMAGES: 1})
    tree = thought.tree
    assert tree is not None
    assert tree.settings == ChatSettings(instructions="Answer briefly.")
    first, one, other, second, last = tree.messages
    assert [each.parent for each in tree.messages] == [None, 1, 1, 3, 4]
    assert (tree.branch_tip, one.model, first.role) == (last.id, "tiny-model", Role.USER)
    assert one.parts == other.parts
    assert one.parts[0] == ThoughtPart('First I compare 2 < 3 & "quotes".\nThen I answer.')
    assert one.parts[1] == TextPart(
        "You said: Please think about 2 < 3\n\n```python\nprint('a < b')\n```"
    )
    assert second.parts == (TextPart("And then?"),)
    assert Program.OPEN_WEBUI in TESTED


def test_open_webui_s_other_layouts(tmp_path: Path) -> None:
    """One chat on each line, as its server sends them; a chat alone; thoughts within the text."""
    rows = json.loads((HERE / "open_webui_0.12.4.json").read_bytes())
    lines = tmp_path / "lines"
    lines.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert read(lines) == read(HERE / "open_webui_0.12.4.json")
    history = {
        "currentId": "y",
        "messages": {
            "x": {"id": "x", "parentId": None, "childrenIds": ["y"], "role": "user", "content": "Q"},
            "y": {
                "id": "y",
                "parentId": "x",
                "role": "assistant",
                "content": '<details type="reasoning" done="true" duration="3">\n<summary>Thought for'
                " 3 seconds</summary>\n&gt; a &lt; b\n&gt; so\n</details>\n"
                '<details type="tool_calls" done="true" id="i" name="add" arguments="&quot;{}&quot;"'
                ' result="&quot;3&quot;">\n<summary>Tool</summary>\n</details>\nAnswer',
            },
        },
    }  # fmt: skip
    alone = tmp_path / "alone"
    alone.write_text(json.dumps({"title": "T", "history": history}), encoding="utf-8")
    tree = only(alone, Program.OPEN_WEBUI)
    assert tree.messages[1].parts == (
        ThoughtPart("a < b\nso"),
        ToolCallPart("add", "{}", "i"),
        ToolResultPart("add", "3", "i"),
        TextPart("Answer"),
    )


def chatgpt_message(role: str, content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"author": {"role": role}, "content": content, "recipient": "all", **more}


def test_the_steps_of_an_answer_of_chatgpt_are_one_message(tmp_path: Path) -> None:
    steps = [
        chatgpt_message("user", {"content_type": "text", "parts": ["Draw"]}),
        chatgpt_message(
            "assistant",
            {"content_type": "thoughts", "thoughts": [{"summary": "Plan", "content": "c"}]},
        ),
        chatgpt_message("assistant", {"content_type": "reasoning_recap", "content": "5 s"}),
        chatgpt_message(
            "assistant", {"content_type": "code", "text": "print(1)"}, recipient="python"
        ),
        chatgpt_message("tool", {"content_type": "execution_output", "text": "1"}),
        chatgpt_message(
            "assistant",
            {
                "content_type": "multimodal_text",
                "parts": [
                    {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"},
                    {"content_type": "audio_transcription", "text": "Here"},
                    {"content_type": "audio_asset_pointer"},
                    "it is\ue200cite\ue202turn0search1\ue201.",
                ],
            },
            metadata={"finish_details": {"type": "interrupted"}},
        ),
    ]
    mapping = {
        str(n): {"parent": str(n - 1) if n else None, "children": [str(n + 1)], "message": step}
        for n, step in enumerate(steps)
    }
    chat = {"title": "T", "mapping": mapping, "current_node": "5", "id": "x"}
    path = tmp_path / "x.json"
    path.write_text(json.dumps([chat]), encoding="utf-8")
    [(_, found)] = read(path)
    assert found.tree is not None
    question, answer = found.tree.messages
    assert answer.parts == (
        ThoughtPart("Plan\nc"),
        ToolCallPart("python", '{"code": "print(1)"}'),
        ToolResultPart("", "1"),
        TextPart("Here\n\nit is."),
    )
    assert (answer.state, answer.parent) == (MessageState.STOPPED, question.id)
    assert found.tree.branch_tip == answer.id
    assert found.dropped == Counter({Dropped.IMAGES: 1, Dropped.AUDIO: 1})


def test_slim_exports_of_chatgpt(tmp_path: Path) -> None:
    """Nodes without children, metadata and times, and the model only at the chat."""
    chat = chatgpt_chat() | {"default_model_slug": "gpt-5"}
    del chat["create_time"]
    for each in chat["mapping"].values():
        del each["children"]
        if each["message"]:
            for name in ("create_time", "metadata", "status", "recipient"):
                each["message"].pop(name, None)
    path = tmp_path / "x.json"
    path.write_text(json.dumps([chat]), encoding="utf-8")
    tree = only(path, Program.CHATGPT)
    assert said(tree) == SHOWN_TEXTS
    assert {each.model for each in tree.messages} == {"", "gpt-5"}
    assert tree.settings.instructions


def test_a_system_node_in_the_middle_does_not_cut_a_chat(tmp_path: Path) -> None:
    nodes = [*NODES[:4], ("s", "c", "system", "be kind"), ("d", "s", *NODES[4][2:])]
    path = tmp_path / "x.json"
    path.write_text(json.dumps([chatgpt_chat(nodes=nodes)]), encoding="utf-8")
    assert said(only(path, Program.CHATGPT)) == SHOWN_TEXTS


def test_two_first_questions_are_branches(tmp_path: Path) -> None:
    nodes = [*NODES, ("a2", "", "user", "Another beginning")]
    path = tmp_path / "x.json"
    path.write_text(json.dumps([chatgpt_chat(nodes=nodes)]), encoding="utf-8")
    tree = only(path, Program.CHATGPT)
    assert children(tree, None) == [TEXTS["a"], "Another beginning"]
    assert said(tree) == SHOWN_TEXTS


def test_attachments_of_claude(tmp_path: Path) -> None:
    chat = claude_chat()
    chat["chat_messages"][0]["attachments"] = [
        {"file_name": "n.txt", "extracted_content": "numbers"}, {"file_name": "empty.bin"},
    ]  # fmt: skip
    chat["chat_messages"][0]["files"] = [{"file_name": "p.png", "file_kind": "image"}]
    del chat["chat_messages"][1]["parent_message_uuid"]
    path = tmp_path / "x"
    path.write_text(json.dumps([chat]), encoding="utf-8")
    [(_, found)] = read(path)
    assert found.tree is not None
    assert found.tree.messages[0].parts == (FilePart("n.txt", "numbers"), TextPart(TEXTS["a"]))
    assert said(found.tree) == SHOWN_TEXTS
    assert found.dropped == Counter({Dropped.FILES: 1, Dropped.IMAGES: 1})


def test_attached_texts_of_ollama_are_kept(tmp_path: Path) -> None:
    [(_, found)] = read(write_ollama(tmp_path / "db.sqlite"))
    assert found.tree is not None
    assert found.tree.messages[0].parts[0] == FilePart("a.txt", "attached text")
    assert found.dropped == Counter({Dropped.IMAGES: 1})
    assert found.tree.messages[1].model == "qwen3:4b"


def test_a_list_in_several_files_is_read_in_order(tmp_path: Path) -> None:
    files = {
        f"conversations-{n:03}.json": json.dumps([chatgpt_chat(f"g{n}")]).encode()
        for n in (10, 2, 1)
    }
    found = read(zipped(tmp_path / "x.zip", files))
    origins = [chat.tree.origin for _, chat in found if chat.tree]
    assert origins == ["chatgpt:g1", "chatgpt:g2", "chatgpt:g10"]


def test_cycles_and_missing_parents_lose_no_message(tmp_path: Path) -> None:
    chat = chatgpt_chat()
    chat["mapping"]["a"]["parent"] = "d"  # a cycle of all messages
    chat["mapping"]["b2"]["parent"] = "not there"
    path = tmp_path / "x.json"
    path.write_text(json.dumps([chat]), encoding="utf-8")
    tree = only(path, Program.CHATGPT)
    assert sorted(prompt_text(each.parts) for each in tree.messages) == sorted(TEXTS.values())
    numbers = [message.id for message in tree.messages]
    for message in tree.messages:
        assert message.parent is None or numbers.index(message.parent) < numbers.index(message.id)


def test_a_long_chain_needs_no_recursion(tmp_path: Path) -> None:
    nodes = [(str(n), str(n - 1) if n else "", "user", f"m{n}") for n in range(5000)]
    path = tmp_path / "x.json"
    path.write_text(json.dumps([chatgpt_chat(nodes=nodes, branch_tip="4999")]), encoding="utf-8")
    assert len(shown_branch(only(path, Program.CHATGPT))) == 5000


def test_what_precedes_damage_is_read(tmp_path: Path) -> None:
    whole = json.dumps([chatgpt_chat("g1"), chatgpt_chat("g2")])
    path = tmp_path / "x.json"
    path.write_text(whole[:-200], encoding="utf-8")
    found: list[ImportedChat] = []
    with opened([path]) as source, pytest.raises(TransferError, match="not complete"):
        found.extend(chat for _, chat in source.chats(lambda _: None))
    assert [chat.tree.origin for chat in found if chat.tree] == ["chatgpt:g1"]


def test_a_file_that_cannot_be_read_beside_others_is_said(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text(json.dumps([chatgpt_chat()]), encoding="utf-8")
    bad.write_bytes(b"[{")
    with opened([bad, good]) as source:
        chats = source.chats(lambda _: None)
        assert next(chats)[0] is Program.CHATGPT
        with pytest.raises(TransferError, match="not complete"):
            next(chats)


def test_reading_can_be_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps([chatgpt_chat()]), encoding="utf-8")

    def stop(_: int) -> None:
        raise Cancelled

    with opened([path]) as source, pytest.raises(Cancelled):
        list(source.chats(stop))


def test_chats_without_messages_and_elements_that_are_none_are_counted(tmp_path: Path) -> None:
    empty = {"title": "E", "mapping": {}, "current_node": None}
    path = tmp_path / "x.json"
    path.write_text(json.dumps([None, 3, empty, chatgpt_chat()]), encoding="utf-8")
    total: Counter[Dropped] = Counter()
    for _, chat in read(path):
        total += counted(chat)
    assert total == Counter({Dropped.CHATS: 2, Dropped.EMPTY: 1})


def files_with_chats(folder: Path) -> Iterator[Path]:
    for program in FOREIGN:
        place = folder / program.value
        place.mkdir()
        path = written(place, program)
        if path.is_file():
            yield path


def test_files_with_chats_are_told_by_content(tmp_path: Path) -> None:
    assert all(has_chats(path) for path in files_with_chats(tmp_path))
    other = tmp_path / "x.json"
    other.write_bytes(b"GGUF....")
    assert not has_chats(other)
    assert not has_chats(tmp_path / "missing")


def test_a_chat_of_a_group_has_its_speakers(tmp_path: Path) -> None:
    rows = [
        {"user_name": "unused", "character_name": "unused", "chat_metadata": {}},
        {"name": "Me", "is_user": True, "mes": "Who are you?"},
        {"name": "Aqua", "is_user": False, "mes": "I am Aqua.", "extra": {"model": "m"}},
        {"name": "Megumin", "is_user": False, "mes": "I am not."},
    ]
    path = tmp_path / "2024-1-1.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with opened([path]) as source:
        [(_, chat)] = source.chats(lambda _: None)
    assert chat.tree is not None
    assert chat.tree.title == "Aqua, Megumin"
    assert [each.model for each in chat.tree.messages] == ["", "Aqua", "Megumin"]
