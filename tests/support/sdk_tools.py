"""An honest server of tools, made with the SDK: it speaks both generations of the protocol."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, Resolve, Sample
from mcp.types import CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("Honest", version="2.0")


class Trip(BaseModel):
    """What the form asks for."""

    city: str = "Rome"
    days: int


def ask() -> Elicit[Trip]:
    """A form."""
    return Elicit("Where to?", Trip)


def sample() -> Sample:
    """A question to the user's model."""
    return Sample(
        [SamplingMessage(role="user", content=TextContent(text="Name it."))], max_tokens=9
    )


@server.tool()
def add(left: int, right: int) -> int:
    """It adds two numbers."""
    return left + right


@server.tool()
def book(trip: Annotated[Trip, Resolve(ask)]) -> str:
    """It books a trip."""
    return f"{trip.days} days in {trip.city}"


@server.tool()
def name(found: Annotated[CreateMessageResult, Resolve(sample)]) -> str:
    """It names something."""
    return f"named {found.content.text}" if isinstance(found.content, TextContent) else "?"


@server.tool()
async def count(context: Context[Any, Any]) -> str:
    """It counts, and reports it."""
    for step in (1, 2):
        await context.report_progress(step, 2, "counting")
    return "counted"


@server.tool()
async def grow(context: Context[Any, Any]) -> str:
    """It adds a tool."""
    server.add_tool(lambda: "late", name="late", description="It was not there before.")
    await context.notify_tools_changed()
    return "grown"


@server.resource("memo://one", mime_type="text/plain")
def memo() -> str:
    """A memo."""
    return "Buy milk."


@server.resource("memo://{day}/raw", mime_type="application/octet-stream")
def raw(day: str) -> bytes:
    """A memo as bytes."""
    return day.encode()


@server.prompt()
def greet(who: str) -> str:
    """It greets."""
    return f"Greet {who}."


if __name__ == "__main__":
    server.run()
