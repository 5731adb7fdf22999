"""Chats of a file as pieces for the store, each small enough to be one of a few in a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from app.chat.chat_list.conversations import one_line, title_of
from app.domain.chat_settings import ChatSettings
from app.domain.chat_tree import ChatTree, FolderRecord, renumbered
from app.domain.ids import new_id
from app.domain.message import Message
from app.domain.model_ref import local_path
from app.domain.transfer import Program
from app.store.chat_trees import ImportPiece
from app.system.translation import tr
from engine import Role

MOST_MESSAGES = 300  # of a piece and of a transaction
MOST_CHARACTERS = 1 << 20
_ELSEWHERE = ("\\\\", "//")  # how paths to shared folders begin


def pieces_of(tree: ChatTree, program: Program) -> Iterator[ImportPiece]:
    """The pieces of a chat, with the ids that it will have."""
    conversation = new_id()
    messages = renumbered(tree.messages, (new_id() for _ in tree.messages), conversation)
    branch_tip = next(
        (
            new.id
            for old, new in zip(tree.messages, messages, strict=True)
            if old.id == tree.branch_tip
        ),
        None,
    )
    chat = replace(tree, title=_title(tree, program), settings=_local(tree.settings), messages=())
    digest = tree.digest if tree.origin else ""
    start = 0
    while start < len(messages):
        end = _end(messages, start)
        yield ImportPiece(
            conversation, chat, digest, messages[start:end], branch_tip,
            first=start == 0, last=end == len(messages),
        )  # fmt: skip
        start = end


def local_record(record: FolderRecord) -> FolderRecord:
    """The folder with a preset that names no files of other computers."""
    preset = record.preset
    if preset is None:
        return record
    return replace(record, preset=replace(preset, settings=_local(preset.settings)))


def _local(settings: ChatSettings) -> ChatSettings:
    """The settings without files of other computers: a file must not make this one call them."""
    model = local_path(settings.model)
    if model is not None and str(model).startswith(_ELSEWHERE):
        settings = replace(settings, model=None)
    if any(str(each.path).startswith(_ELSEWHERE) for each in settings.adapters):
        kept = (each for each in settings.adapters if not str(each.path).startswith(_ELSEWHERE))
        settings = replace(settings, adapters=tuple(kept))
    return settings


def size_of(message: Message) -> int:
    """The characters of a message, roughly."""
    return sum(len(getattr(part, "text", "")) for part in message.parts) + 100


def _end(messages: list[Message], start: int) -> int:
    """Where a piece ends that begins at `start`."""
    size, end = 0, start
    while end < len(messages) and end - start < MOST_MESSAGES and size < MOST_CHARACTERS:
        size += size_of(messages[end])
        end += 1
    return end


def _title(tree: ChatTree, program: Program) -> str:
    """The title, or one made from the first message where the program has none."""
    title = tree.title if program is Program.TOKONOMA else one_line(tree.title)
    if title.strip():
        return title
    first = next((each for each in tree.messages if each.role is Role.USER), None)
    return (title_of(first.parts) if first else "") or tr("Imported chat")
