"""The AppStream description that software centres show, with the release notes of the changelog."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from environment import ROOT
from release_notes import Release, build_time, releases

ID = "app.tokonoma.Tokonoma"
TEMPLATE = ROOT / "packaging" / "linux" / "tokonoma.metainfo.xml"


def text(found: Sequence[Release] | None = None) -> str:
    """The file's text; `found` are the releases, by default those of the changelog."""
    root = ET.fromstring(TEMPLATE.read_text(encoding="utf-8"))
    date = time.strftime("%Y-%m-%d", time.gmtime(build_time()))
    listed = ET.SubElement(root, "releases")
    for release in found if found is not None else releases():
        each = ET.SubElement(listed, "release", version=release.version, date=date)
        items = ET.SubElement(ET.SubElement(each, "description"), "ul")
        for change in release.changes:
            _add_words(ET.SubElement(items, "li"), change)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _add_words(item: ET.Element, change: str) -> None:
    """Add a line of Markdown; the one mark that changes have is that of code."""
    parts = re.split(r"`([^`]+)`", change)
    item.text = parts[0]
    for code, rest in zip(parts[1::2], parts[2::2], strict=True):
        element = ET.SubElement(item, "code")
        element.text, element.tail = code, rest
