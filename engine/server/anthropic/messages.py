"""The Messages API: answers, and counts of the tokens of a request."""

from __future__ import annotations

import json
from dataclasses import dataclass

from starlette.responses import Response
from starlette.routing import Route

from engine.messages import (
    Constraint,
    ReasoningPart,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)
from engine.server.anthropic.message_events import MessageEvents
from engine.server.carried import unpack
from engine.server.conversation import (
    Conversation,
    content_text,
    part_of,
    part_text,
    result,
)
from engine.server.fields import Fields
from engine.server.http import Call, Stream, json_response, post, respond
from engine.server.options import keep_seconds, schema_constraint, stop_strings
from engine.server.sampling import sampling
from engine.server.service import Service
from engine.server.tools import named_tool, tool
from engine.server.values import Wanted

_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_DOCUMENTS = ("document", "search_result")
# Ends of the types of blocks that record work of Anthropic's servers: nothing for the model to read.
_OF_SERVERS = ("redacted_thinking", "server_tool_use", "_tool_result", "container_upload")


@dataclass(frozen=True, slots=True)
class MessageRequest:
    """A request for a message."""

    wanted: Wanted
    hides_thoughts: bool
    streams: bool


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def messages(call: Call) -> Response | Stream:
        if "max_tokens" not in call.body:
            call.body.fail("max_tokens", "is missing; give the most tokens of the answer.")
        request = parse(call, may_lack_model=service.models.takes_any)
        writer = MessageEvents(hides_thoughts=request.hides_thoughts)
        return await respond(service.generate(request.wanted), writer, streams=request.streams)

    async def count_tokens(call: Call) -> Response:
        wanted = parse(call, may_lack_model=service.models.takes_any).wanted
        return json_response({"input_tokens": await service.count(wanted)})

    return [post("/v1/messages", messages), post("/v1/messages/count_tokens", count_tokens)]


def parse(call: Call, *, may_lack_model: bool = False) -> MessageRequest:
    """What a request for a message asks for; raises ApiError that names the field at fault."""
    body = call.body
    model = body.text("model") if may_lack_model else body.required_text("model")
    conversation = Conversation(call.pictures)
    conversation.system(content_text(body, "system"))
    for message in body.some_objects("messages"):
        _read_message(message, conversation)
    thinking, budget, effort = _thinking(body)
    tools = _tools(body)
    choice = body.object("tool_choice") or Fields({})
    display = (body.object("thinking") or Fields({})).text("display")
    wanted = Wanted(
        model=model,
        turns=conversation.turns(),
        sampling=sampling(body),
        max_tokens=body.integer("max_tokens", 0, 1),
        stop=stop_strings(body, "stop_sequences"),
        thinking=thinking,
        thinking_budget=budget,
        template_arguments={"reasoning_effort": effort} if effort else {},
        constraint=_constraint(body),
        tools=tools,
        tool_choice=_choice(choice, tools),
        parallel_tool_calls=not choice.flag("disable_parallel_tool_use"),
        keep_seconds=keep_seconds(body),
        exchange=call.exchange,
    )
    return MessageRequest(wanted, display == "omitted", body.flag("stream"))


def _read_message(message: Fields, conversation: Conversation) -> None:
    role = message.choice("role", ("user", "assistant", "system"), "user")
    if role == "system":  # newer agents put instructions between messages
        conversation.system(content_text(message))
    elif not isinstance(message.get("content"), list):
        text = message.text("content")
        if role == "user":
            conversation.user(text)
        else:
            conversation.assistant(TextPart(text))
    else:
        for block in message.objects("content"):
            _read_block(block, role, conversation)


def _read_block(block: Fields, role: str, conversation: Conversation) -> None:
    kind = block.required_text("type")
    if kind == "tool_use":
        arguments = json.dumps((block.object("input") or Fields({})).values, ensure_ascii=False)
        call = ToolCall(block.required_text("id"), block.required_text("name"), arguments)
        conversation.assistant(call)
    elif kind == "tool_result":
        found = result(block, conversation.pictures, read=_block_text)
        conversation.result(block.required_text("tool_use_id"), found)
    elif kind == "thinking":
        text = block.text("thinking") or unpack(block.text("signature")) or ""
        conversation.assistant(ReasoningPart(text))
    elif kind.endswith(_OF_SERVERS):
        return
    elif role == "user":
        is_document = kind in _DOCUMENTS
        found = TextPart(_document(block)) if is_document else part_of(block, conversation.pictures)
        conversation.user((found,))
    else:
        conversation.assistant(TextPart(part_text(block)))


def _block_text(block: Fields) -> str:
    """The text of a block in the result of a tool."""
    return _document(block) if block.text("type") in _DOCUMENTS else part_text(block)


def _document(block: Fields) -> str:
    """The text of a document or of a result of a search, with its title."""
    source = block.get("source")
    if isinstance(source, dict):
        fields = block.object("source") or Fields({})
        kind = fields.text("type")
        if kind not in ("text", "content"):
            block.fail("source.type", f"is {kind[:50]!r}; send the text of the document.")
        text = fields.text("data") if kind == "text" else content_text(fields)
    else:
        text = content_text(block)
    title = block.text("title")
    return f"{title}\n\n{text}" if title else text


def _tools(body: Fields) -> tuple[Tool, ...]:
    """The client's own tools; those that Anthropic's servers run are left out."""
    made: list[Tool] = []
    for one in body.objects("tools"):
        if one.text("type", "custom") == "custom":
            if "input_schema" not in one:
                one.fail("input_schema", "is missing; give a JSON schema.")
            made.append(tool(one, "input_schema"))
    return tuple(made)


def _choice(choice: Fields, offered: tuple[Tool, ...]) -> ToolChoice | str:
    """Whether a tool is called."""
    kind = choice.choice("type", ("auto", "any", "tool", "none"), "auto")
    if kind in ("any", "tool") and not offered:
        choice.fail("type", f"is {kind!r}, but `tools` has no tool of the client.")
    if kind == "tool":
        return named_tool(choice, offered)
    return ToolChoice.REQUIRED if kind == "any" else ToolChoice(kind)


def _thinking(body: Fields) -> tuple[bool | None, int | None, str]:
    """Whether the model thinks, with at most how many tokens, and with which effort."""
    effort = (body.object("output_config") or Fields({})).choice("effort", _EFFORTS, "")
    thinking = body.object("thinking")
    if thinking is None:
        return None, None, effort
    kind = thinking.choice("type", ("enabled", "disabled", "adaptive"), "enabled")
    if kind == "disabled":
        return False, None, ""
    budget = thinking.integer("budget_tokens", -1, 1)
    return True, budget if budget > 0 else None, effort


def _constraint(body: Fields) -> Constraint | None:
    """What the text must be, by the format of the output."""
    config = body.object("output_config") or Fields({})
    form = config.object("format") or body.object("output_format")
    if form is None:
        return None
    form.choice("type", ("json_schema",), "json_schema")
    return schema_constraint(form)
