"""Bill of materials of a bundle in CycloneDX 1.6 (JSON): its parts, versions, licences, origins.

Inside a part are those that are compiled into it. bundle.spec writes it into the bundle beside the
licence texts. The same parts and version give the same bytes. Source of the format: ECMA-424.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from compiled_in import Inner
from licences import Component

FILE = "bom.cdx.json"  # in the folder of licences
SPECIFICATION = "1.6"
_ID = r"(?:MIT|0BSD|Zlib|[A-Za-z][\w.]*-[\w.+-]+)"  # short names of licences as SPDX writes them
_EXPRESSION = re.compile(rf"{_ID}(?: (?:AND|OR|WITH) {_ID})*")


def bill(parts: Iterable[Component], version: str) -> dict[str, Any]:
    """The document for the bundle of a version of the app."""
    listed = [_component(part) for part in parts if part.name != "Tokonoma"]
    body: dict[str, Any] = {
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "tokonoma",
                "name": "Tokonoma",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": listed,
        "dependencies": [{"ref": "tokonoma", "dependsOn": [each["bom-ref"] for each in listed]}],
    }
    number = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(body, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": SPECIFICATION, "version": 1}
    return {**head, "serialNumber": f"urn:uuid:{number}", **body}


def write(parts: Iterable[Component], version: str, folder: Path) -> Path:
    """Write the document into a folder; returns its path."""
    path = folder / FILE
    text = json.dumps(bill(parts, version), indent=1, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")
    return path


def _component(part: Component) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": part.kind,
        "bom-ref": part.origin or f"{part.kind}:{part.name}",
        "name": part.name,
        "licenses": [_licence(part.licence)],
    }
    if part.inside:
        made["components"] = [_inner(each, made["bom-ref"]) for each in part.inside]
    if part.version:
        made["version"] = part.version
    if part.origin:
        made["purl"] = part.origin
    if part.sha256:
        made["hashes"] = [{"alg": "SHA-256", "content": part.sha256}]
    return made


def _inner(inner: Inner, parent: str) -> dict[str, Any]:
    """A part that is compiled into another one; what its wheel does not say is left out."""
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"{parent}>{inner.name}@{inner.version}",
        "name": inner.name,
    }
    if inner.version:
        made["version"] = inner.version
    if inner.licence:
        made["licenses"] = [_licence(inner.licence)]
    if inner.origin:
        made["purl"] = inner.origin
    return made


def _licence(text: str) -> dict[str, Any]:
    """An SPDX expression where the text has the form of one, else a name."""
    if _EXPRESSION.fullmatch(text):
        return {"expression": text}
    return {"license": {"name": text}}
