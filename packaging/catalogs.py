"""Catalogs of the window's languages: extracts the strings, updates every catalog, counts gaps.

Run by .venv's interpreter, which has Babel: `packaging/dev.py words`. The header of a catalog has
no dates, so that a run that finds nothing new changes no file.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.pofile import read_po, write_po

import window_texts

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "resources" / "locale"
TEMPLATE = FOLDER / "tokonoma.pot"
WIDTH = 100  # characters of a line
# The languages of a release; each translates every string.
LANGUAGES = ("ar", "de", "es", "fr", "ja", "ko", "pt_BR", "ru", "zh_CN")
Key = str | tuple[str, str]  # a string, or its singular and plural


class Clash(Exception):
    """One string has two plurals, or one and none; gettext knows a string by its singular alone."""


def languages() -> list[str]:
    """The languages that have a catalog."""
    return sorted(path.parent.parent.name for path in FOLDER.glob("*/LC_MESSAGES/tokonoma.po"))


def catalog_file(language: str) -> Path:
    """The catalog of a language, as `app.system.translation` reads it."""
    return FOLDER / language / "LC_MESSAGES" / "tokonoma.po"


def extracted(root: Path = ROOT) -> Catalog:
    """The template: every string of the window in the sources, with the files it is in.

    Raises Clash.
    """
    plurals: dict[str, str] = {}
    places: dict[str, list[str]] = {}
    single: set[str] = set()
    for name, text in window_texts.shown_texts(root):
        if text.plural and plurals.setdefault(text.text, text.plural) != text.plural:
            raise Clash(
                f"{name}:{text.line}: {text.text!r} has another plural elsewhere, "
                f"{plurals[text.text]!r}. Word one of the two otherwise."
            )
        files = places.setdefault(text.text, [])
        if name not in files:
            files.append(name)
        if not text.plural:
            single.add(text.text)
    if both := single & plurals.keys():
        raise Clash(f"{min(both)!r} is used with a plural and without. Word one of them otherwise.")
    template = Catalog(charset="utf-8", fuzzy=False)
    for text, files in places.items():
        key = (text, plurals[text]) if text in plurals else text
        template.add(key, locations=[(file, 0) for file in files])
    return template


def keys(catalog: Catalog) -> set[Key]:
    """The strings of a catalog, without its header."""
    ids = (message.id for message in catalog if message.id)
    return {one if isinstance(one, str) else (one[0], one[1]) for one in ids}


def read(path: Path, language: str | None = None) -> Catalog:
    """Read a catalog or the template."""
    with path.open("rb") as file:
        return read_po(file, locale=language)


def write(path: Path, catalog: Catalog) -> None:
    """Write a catalog or the template, with a header of our own."""
    for message in catalog:  # Babel takes the "% o" of "{percent} % of" for a placeholder
        message.flags.discard("python-format")
    body = io.BytesIO()
    write_po(
        body, catalog, width=WIDTH, omit_header=True, include_lineno=False, ignore_obsolete=True,
        sort_by_file=True,
    )  # fmt: skip
    header = ["MIME-Version: 1.0", "Content-Type: text/plain; charset=utf-8"]
    header.append("Content-Transfer-Encoding: 8bit")
    if catalog.locale is not None:
        header = [f"Language: {catalog.locale}", *header, f"Plural-Forms: {catalog.plural_forms}"]
    lines = ['msgid ""', 'msgstr ""', *(f'"{line}\\n"' for line in header), "", ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines) + body.getvalue().decode().rstrip("\n") + "\n"
    path.write_text(text, encoding="utf-8", newline="\n")


def update() -> None:
    """Write the template, and bring every catalog to its strings.

    A string that has changed a little keeps its translation, marked fuzzy: English is shown until
    it was looked at. Translations of strings that are gone are removed.
    """
    template = extracted()
    write(TEMPLATE, template)
    for language in languages():
        catalog = read(catalog_file(language), language)
        catalog.update(template)
        write(catalog_file(language), catalog)


def lacking(language: str, template: Catalog | None = None) -> list[Message]:
    """The strings of the window that a language does not translate, or not yet surely.

    `template` has those of the sources, if they were extracted already.
    """
    catalog = read(catalog_file(language), language)
    found: list[Message] = []
    for message in template or extracted():
        if not message.id:
            continue
        known = catalog.get(message.id)
        forms = known.string if known else ""
        forms = forms if isinstance(forms, tuple | list) else (forms,)
        if known is None or known.fuzzy or known.id != message.id or not all(forms):
            found.append(message)
    return found


def is_current() -> bool:
    """Whether the template has exactly the strings of the sources."""
    return TEMPLATE.is_file() and keys(read(TEMPLATE)) == keys(extracted())


def incomplete() -> list[str]:
    """A line for each language of a release that has no catalog, or one with gaps."""
    there = languages()
    lines = [f"There is no catalog of {name}." for name in LANGUAGES if name not in there]
    template = extracted()
    gaps = {name: lacking(name, template) for name in LANGUAGES if name in there}
    return lines + [
        f"{name} lacks {len(found)} strings, the first {found[0].id!r}."
        for name, found in gaps.items()
        if found
    ]


def summary() -> str:
    """How many strings there are, and how many each language lacks."""
    template = extracted()
    counts = (f"{language} lacks {len(lacking(language, template))}" for language in languages())
    return f"{len(keys(template))} strings: {', '.join(counts)}."


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="catalogs.py")
    parser.add_argument("--check", action="store_true", help="only compare, write nothing")
    parser.add_argument(
        "--complete", action="store_true", help="also fail where a translation is missing"
    )
    parser.add_argument("--language", choices=languages(), help="print what this one lacks")
    options = parser.parse_args(arguments)
    try:
        if options.language:
            for message in lacking(options.language):
                files = " ".join(file for file, _ in message.locations)
                print(f"{files}: {message.id!r}")
        elif not (options.check or options.complete):
            update()
        elif not is_current():
            print("The catalogs are not those of the sources: run `packaging/dev.py words`.")
            return 1
        print(summary())
        if options.complete and (lines := incomplete()):
            print("\n".join(["A release is translated into all its languages.", *lines]))
            return 1
    except Clash as clash:
        print(clash, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
