"""Discovery of model servers on this machine: offered to the user, never used unasked.

Only the usual ports of known programs are asked, all at once, and nothing is sent but a question
for the list of models.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from app.domain.connection import SERVER_NAMES, Connection, ServerKind
from app.domain.remote_fault import RemoteFaultKind
from app.engines.remote import addresses
from app.engines.remote.errors import RemoteError
from app.engines.remote.exchange import Allow, Server, Times
from app.engines.remote.models import Found, look
from app.net.ledger import Purpose

PORTS = {
    11434: ServerKind.OLLAMA,
    1234: ServerKind.LM_STUDIO,
    8080: ServerKind.LLAMA_SERVER,
    8000: ServerKind.VLLM,
}
_TIMES = Times(connect=1.0, short=2.0)


@dataclass(frozen=True, slots=True)
class Discovered:
    """A server that answers on this machine."""

    name: str
    found: Found
    needs_key: bool = False  # it does not say which models it has without one


async def discover(
    allow: Allow, ports: dict[int, ServerKind] | None = None, times: Times = _TIMES
) -> tuple[Discovered, ...]:
    """The servers that answer, by their ports; other programs on these ports are left out."""
    asked = PORTS if ports is None else ports
    answers = await asyncio.gather(
        *(_ask(port, kind, allow, times) for port, kind in asked.items())
    )
    return tuple(each for each in answers if each is not None)


async def _ask(port: int, usual: ServerKind, allow: Allow, times: Times) -> Discovered | None:
    """The server at a port; None if there is none."""
    address = f"http://127.0.0.1:{port}/v1"
    server = Server(Connection("", "", address), allow, times=times)
    try:
        found = await look(server, Purpose.DISCOVERY)
    except RemoteError as error:
        if error.fault.kind is not RemoteFaultKind.NEEDS_KEY:
            return None
        found = Found(address, ServerKind.OPENAI, ())
        return Discovered(SERVER_NAMES.get(usual, server.name), found, needs_key=True)
    name = SERVER_NAMES.get(found.kind) or addresses.server_name(address)
    return Discovered(name, replace(found, models=tuple(m for m in found.models if m.chats)))
