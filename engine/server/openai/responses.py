"""The Responses API, stateless: answers, compaction of a conversation, and counts of its tokens."""

from __future__ import annotations

import json
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from engine.messages import (
    ImagePart,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCall,
    ToolChoice,
)
from engine.server.carried import pack, unpack
from engine.server.conversation import (
    Conversation,
    call_arguments,
    content,
    content_text,
    parts_of,
    result,
)
from engine.server.errors import ApiError
from engine.server.fields import Fields
from engine.server.http import Call, Stream, json_response, post, respond
from engine.server.openai.response_events import EventOptions, ResponseEvents, usage_object
from engine.server.options import format_constraint, keep_seconds, model_name, thinking
from engine.server.pictures import data_uri
from engine.server.sampling import sampling
from engine.server.service import Service, new_id
from engine.server.tools import tool_choice, tools
from engine.server.values import Content, Done, Wanted

_SUMMARIZE = (
    "Write a summary of this conversation for yourself, so that you can go on from the summary "
    "alone: the goal, decisions, facts, names of files, results of tools, what is done and what "
    "is open. Write only the summary."
)
_SUMMARY = "Summary of the conversation so far:\n"
# Ends of the types of items that record work of OpenAI's servers: nothing for the model to read.
_OF_SERVERS = ("_call", "_call_output", "_list_tools", "_approval_request", "_approval_response")
_NEEDS_STATE = ("previous_response_id", "conversation", "prompt")


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """A request for a response."""

    wanted: Wanted
    events: EventOptions
    streams: bool


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def responses(call: Call) -> Response | Stream:
        request = parse(call, may_lack_model=service.models.takes_any)
        writer = ResponseEvents(request.events)
        return await respond(service.generate(request.wanted), writer, streams=request.streams)

    async def compact(call: Call) -> Response:
        wanted = parse_compaction(call)
        texts: list[str] = []
        usage: dict[str, Any] = {}
        async with aclosing(service.generate(wanted)) as deltas:
            async for delta in deltas:
                if isinstance(delta, Content):
                    texts.append(delta.text)
                elif isinstance(delta, Done):
                    usage = usage_object(delta.usage)
        summary = "".join(texts).strip()
        if not summary:
            raise ApiError(
                500, "The model wrote no summary; try again or start a new conversation."
            )
        item = {"id": new_id("cmp_"), "type": "compaction", "encrypted_content": pack(summary)}
        return json_response(
            {
                "id": new_id("resp_"),
                "object": "response.compaction",
                "created_at": int(time.time()),
                "output": [*_user_messages(call), item],
                "usage": usage,
            }
        )

    async def input_tokens(call: Call) -> Response:
        wanted = parse(call, may_lack_model=service.models.takes_any).wanted
        tokens = await service.count(wanted)
        return json_response({"object": "response.input_tokens", "input_tokens": tokens})

    return [
        post("/v1/responses", responses),
        post("/responses", responses),
        post("/v1/responses/compact", compact),
        post("/v1/responses/input_tokens", input_tokens),
    ]


def parse(call: Call, *, may_lack_model: bool = False) -> ResponseRequest:
    """What a request for a response asks for; raises ApiError that names the field at fault."""
    body = call.body
    model = model_name(call, may_lack=may_lack_model)
    for name in _NEEDS_STATE:
        if name in body:
            body.fail(name, "needs stored responses; send the whole conversation in `input`.")
    if body.flag("background"):
        body.fail("background", "must be false: this server stores no responses.")
    conversation = Conversation(call.pictures)
    conversation.system(body.text("instructions"))
    _read_input(body, conversation)
    if not conversation.turns():
        body.fail("input", "is empty; give a text or a list of items.")
    include = body.texts("include")
    reasoning = body.object("reasoning") or Fields({})
    effort = reasoning.text("effort")
    switch, budget = thinking(body)
    top = body.integer("top_logprobs", 0, 0, 20)
    logprobs = max(top, 1) if "message.output_text.logprobs" in include else top
    offered, choice = tool_choice(body, tools(body))
    wanted = Wanted(
        model=model,
        turns=conversation.turns(),
        sampling=sampling(body),
        max_tokens=body.integer("max_output_tokens", 0, 1),
        thinking=switch,
        thinking_budget=budget,
        template_arguments={"reasoning_effort": effort} if effort else {},
        constraint=format_constraint((body.object("text") or Fields({})).object("format")),
        logprobs=logprobs,
        tools=offered,
        tool_choice=choice,
        parallel_tool_calls=body.flag("parallel_tool_calls", True),
        drops_oldest=body.choice("truncation", ("auto", "disabled"), "disabled") == "auto",
        keep_seconds=keep_seconds(body),
        reports_progress=body.flag("return_progress") and body.flag("stream"),
        exchange=call.exchange,
    )
    summary = reasoning.text("summary") or reasoning.text("generate_summary")
    options = EventOptions(
        _echoed(body, wanted, effort, summary),
        summarizes=bool(summary),
        top_logprobs=top,
        packs="reasoning.encrypted_content" in include,
        times=body.flag("timings_per_token"),
    )
    return ResponseRequest(wanted, options, body.flag("stream"))


def parse_compaction(call: Call) -> Wanted:
    """The request for the summary that a conversation is compacted to; raises ApiError."""
    body = call.body
    model = model_name(call)
    if "previous_response_id" in body:
        body.fail("previous_response_id", "needs stored responses; send the whole conversation.")
    conversation = Conversation(call.pictures)
    conversation.system(body.text("instructions"))
    _read_input(body, conversation)
    if not conversation.turns():
        body.fail("input", "is empty; give the conversation to compact.")
    conversation.user(_SUMMARIZE)
    return Wanted(model=model, turns=conversation.turns(), thinking=False, exchange=call.exchange)


def _echoed(body: Fields, wanted: Wanted, effort: str, summary: str) -> dict[str, Any]:
    """The fields of the response that repeat the request, with the default where it is silent."""
    text = dict((body.object("text") or Fields({})).values)
    choice = wanted.tool_choice
    return {
        "model": wanted.model,
        "instructions": body.text("instructions") or None,
        "previous_response_id": None,
        "tools": [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": json.loads(tool.schema),
                "strict": True,  # arguments are always as the schema says
            }
            for tool in wanted.tools
        ],
        "tool_choice": choice.value
        if isinstance(choice, ToolChoice)
        else {"type": "function", "name": choice},
        "parallel_tool_calls": wanted.parallel_tool_calls,
        "text": {"format": {"type": "text"}} | text,
        "reasoning": {"effort": effort or None, "summary": summary or None},
        "top_logprobs": body.integer("top_logprobs", 0),
        "max_output_tokens": wanted.max_tokens or None,
        "max_tool_calls": body.get("max_tool_calls"),
        "truncation": "auto" if wanted.drops_oldest else "disabled",
        "store": False,
        "background": False,
        "service_tier": "default",
        "metadata": body.get("metadata") or {},
        "safety_identifier": body.get("safety_identifier"),
        "prompt_cache_key": body.get("prompt_cache_key"),
    }


def _read_input(body: Fields, conversation: Conversation) -> None:
    """Add the items of `input`."""
    if not isinstance(body.get("input"), list):
        if text := body.text("input"):
            conversation.user(text)
        return
    for item in body.objects("input"):
        _read_item(item, conversation)


def _read_item(item: Fields, conversation: Conversation) -> None:
    kind = item.text("type", "message")
    if kind == "message":
        match item.choice("role", ("user", "assistant", "system", "developer"), "user"):
            case "user":
                conversation.user(content(item, conversation.pictures))
            case "assistant":
                conversation.assistant(TextPart(content_text(item)))
            case _:
                conversation.system(content_text(item))
    elif kind == "reasoning":
        conversation.assistant(ReasoningPart(_reasoning(item)))
    elif kind in ("function_call", "custom_tool_call"):
        arguments = item.text("arguments")
        if kind == "custom_tool_call":
            arguments = json.dumps({"input": item.text("input")})
        name = item.required_text("name")
        call_id = item.required_text("call_id")
        conversation.assistant(ToolCall(call_id, name, call_arguments(arguments)))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        found = result(item, conversation.pictures, "output")
        conversation.result(item.text("call_id"), found, item.text("name"))
    elif kind == "compaction":
        summary = unpack(item.required_text("encrypted_content"))
        if summary is None:
            item.fail("encrypted_content", "was not made by this server.")
        conversation.user(_SUMMARY + summary)
    elif kind == "item_reference":
        item.fail("type", "needs stored responses; send the item itself.")
    elif not kind.endswith(_OF_SERVERS):
        item.fail("type", f"is {kind[:50]!r}, which this server does not know.")


def _reasoning(item: Fields) -> str:
    """The reasoning of an answer as the client gives it back: whole, packed, or its summary."""
    if text := content_text(item):
        return text
    packed = item.text("encrypted_content")
    return (unpack(packed) if packed else None) or content_text(item, "summary")


def _user_messages(call: Call) -> list[dict[str, Any]]:
    """The user's messages in `input`, which a compacted conversation keeps."""
    conversation = Conversation(call.pictures)
    _read_input(call.body, conversation)
    return [
        {
            "id": new_id("msg_"),
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [_given_back(part) for part in parts_of(turn)],
        }
        for turn in conversation.turns()
        if turn.role is Role.USER and not turn.text.startswith(_SUMMARY)
    ]


def _given_back(part: Part) -> dict[str, Any]:
    """A part of a user's message as one of `input`."""
    if isinstance(part, ImagePart):
        return {"type": "input_image", "image_url": data_uri(part)}
    assert isinstance(part, TextPart), "the user writes texts and sends pictures"
    return {"type": "input_text", "text": part.text}
