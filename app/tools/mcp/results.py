"""What a tool, a resource or a prompt of a server contained, as text and files."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
from collections.abc import Iterable
from typing import Any

from mcp import types

from app.domain.tools import ToolFile, ToolOutcome
from app.tools.mcp.hooks import ResourceContent
from app.tools.mcp.log import visible

_MOST_LABEL = 200  # letters of a name, address or type
_ENDINGS = {"audio/wav": ".wav", "audio/webm": ".weba"}  # which `mimetypes` has not everywhere

Block = (
    types.TextContent
    | types.ImageContent
    | types.AudioContent
    | types.ResourceLink
    | types.EmbeddedResource
)


def outcome(result: types.CallToolResult) -> ToolOutcome:
    """The result of a call: its texts joined, its data as JSON, one line for each file."""
    text, files = parts(result.content)
    if result.structured_content is not None:
        whole = json.dumps(result.structured_content, ensure_ascii=False)
        if not any(_is_same(each, result.structured_content) for each in result.content):
            text = f"{text}\n{whole}" if text else whole
    return ToolOutcome(text or "The tool returned no content.", result.is_error, files)


def parts(blocks: Iterable[Block]) -> tuple[str, tuple[ToolFile, ...]]:
    """The text of blocks, and the files among them."""
    lines: list[str] = []
    files: list[ToolFile] = []
    for block in blocks:
        match block:
            case types.TextContent():
                lines.append(block.text)
            case types.ImageContent():
                lines.append(_file("Picture", block.mime_type, block.data, files))
            case types.AudioContent():
                lines.append(_file("Sound", block.mime_type, block.data, files))
            case types.ResourceLink():
                lines.append(_link(block))
            case types.EmbeddedResource():
                lines.append(_embedded(block.resource, files))
    return "\n".join(lines), tuple(files)


def contents(result: types.ReadResourceResult) -> tuple[ResourceContent, ...]:
    """What was read of a resource; raises ValueError for data that is no base64."""
    made: list[ResourceContent] = []
    for each in result.contents:
        kind = visible(each.mime_type or "", _MOST_LABEL)
        uri = visible(str(each.uri), _MOST_LABEL)
        if isinstance(each, types.TextResourceContents):
            made.append(ResourceContent(uri, kind or "text/plain", text=each.text))
        else:
            made.append(ResourceContent(uri, kind, data=_decoded(each.blob)))
    return tuple(made)


def _file(what: str, kind: str, data: str, files: list[ToolFile], name: str = "") -> str:
    """The line of a file, which is put aside."""
    kind = visible(kind, _MOST_LABEL)
    try:
        content = _decoded(data)
    except ValueError:
        return f"[{what}, {kind}: its data is damaged]"
    ending = _ENDINGS.get(kind) or mimetypes.guess_extension(kind) or ""
    files.append(ToolFile(name or f"{what.lower()}-{len(files) + 1}{ending}", kind, content))
    return f"[{what}, {kind}, {_size(len(content))}]"


def _link(block: types.ResourceLink) -> str:
    size = f", {_size(block.size)}" if block.size and block.size > 0 else ""
    kind = f", {visible(block.mime_type, _MOST_LABEL)}" if block.mime_type else ""
    name, uri = (visible(each, _MOST_LABEL) for each in (block.name, str(block.uri)))
    return f"[Resource {name}, {uri}{kind}{size}]"


def _embedded(
    found: types.TextResourceContents | types.BlobResourceContents, files: list[ToolFile]
) -> str:
    uri = visible(str(found.uri), _MOST_LABEL)
    kind = found.mime_type or "application/octet-stream"
    if isinstance(found, types.BlobResourceContents):
        return _file(f"Resource {uri}", kind, found.blob, files, uri.rsplit("/", 1)[-1][:100])
    return f"[Resource {uri}]\n{found.text}"


def _size(count: int) -> str:
    return f"{count:,} bytes" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def _decoded(data: str) -> bytes:
    """The bytes of base64; raises ValueError."""
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error


def _is_same(block: Block, data: Any) -> bool:
    """Whether a block is the same data, which servers repeat as text for older clients."""
    if not isinstance(block, types.TextContent):
        return False
    try:
        value = json.loads(block.text)
    except (ValueError, RecursionError):
        value = block.text
    return value == data or data == {"result": value} or data == {"result": block.text}
