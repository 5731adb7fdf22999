"""Texts with version and date: the description for software centres, and the manual page.

The description (AppStream) has the release notes of the changelog.
"""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from environment import ROOT
from release_notes import Release, build_time, releases, version

ID = "app.tokonoma.Tokonoma"
_HERE = ROOT / "packaging" / "linux"


def text(found: Sequence[Release] | None = None) -> str:
    """The file's text; `found` are the releases, by default those of the changelog."""
    root = ET.fromstring((_HERE / "tokonoma.metainfo.xml").read_text(encoding="utf-8"))
    listed = ET.SubElement(root, "releases")
    for release in found if found is not None else releases():
        each = ET.SubElement(listed, "release", version=release.version, date=_date())
        items = ET.SubElement(ET.SubElement(each, "description"), "ul")
        for change in release.changes:
            _add_words(ET.SubElement(items, "li"), change)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def manual() -> str:
    """The manual page in the language of man."""
    text = (_HERE / "tokonoma.1").read_text(encoding="utf-8")
    return text.replace("@VERSION@", version()).replace("@DATE@", _date())


def _date() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(build_time()))


def _add_words(item: ET.Element, change: str) -> None:
    """Add a line of Markdown; the one mark that changes have is that of code."""
    parts = re.split(r"`([^`]+)`", change)
    item.text = parts[0]
    for code, rest in zip(parts[1::2], parts[2::2], strict=True):
        element = ET.SubElement(item, "code")
        element.text, element.tail = code, rest
