"""A whole chat: its messages of all branches, its settings, and where it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from app.domain.chat import Preset
from app.domain.chat_settings import NO_SETTINGS, ChatSettings
from app.domain.message import Message, MessageState
from app.domain.parts import FilePart, Parts, TextPart
from engine import Role


@dataclass(frozen=True, slots=True)
class ChatTree:
    """A chat as it is exported and imported; the ids of its messages count within it."""

    title: str
    created: float  # seconds since 1970
    updated: float
    messages: tuple[Message, ...] = ()  # parents before children, siblings in their order
    branch_tip: int | None = None  # id of the last message of the shown branch
    settings: ChatSettings = NO_SETTINGS
    folder: tuple[str, ...] = ()  # names of its folders, the outermost first
    pinned: bool = False
    archived: bool = False
    origin: str = ""  # the program and its id of the chat, such as "chatgpt:6790…"

    @property
    def paths(self) -> frozenset[bytes]:
        """A hash of each message with all before it: a chat contains what it was continued from."""
        known: dict[int, bytes] = {}
        for message in self.messages:
            above = b"" if message.parent is None else known.get(message.parent, b"")
            said = "\0".join(
                part.text for part in message.parts if isinstance(part, TextPart | FilePart)
            )
            line = f"{message.role.value}\0{said}".encode("utf-8", "replace")
            known[message.id] = hashlib.blake2b(above + line, digest_size=8).digest()
        return frozenset(known.values())

    @property
    def digest(self) -> str:
        """A hash of who said what: equal for two exports of one chat that was not continued."""
        return digest_of(self.paths)


@dataclass(frozen=True, slots=True)
class FolderRecord:
    """A folder as it is exported and imported."""

    path: tuple[str, ...]  # its name, and those of the folders around it before that
    instructions: str | None = None
    preset: Preset | None = None  # of the app's own, if they are as they came, the id only
    position: float = 0.0  # among its siblings


def digest_of(paths: Iterable[bytes]) -> str:
    """The digest of a chat with these paths."""
    return hashlib.blake2b(b"".join(sorted(paths)), digest_size=8).hexdigest()


def depth_first(messages: Sequence[Message]) -> list[Message]:
    """The messages with parents before children, and siblings in the order given."""
    known = {str(message.id): message for message in messages}
    parents = {
        key: None if message.parent is None else str(message.parent)
        for key, message in known.items()
    }
    return [known[key] for key in in_order(parents, {})]


def in_order(
    parents: Mapping[str, str | None], children: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """The keys of a tree: parents before children, siblings as in `children`.

    Cycles are cut and keys without a known parent are roots, so that each key comes once.
    """
    below: dict[str, list[str]] = {}
    roots: list[str] = []
    for key, parent in parents.items():
        if parent is None or parent not in parents:
            roots.append(key)
        else:
            below.setdefault(parent, []).append(key)
    for parent, found in below.items():
        if len(found) > 1:
            places = {key: n for n, key in enumerate(children.get(parent, ()))}
            found.sort(key=lambda key: places.get(key, len(places)))  # stable: as in the file
    seen: set[str] = set()
    for root in (*roots, *parents):  # of a cycle, the first key is its root
        waiting = [root]
        while waiting:
            key = waiting.pop()
            if key in seen:
                continue
            seen.add(key)
            yield key
            waiting += reversed(below.get(key, ()))


def shown_branch(tree: ChatTree) -> list[Message]:
    """The shown branch, from the first message to the branch_tip."""
    known = {message.id: message for message in tree.messages}
    branch: list[Message] = []
    at = tree.branch_tip
    while at is not None and (message := known.pop(at, None)) is not None:
        branch.append(message)
        at = message.parent
    return branch[::-1]


def node(
    number: int,
    parent: int | None,
    role: Role,
    parts: Parts,
    *,
    created: float = 0.0,
    model: str = "",
    state: MessageState = MessageState.COMPLETE,
    stop: str = "",
) -> Message:
    """A message of a tree that comes from a file."""
    return Message(
        number,
        0,
        parent,
        role,
        parts,
        state,
        created,
        model,
        stop,
        0,
        0,
        0.0,
        sibling=1,
        siblings=1,
    )


def renumbered(messages: Sequence[Message], ids: Iterable[int], conversation: int) -> list[Message]:
    """The messages with these ids in place of their own, in `conversation`.

    Parents and compared answers follow; what refers to a message that is not among them is cut.
    """
    numbers = dict(zip((message.id for message in messages), ids, strict=True))
    return [
        replace(
            message,
            id=numbers[message.id],
            conversation=conversation,
            parent=None if message.parent is None else numbers.get(message.parent),
            compared=numbers.get(message.compared, 0),
        )
        for message in messages
    ]
