"""A client for the conformance suite of the Model Context Protocol, driving the app's McpServers.

The suite starts it for each scenario, with the address of its server as the last word:
`npx @modelcontextprotocol/conformance client --command "python tests/drivers/mcp_conformance_client.py"
--suite all`. It opens pages as a browser would that is logged in already.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from app.domain.tools import CallContext, ToolError
from app.system.secret_store import NoKeyring, SecretStore
from app.tools.mcp.entries import EntryStore
from app.tools.mcp.entry import ServerEntry
from app.tools.mcp.hooks import Hooks, SamplingRequest, ServerState
from app.tools.mcp.servers import McpServers

_VALUES: dict[str, Any] = {"string": "text", "number": 5, "integer": 5, "boolean": True}


def _no_keyring() -> Any:
    raise NoKeyring("none in this test")


async def _fill(server: str, message: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Accept a form as it is: its defaults are filled in."""
    fields = schema.get("properties", {}).items()
    return {name: each["default"] for name, each in fields if "default" in each}


async def _answer(server: str, request: SamplingRequest) -> str:
    return "An answer."


async def _browse(server: str, address: str, why: str) -> bool:
    """Follow the login's redirects, which end at the listener of the app."""

    def visit() -> None:
        with urllib.request.urlopen(address, timeout=10) as page:
            page.read()

    asyncio.get_running_loop().run_in_executor(None, visit)
    return True


def _arguments(schema: str) -> dict[str, Any]:
    properties = json.loads(schema).get("properties", {})
    return {name: _VALUES.get(each.get("type"), "text") for name, each in properties.items()}


async def main() -> int:
    """Start the server, call all its tools, read all its resources and prompts, stop it."""
    address, scenario = sys.argv[-1], os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        servers = McpServers(
            EntryStore(Path(folder) / "servers.json"),
            SecretStore(Path(folder) / "keys.json", _no_keyring),
            Hooks(_fill, _answer, _browse),
        )
        given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
        entry = servers.entries.save(
            ServerEntry(
                "",
                "Conformance",
                address=address,
                client_id=given.get("client_id", ""),
                client_secret=given.get("client_secret", ""),
            )
        )
        status = await servers.start(entry.id)
        print(scenario, status)
        failed = status.state is not ServerState.READY
        for spec in servers.tools():
            try:
                print(await servers.call(spec.id, _arguments(spec.schema), CallContext(1)))
            except ToolError as error:
                print("error:", error)
        if not failed:
            try:
                for resource in await servers.resources(entry.id):
                    print(await servers.read_resource(entry.id, resource.uri))
                for prompt in await servers.prompts(entry.id):
                    print(await servers.prompt(entry.id, prompt.name, {}))
            except ToolError as error:
                print("error:", error)
        await servers.close()
        print(*servers.log(entry.id), sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
