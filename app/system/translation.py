"""Translation of the window's strings, and its numbers: `tr`, `trn`, `number`, on gettext catalogs.

The English text is the key of a catalog and the fallback. All are called when a string is shown,
never at import, so that the language is the user's; no code compares or parses what they return.
`use` sets the language, before the window is made; until then everything is English.
"""

from __future__ import annotations

import gettext
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.system import paths

DOMAIN = "tokonoma"  # of the catalogs: resources/locale/<language>/LC_MESSAGES/<DOMAIN>.po
ENGLISH = "en"  # has no catalog
# The languages with a catalog, by their own names.
LANGUAGES = {
    ENGLISH: "English",
    "ar": "العربية",
    "de": "Deutsch",
    "es": "Español",
    "fr": "Français",
    "ja": "日本語",
    "ko": "한국어",
    "pt_BR": "Português (Brasil)",
    "ru": "Русский",
    "zh_CN": "简体中文",
}
# Their English names, as a model is told them.
_ENGLISH_NAMES = {
    ENGLISH: "English",
    "ar": "Arabic",
    "de": "German",
    "es": "Spanish",
    "fr": "French",
    "ja": "Japanese",
    "ko": "Korean",
    "pt_BR": "Portuguese",
    "ru": "Russian",
    "zh_CN": "Chinese",
}
_TRADITIONAL = {"Hant", "TW", "HK", "MO"}  # of Chinese, where nothing says that it is Hans
_MOST_DECIMALS = 6
# The end of a sentence whose last mark has its own space after it: a Chinese or Japanese full stop,
# exclamation mark, question mark, semicolon or colon, perhaps in quotes or brackets.
_WIDE_END = re.compile("[\u3002\uff01\uff1f\uff1b\uff1a][\u201d\u2019\u300d\u300f\uff09]*$")
# One line of a catalog: the keyword of a string, and the string, which may go on below.
_LINE = re.compile(r'^(?:(msgid|msgid_plural|msgstr|msgstr\[\d\]) )?(".*")\s*$', re.MULTILINE)
_MANY = 5  # things, which no language counts as it counts one
_PLURALS = re.compile(r"plural=([^;\n]+)")


@dataclass(frozen=True, slots=True)
class Catalog:
    """The strings of one language: for each English one its forms, one if it has no plural."""

    forms: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    plural: Callable[[int], int] = field(default=lambda count: int(count != 1))  # index of a form

    def text(self, text: str) -> str:
        """The translation of a string; the English one where there is none."""
        forms = self.forms.get(text)
        if not forms:
            return text
        return forms[min(self.plural(1), len(forms) - 1)]

    def form(self, one: str, many: str, count: int) -> str:
        """The translation of a string for a count; the English one where there is none.

        Russian has one form for 1, 21 and 31: without the number it would speak of a single thing,
        so there the others take the form of 5.
        """
        index = self.plural(count)
        forms = self.forms.get(one, ())
        if count > 1 and index == self.plural(1) and "{count}" not in "".join(forms):
            index = self.plural(_MANY)
        return forms[index] if index < len(forms) else (one if count == 1 else many)


def english_number(value: float, decimals: int) -> str:
    """A number with thousands separators: `1,234.5`."""
    return f"{value:,.{decimals}f}"


class _Used:
    """The language that the window has."""

    catalog = Catalog()
    language = ENGLISH
    number: Callable[[float, int], str] = staticmethod(english_number)
    right_to_left = False


def use(
    catalog: Catalog,
    number: Callable[[float, int], str] = english_number,
    *,
    language: str = ENGLISH,
    right_to_left: bool = False,
) -> None:
    """Set the language of all texts from now on; `number` formats a value with n decimals."""
    _Used.catalog, _Used.number = catalog, staticmethod(number)
    _Used.language, _Used.right_to_left = language, right_to_left


def used_language() -> str:
    """The English name of the language that the window has."""
    return _ENGLISH_NAMES[_Used.language]


def tr(text: str, /, **values: object) -> str:
    """`text` in the user's language, with `{name}` replaced by the value of that name.

    Values that are numbers are formatted by `number`, others are `isolated`.
    """
    found = _Used.catalog.text(text)
    return _filled(found, values) if values else found


def trn(one: str, many: str, count: int, /, **values: object) -> str:
    """The form for `count` in the user's language, formatted as by `tr`.

    `{count}` is the number unless `values` give another.
    """
    found = _Used.catalog.form(one, many, count)
    return _filled(found, {"count": count} | values)


def number(value: float, decimals: int | None = None) -> str:
    """A number as the user's language writes it, with as many decimals.

    None: those that it has, at most six.
    """
    if decimals is None:
        decimals = len(f"{value:.{_MOST_DECIMALS}f}".rstrip("0").partition(".")[2])
    return _Used.number(value, decimals)


def isolated(text: str) -> str:
    """A name or a text of another direction, so that it does not mix with the words around it.

    Only a language from right to left needs that: Unicode's first strong isolate.
    """
    return f"\u2068{text}\u2069" if text and _Used.right_to_left else text


def sentences(*parts: str) -> str:
    """Sentences one after another, as their language writes them; empty ones are left out.

    A Chinese or Japanese full stop has its own space after it, and takes no other.
    """
    whole = ""
    for part in filter(None, map(str.strip, parts)):
        between = "" if not whole or _WIDE_END.search(whole) else " "
        whole += between + part
    return whole


def listed(parts: Iterable[str]) -> str:
    """Several things in one line, with the commas of the user's language; empty ones are left out."""
    whole = ""
    for part in filter(None, parts):
        whole = tr("{parts}, {last}", parts=whole, last=part) if whole else part
    return whole


def language_of(wanted: Sequence[str], languages: Collection[str] = tuple(LANGUAGES)) -> str:
    """The first of the languages a user prefers that has a catalog, else English.

    `wanted` holds tags such as `de-AT` and `zh-Hans-CN`; only Chinese tells scripts apart.
    """
    for tag in wanted:
        name, *more = re.split("[-_]", tag)
        kin = [code for code in languages if code.partition("_")[0] == name.casefold()]
        if name == "zh":
            is_simplified = "Hans" in more or _TRADITIONAL.isdisjoint(more)
            kin = [code for code in kin if (code == "zh_CN") is is_simplified]
        if kin:
            exact = f"{name}_{more[-1]}" if more else name
            return exact if exact in kin else kin[0]
    return ENGLISH


def catalog_file(language: str) -> Path:
    """Where the catalog of a language is."""
    return paths.resources() / "locale" / language / "LC_MESSAGES" / f"{DOMAIN}.po"


def read_catalog(path: Path) -> Catalog:
    """Read a catalog (.po, UTF-8, as `packaging/dev.py words` writes it).

    Strings that are not translated, or marked fuzzy, are left out. Raises OSError and ValueError.
    """
    forms: dict[str, tuple[str, ...]] = {}
    header = ""
    for entry in path.read_text(encoding="utf-8").split("\n\n"):
        is_fuzzy = "\n#, fuzzy" in f"\n{entry}"
        if is_fuzzy and header:
            continue
        strings: dict[str, str] = {}
        keyword = ""
        for line in _LINE.finditer(entry):
            keyword = line[1] or keyword
            strings[keyword] = strings.get(keyword, "") + json.loads(line[2])
        key = strings.pop("msgid", None)
        strings.pop("msgid_plural", None)
        if key == "":
            header = strings["msgstr"]
        elif key and all(strings.values()):
            forms[key] = tuple(strings.values())
    rule = _PLURALS.search(header)
    return Catalog(forms, gettext.c2py(rule[1].strip())) if rule else Catalog(forms)


def _filled(found: str, values: Mapping[str, object]) -> str:
    """A string with its values; one from right to left says so, as it may begin with a name."""
    filled = found.format_map({name: _shown(value) for name, value in values.items()})
    return f"\u200f{filled}" if _Used.right_to_left else filled


def _shown(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return isolated(str(value)) if _Used.right_to_left else value
