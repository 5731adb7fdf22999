"""Parts of Office Open XML packages: their relations, title, and alternative content."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from app.documents.readers.package import Package, damaged, resolved


@dataclass(frozen=True, slots=True)
class Relation:
    """What a part refers to: another part, or an address outside of the package."""

    kind: str  # the last word of its type, such as `slide`
    target: str  # name of a part, or the address
    is_external: bool


def relations(package: Package, part: str) -> dict[str, Relation]:
    """The relations of a part by their ids; `""` is the package."""
    folder, name = posixpath.split(part)
    root = package.part(posixpath.join(folder, "_rels", f"{name}.rels"))
    made: dict[str, Relation] = {}
    for each in root if root is not None else ():
        target = each.get("Target", "")
        is_external = each.get("TargetMode") == "External"
        made[each.get("Id", "")] = Relation(
            each.get("Type", "").rpartition("/")[2],
            target if is_external else resolved(part, target),
            is_external,
        )
    return made


def main_part(package: Package, *usual: str) -> str:
    """The name of the package's main part; raises ExtractionError without one."""
    named = [
        each.target for each in relations(package, "").values() if each.kind == "officeDocument"
    ]
    for name in (*named, *usual):
        if name in package:
            return name
    raise damaged(f"the package has no {usual[0]}")


def part_of(found: dict[str, Relation], kind: str) -> str:
    """The part that is related in this way; "" without one."""
    return next((each.target for each in found.values() if each.kind == kind), "")


def title(package: Package) -> str:
    """The title that the author gave, or ""."""
    named = [
        each.target for each in relations(package, "").values() if each.kind == "core-properties"
    ]
    root = package.part(named[0] if named else "docProps/core.xml")
    return (root.findtext("dc:title") or "").strip() if root is not None else ""


def children(element: Element) -> Iterator[Element]:
    """The children; of alternatives the first, or the fallback where that has no text."""
    for child in element:
        if child.tag != "mc:AlternateContent":
            yield child
            continue
        options = [each for each in child if each.tag in ("mc:Choice", "mc:Fallback")]
        with_text = [each for each in options if any((t.text or "").strip() for t in each.iter())]
        if options:
            yield from children((with_text or options)[0])


def is_on(element: Element | None, key: str = "w:val") -> bool:
    """Whether a property that may be switched off is there and on."""
    return element is not None and element.get(key, "1") not in ("0", "false", "off", "none")


def number(text: str | None, default: int = 0) -> int:
    """A whole number of an attribute; the default if it is none."""
    try:
        return int(float(text)) if text else default
    except (ValueError, OverflowError):
        return default
