"""How an answer was made: model, times, sampling and seed; a JSON column of a message."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class AnswerDetails:
    """What the engine used and measured for one answer; of a continued one, for its last part."""

    model: str = ""  # displayed name
    format: str = ""  # such as "Q4_K_M"
    ended: float = 0.0  # seconds since 1970; 0: not recorded
    reused_tokens: int = 0  # of the prompt, those that were in the KV cache
    first_token_seconds: float = 0.0  # from the request to the first token
    prompt_seconds: float = 0.0  # reading what was not in the KV cache; 0: not known
    decode_seconds: float = 0.0  # from the first token to the last
    temperature: float = 0.0  # 0: greedy
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    min_p: float = 0.0  # 0: off
    repeat_penalty: float = 1.0  # 1: off
    seed: int = -1  # of the random numbers; -1: not known
    drafted_tokens: int = 0  # proposed by speculative decoding
    accepted_tokens: int = 0  # of these
    draft_gain: float = 0.0  # estimated speed relative to no drafts; 0: there were none
    token_seconds_p50: float = 0.0  # of a token; 0: not known
    token_seconds_p95: float = 0.0
    thinking: str = ""  # "on" or "off"; "": the default of the chat template
    more_sampling: str = ""  # JSON: the other parameters that are not as usual, by name
    constraint: str = ""  # what it had to be: a value of ConstraintKind; "": any text
    incomplete: bool = False  # the answer ended within the document that it had to be
    thought_tokens: int = 0  # also of the parts that were continued
    thought_seconds: float = 0.0  # the same
    thought_budget: int = 0  # tokens, if the budget ended the thoughts
    chat_tokens: int = 0  # as in `AnswerUsage`
    edited: bool = False  # the user has changed the text
    extra: str = ""  # instruction for this answer only
    server: str = ""  # host and port of an engine elsewhere; "": written on this machine
    connection: str = ""  # the name of the connection to it
    server_model: str = ""  # that wrote it, if the server names another one than was asked
    sent_sampling: str = ""  # JSON: the values sent to the server, which chose the others, by name


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """The figures of a stored answer."""

    prompt_tokens: int
    generated_tokens: int
    details: AnswerDetails


def details_text(details: AnswerDetails | None) -> str:
    """The column of a message; "" without details."""
    return "" if details is None else json.dumps(asdict(details))


def details_of(text: str) -> AnswerDetails | None:
    """Parse the column of a message; fields of a wrong type get their default."""
    if not text:
        return None
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    stored = cast("dict[str, object]", found)
    fitting: dict[str, Any] = {}
    for field in fields(AnswerDetails):
        value, default = stored.get(field.name), field.default
        number = isinstance(default, float) and type(value) is int
        if type(value) is type(default) or number:
            fitting[field.name] = value
    return AnswerDetails(**fitting)
