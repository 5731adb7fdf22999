"""Fields of a request body that OpenAI's and llama.cpp's routes share."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from engine.messages import AdapterUse, Constraint, ConstraintKind, FinishReason
from engine.server.fields import Fields
from engine.server.http import Call
from engine.server.service import Service
from engine.server.values import Done, Progress, Timings, Usage

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
FINGERPRINT = "build-tokonoma"  # programs written for llama.cpp look for the b
MOST_ANSWERS = 16
MOST_LOGPROBS = 100
MOST_SLOT = 1 << 16
MOST_SCALE = 2.0  # of an adapter
_LIMITS = ("max_completion_tokens", "max_tokens", "n_predict", "max_new_tokens")
_EFFORTS = {
    "none": 0,
    "minimal": 0,
    "low": 1024,
    "medium": 4096,
    "high": None,
    "xhigh": None,
    "max": None,
}
_REASONS = {
    FinishReason.LENGTH: "length",
    FinishReason.CONTEXT: "length",
    FinishReason.TOOL_CALLS: "tool_calls",
}


def model_name(call: Call, *, may_lack: bool = False) -> str:
    """The name of the model; "", which OpenAI's own routes must be given, is the loaded one.

    `may_lack`: they too may leave it out, as with llama-server, where any name will do.
    """
    is_openai = call.request.url.path.startswith("/v1/")
    if is_openai and "model" not in call.body and not may_lack:
        call.body.fail(
            "model", 'is missing; give a name of /v1/models, or "" for the loaded model.'
        )
    return call.body.text("model")


def answer_limit(body: Fields, least: int = 1, usual: int = 0) -> int | None:
    """The most tokens of an answer; 0: no limit; None: no tokens at all, where `least` is 0.

    Where the body gives none it is `usual`.
    """
    for name in _LIMITS:
        if name not in body:
            continue
        limit = body.integer(name, -1)
        if limit < 0:
            return 0
        if limit < least:
            body.fail(name, f"must be {least} or more, or -1 for no limit, not {limit}.")
        return limit or None
    return usual


def answers(body: Fields) -> int:
    """The number of answers to one prompt."""
    name = "n" if "n" in body else "n_cmpl"
    return body.integer(name, 1, 1, MOST_ANSWERS)


def stop_strings(body: Fields, name: str = "stop") -> tuple[str, ...]:
    """The strings that end an answer; an empty one, which clients send from forms, is none."""
    return tuple(text for text in body.texts(name) if text)


def thinking(body: Fields) -> tuple[bool | None, int | None]:
    """Whether the model thinks, None: as it does by default, and for how many tokens at most."""
    switch: bool | None = None
    budget: int | None = None
    effort = body.object("reasoning")
    name = body.choice("reasoning_effort", tuple(_EFFORTS), "")
    if effort is not None and not name:
        name = effort.choice("effort", tuple(_EFFORTS), "")
    if name:
        budget = _EFFORTS[name]
    if effort is not None and "enabled" in effort:
        switch = effort.flag("enabled")
    if effort is not None and "max_tokens" in effort:
        budget = effort.integer("max_tokens", 0, least=0)
    plan = body.get("thinking")
    if isinstance(plan, bool):
        switch = plan
    elif (asked := body.object("thinking")) is not None:
        kind = asked.choice("type", ("enabled", "disabled", "adaptive"), "enabled")
        switch = False if kind == "disabled" else switch
        if "budget_tokens" in asked:
            budget = asked.integer("budget_tokens", 0, least=0)
    for field in (
        "thinking_budget",
        "reasoning_budget",
        "reasoning_budget_tokens",
        "thinking_budget_tokens",
    ):
        if field in body:
            tokens = body.integer(field, -1, least=-1)
            budget = None if tokens < 0 else tokens
    template = body.object("chat_template_kwargs")
    if template is not None and isinstance(template.get("enable_thinking"), bool):
        switch = template.flag("enable_thinking")
    return switch, budget


def template_arguments(body: Fields) -> dict[str, Any]:
    """Variables of the chat template."""
    found = body.object("chat_template_kwargs")
    made = dict(found.values) if found is not None else {}
    if effort := body.text("reasoning_effort"):
        made.setdefault("reasoning_effort", effort)  # gpt-oss reads it in its template
    return made


def constraint(body: Fields) -> Constraint | None:
    """What the answer must be, in the words of OpenAI, llama.cpp or vLLM; None: anything."""
    if (found := format_constraint(body.object("response_format"))) is not None:
        return found
    asked = body.object("structured_outputs")
    for place, prefix in ((body, "guided_"), *([(asked, "")] if asked else [])):
        if f"{prefix}json" in place:
            return json_constraint(place.get(f"{prefix}json"))
        if f"{prefix}regex" in place:
            return Constraint(ConstraintKind.REGEX, place.text(f"{prefix}regex"))
        if f"{prefix}choice" in place:
            choices = list(place.texts(f"{prefix}choice"))
            return Constraint(ConstraintKind.CHOICES, json.dumps(choices))
        if f"{prefix}grammar" in place:
            return Constraint(ConstraintKind.GBNF, place.text(f"{prefix}grammar"))
    if "json_schema" in body:
        return json_constraint(body.get("json_schema"))
    if grammar := body.text("grammar"):
        return Constraint(ConstraintKind.GBNF, grammar)
    return None


def format_constraint(form: Fields | None) -> Constraint | None:
    """What the answer must be, by a format in OpenAI's words; None: any text."""
    if form is None:
        return None
    kind = form.choice("type", ("text", "json_object", "json_schema"), "text")
    if kind == "json_schema":
        return schema_constraint(form.object("json_schema") or form)  # Responses have it in one
    if kind == "text":
        return None
    found = form.object("schema")
    return json_constraint({"type": "object"} if found is None else found.values)


def schema_constraint(form: Fields) -> Constraint:
    """A JSON value by the `schema` of a format, which must have one."""
    if (schema := form.object("schema")) is None:
        form.fail("schema", "is missing; give the JSON schema of the answer.")
    return json_constraint(schema.values)


def json_constraint(schema: Any) -> Constraint:
    """A JSON value by a schema, which may be text."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return Constraint(ConstraintKind.JSON_SCHEMA, text)


def lora(body: Fields, service: Service) -> tuple[AdapterUse, ...] | None:
    """The adapters of one request, by their numbers in /lora-adapters; None: as the server is set."""
    if "lora" not in body:
        return None
    uses: list[AdapterUse] = []
    for one in body.objects("lora"):
        number = one.integer("id", -1)
        if not 0 <= number < len(service.adapters):
            one.fail("id", f"must be the number of an adapter in /lora-adapters, not {number}.")
        scale = one.number("scale", 1.0, -MOST_SCALE, MOST_SCALE)
        if scale:
            uses.append(replace(service.adapters[number], strength=scale))
    return tuple(uses)


def finish_reason(reason: FinishReason) -> str:
    """OpenAI's word for why an answer ended."""
    return _REASONS.get(reason, "stop")


def usage(ended: list[Done]) -> dict[str, Any]:
    """OpenAI's usage of the answers to one prompt."""
    first = ended[0].usage if ended else Usage()
    generated = sum(one.usage.generated for one in ended)
    reasoning = sum(one.usage.reasoning for one in ended)
    return {
        "prompt_tokens": first.prompt,
        "completion_tokens": generated,
        "total_tokens": first.prompt + generated,
        "prompt_tokens_details": {"cached_tokens": first.cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def timings(done: Done) -> dict[str, Any]:
    """llama.cpp's timings of an answer; the first token comes with the prompt, and takes no time."""
    times: Timings = done.timings
    read, made = done.usage.prompt - done.usage.cached, done.usage.generated
    later = max(made - 1, 0) if times.decode_seconds else 0
    found = {
        "cache_n": done.usage.cached,
        "prompt_n": read,
        "prompt_ms": times.prompt_seconds * 1e3,
        "prompt_per_token_ms": times.prompt_seconds * 1e3 / max(read, 1),
        "prompt_per_second": read / times.prompt_seconds if times.prompt_seconds else 0.0,
        "predicted_n": made,
        "predicted_ms": times.decode_seconds * 1e3,
        "predicted_per_token_ms": times.decode_seconds * 1e3 / later if later else 0.0,
        "predicted_per_second": later / times.decode_seconds if later else 0.0,
    }
    if times.drafted:
        found |= {"draft_n": times.drafted, "draft_n_accepted": times.accepted}
    return found


def progress(delta: Progress) -> dict[str, Any]:
    """llama.cpp's progress of reading a prompt, with the timings so far."""
    shown = {
        "total": delta.total,
        "cache": delta.cached,
        "processed": delta.done,
        "time_ms": round(delta.seconds * 1e3),
    }
    usage = Usage(delta.done, delta.cached)
    so_far = Done(0, FinishReason.LENGTH, usage, Timings(delta.seconds))
    return {"prompt_progress": shown, "timings": timings(so_far)}


def keep_seconds(body: Fields) -> float | None:
    """How long the model stays loaded after the answer, None: as the server is set, negative: ever.

    By Ollama's `keep_alive`, a number of seconds or text such as "5m", or LM Studio's `ttl`.
    """
    value = body.get("keep_alive")
    if not isinstance(value, str):
        name = "ttl" if value is None else "keep_alive"
        return body.number(name, 0.0) if name in body else None
    text = value.strip()
    sign = -1.0 if text.startswith("-") else 1.0
    bare = text.lstrip("+-")
    if bare.replace(".", "", 1).isdecimal():
        return sign * float(bare)
    parts = _DURATION.findall(bare)
    if not parts or "".join(number + unit for number, unit in parts) != bare:
        body.fail("keep_alive", f"must be seconds or a duration such as '5m', not {value[:50]!r}.")
    return sign * sum(float(number) * _UNITS[unit] for number, unit in parts)
