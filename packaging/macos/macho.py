"""Reader of Mach-O files, for checks of what is built for macOS on other systems.

It reads what decides whether a Mac loads a library: processor, oldest system, the names it is
linked with, and whether the hashes of an ad-hoc signature fit the file. Processors of Apple end a
program whose code has other hashes. Source: mach-o/loader.h and cs_blobs.h of Apple's xnu.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

_MAGIC_64 = 0xFEEDFACF
_PROCESSORS = {0x0100_000C: "aarch64", 0x0100_0007: "x86_64"}
_MACOS = 1
_LOAD_DYLIB, _ID_DYLIB, _LOAD_WEAK, _REEXPORT = 0x0C, 0x0D, 0x8000_0018, 0x8000_001F
_CODE_SIGNATURE, _BUILD_VERSION, _RPATH = 0x1D, 0x32, 0x8000_001C
_SUPER_BLOB, _CODE_DIRECTORY = 0xFADE_0CC0, 0xFADE_0C02
_AD_HOC, _SHA256 = 0x2, 2


class NotMachO(Exception):
    """The file is no 64-bit Mach-O file of one processor, or is cut off; the message says which."""


@dataclass(frozen=True)
class MachO:
    """What a Mach-O file says of itself."""

    architecture: str  # "aarch64", "x86_64", or the number of another
    oldest_system: str  # of macOS, such as "13.0"; empty when it is for another system
    name: str  # of a library, as programs that are linked with it look for it
    libraries: tuple[str, ...]  # that it is linked with
    search_paths: tuple[str, ...]
    signature: str  # "ad-hoc", "certificate", "none", or "broken: " and the first wrong page


def read(path: Path) -> MachO:
    """Read a file. Raises OSError and NotMachO."""
    data = path.read_bytes()
    try:
        return _read(path.name, data)
    except (struct.error, ValueError) as error:
        raise NotMachO(f"{path.name} is cut off or damaged: {error}") from error


def _read(name: str, data: bytes) -> MachO:
    magic, processor, _, _, count, _ = struct.unpack_from("<6I", data)
    if magic != _MAGIC_64:
        raise NotMachO(f"{name} is no 64-bit Mach-O file of one processor")
    system, own, signature = "", "", "none"
    libraries: list[str] = []
    search_paths: list[str] = []
    at = 32
    for _ in range(count):
        command, size = struct.unpack_from("<2I", data, at)
        if size < 8 or at + size > len(data):
            raise ValueError(f"load command {command:#x} has {size} bytes")
        body = data[at : at + size]
        if command in (_LOAD_DYLIB, _LOAD_WEAK, _REEXPORT):
            libraries.append(_text(body))
        elif command == _ID_DYLIB:
            own = _text(body)
        elif command == _RPATH:
            search_paths.append(_text(body))
        elif command == _BUILD_VERSION:
            kind, version = struct.unpack_from("<2I", body, 8)
            system = f"{version >> 16}.{version >> 8 & 0xFF}" if kind == _MACOS else ""
        elif command == _CODE_SIGNATURE:
            signature = _signature(data, *struct.unpack_from("<2I", body, 8))
        at += size
    architecture = _PROCESSORS.get(processor, f"{processor:#x}")
    return MachO(architecture, system, own, tuple(libraries), tuple(search_paths), signature)


def _text(body: bytes) -> str:
    """The string of a load command, whose offset follows its size."""
    (offset,) = struct.unpack_from("<I", body, 8)
    return body[offset:].split(b"\0")[0].decode()


def _signature(data: bytes, start: int, size: int) -> str:
    """Kind of a signature, after comparing the hash of each page of code with the file."""
    blob = data[start : start + size]
    magic, _, count = struct.unpack_from(">3I", blob)
    if magic != _SUPER_BLOB:
        return "broken: it does not start as one"
    slots = [struct.unpack_from(">2I", blob, 12 + 8 * place) for place in range(count)]
    directory = next((blob[at:] for kind, at in slots if kind == 0), b"")
    fields = struct.unpack_from(">9I4B", directory)
    magic, _, _, flags, hashes, _, _, pages, limit, length, kind, _, shift = fields
    if magic != _CODE_DIRECTORY or kind != _SHA256:
        return "broken: it has no hashes of SHA-256"
    if limit != start:
        return f"broken: it covers {limit:,} bytes of {start:,}"
    for page in range(pages):
        begin = page << shift
        found = hashlib.sha256(data[begin : min(begin + (1 << shift), limit)]).digest()
        if found != directory[hashes + page * length :][:length]:
            return f"broken: page {page} has changed"
    if pages << shift < limit:
        return f"broken: it covers {pages} pages of {limit:,} bytes"
    return "ad-hoc" if flags & _AD_HOC else "certificate"


def complaints(path: Path, architecture: str, oldest_system: str) -> list[str]:
    """Why a Mac of this processor and system would not load a library of ours, in sentences."""
    try:
        facts = read(path)
    except (OSError, NotMachO) as error:
        return [f"{error}."]
    found: list[str] = []
    if facts.architecture != architecture:
        found.append(f"It is for {facts.architecture}, not {architecture}.")
    if facts.oldest_system != oldest_system:
        found.append(
            f"It needs macOS {facts.oldest_system or 'of no version'}, not {oldest_system}."
        )
    if facts.name != f"@rpath/{path.name}":
        found.append(f"Its name is {facts.name!r}, not '@rpath/{path.name}'.")
    others = [name for name in facts.libraries if name != "/usr/lib/libSystem.B.dylib"]
    if others:
        found.append(f"It needs {', '.join(others)}, which are not of the system.")
    if facts.search_paths:
        found.append(f"It looks for libraries in {', '.join(facts.search_paths)}.")
    if facts.signature != "ad-hoc":
        found.append(f"Its signature is not ad-hoc but {facts.signature}.")
    return found
