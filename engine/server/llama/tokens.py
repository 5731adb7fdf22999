"""llama.cpp's routes about tokens and prompts: tokenize, detokenize, apply-template."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from engine.messages import Tokenized
from engine.server.bridge import in_thread
from engine.server.http import Call, get, json_response, post
from engine.server.openai.messages import turns
from engine.server.options import template_arguments, thinking
from engine.server.service import Service
from engine.server.tools import tools
from engine.server.values import Wanted


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def tokenize(call: Call) -> Response:
        body = call.body
        text = body.text("prompt" if "prompt" in body else "content")  # vLLM's and llama.cpp's name
        with_pieces = body.flag("with_pieces")
        card, found = await service.tokenize(
            body.text("model"),
            text,
            adds_special=body.flag("add_special", body.flag("add_special_tokens")),
            parses_special=body.flag("parse_special", True),
            with_pieces=with_pieces,
        )
        context = card.loaded.context if card.loaded is not None else 0
        # A long text has millions of rows.
        return await in_thread(lambda: json_response(_rows(found) | {"max_model_len": context}))

    async def detokenize(call: Call) -> Response:
        body = call.body
        ids: list[int] = []
        for at, token in enumerate(body.items("tokens")):
            if isinstance(token, bool) or not isinstance(token, int):
                body.fail(f"tokens[{at}]", "must be a token id.")
            ids.append(token)
        text = await service.detokenize(body.text("model"), tuple(ids))
        return json_response({"content": text, "prompt": text})  # llama.cpp's and vLLM's name

    async def tokenizer_info(call: Call) -> Response:
        card = await service.models.find(call.request.query_params.get("model", ""))
        loaded = card.loaded
        return json_response(
            {
                "bos_token": (loaded.begin if loaded else "") or None,
                "eos_token": (loaded.end if loaded else "") or None,
                "chat_template": loaded.template_source if loaded else "",
                "model_max_length": loaded.context if loaded else 0,
            }
        )

    async def apply_template(call: Call) -> Response:
        body = call.body
        switch, budget = thinking(body)
        wanted = Wanted(
            model=body.text("model"),
            turns=turns(call),
            tools=tools(body),
            thinking=switch,
            thinking_budget=budget,
            template_arguments=template_arguments(body),
            begins_answer=body.flag("add_generation_prompt", True),
        )
        return json_response({"prompt": (await service.apply_template(wanted)).text})

    return [
        post("/tokenize", tokenize),
        post("/detokenize", detokenize),
        post("/apply-template", apply_template),
        get("/tokenizer_info", tokenizer_info),
    ]


def _rows(found: Tokenized) -> dict[str, Any]:
    """The tokens of a text, with their pieces where they were asked for."""
    tokens: list[Any] = list(found.ids)
    if found.pieces:
        pairs = zip(found.ids, found.pieces, strict=True)
        tokens = [{"id": id, "piece": _piece(piece.encode("latin-1"))} for id, piece in pairs]
    return {"tokens": tokens, "count": len(tokens)}


def _piece(piece: bytes) -> str | list[int]:
    """A token as text, or as bytes where they are no characters alone."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
