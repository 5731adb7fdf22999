"""Connections: servers elsewhere whose models answer chats; a record without any secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

_NOTHING = MappingProxyType[str, Any]({})


class ServerKind(Enum):
    """The program that a server runs: it decides which extra fields and routes are used."""

    OPENAI = "openai"  # another one with OpenAI's routes
    TOKONOMA = "tokonoma"
    LLAMA_SERVER = "llama-server"
    LM_STUDIO = "lm studio"
    OLLAMA = "ollama"
    VLLM = "vllm"
    SGLANG = "sglang"


# How they name themselves; the others have no name of their own.
SERVER_NAMES: Mapping[ServerKind, str] = {
    ServerKind.TOKONOMA: "Tokonoma",
    ServerKind.LLAMA_SERVER: "llama-server",
    ServerKind.LM_STUDIO: "LM Studio",
    ServerKind.OLLAMA: "Ollama",
    ServerKind.VLLM: "vLLM",
    ServerKind.SGLANG: "SGLang",
}


def short_name(model: str) -> str:
    """The id of a model as it is displayed; a server may use the path of a file as one."""
    is_path = model.startswith(("/", "\\\\")) or model[1:3] in (":\\", ":/")
    return re.split(r"[\\/]", model.rstrip("\\/"))[-1] if is_path else model


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """One model that a server lists."""

    id: str
    name: str = ""  # as the server calls it; "": as its id
    context: int = 0  # tokens; 0: not known
    images: bool | None = None  # None: not known
    tools: bool | None = None  # None: not known
    chats: bool = True  # False: it only embeds or rates texts
    loaded: bool | None = None  # None: not known

    @property
    def label(self) -> str:
        """Its displayed name."""
        return self.name or short_name(self.id)


@dataclass(frozen=True, slots=True)
class Connection:
    """One server. Its key, and headers that are secrets, are in the keyring: see `remote.keys`."""

    id: str  # of the app, never changed
    name: str  # displayed
    address: str  # of the API, to which "/chat/completions" is added: "http://127.0.0.1:8080/v1"
    headers: tuple[tuple[str, str], ...] = ()  # sent with every request; none is a secret
    kind: ServerKind = ServerKind.OPENAI
    has_key: bool = False  # there is a key for it
    secret_headers: tuple[str, ...] = ()  # names of those whose values are with the key
    models: tuple[RemoteModel, ...] = ()  # as it last listed them
    named: tuple[str, ...] = ()  # ids of models that the user typed
    consent: str = ""  # the address for which unencrypted http was allowed
    deleted: bool = False  # it can still be restored, with its key
    unknown: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)  # of a newer version

    @property
    def has_secrets(self) -> bool:
        """Whether anything of it is in the keyring."""
        return self.has_key or bool(self.secret_headers)

    @property
    def chat_models(self) -> tuple[RemoteModel, ...]:
        """The models that chat: those it listed, and those the user named besides."""
        listed = {each.id for each in self.models}
        named = (RemoteModel(id) for id in self.named if id not in listed)
        return (*(each for each in self.models if each.chats), *named)

    def model(self, id: str) -> RemoteModel:
        """What is known of one of its models."""
        return next((each for each in self.models if each.id == id), RemoteModel(id))
