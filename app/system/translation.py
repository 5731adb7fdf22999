"""Translation of the window's strings: `tr` and `trn`, on gettext catalogs.

The English text is the key of a catalog and the fallback. Both are called when a string is shown,
never at import, so that the language is the user's; no code compares or parses what they return.
"""

from __future__ import annotations

import gettext
from functools import cache

from app.system import paths

DOMAIN = (
    "tokonoma"  # file name of the catalogs: resources/locale/<language>/LC_MESSAGES/<DOMAIN>.mo
)


def tr(text: str, /, **values: object) -> str:
    """`text` in the user's language, with `{name}` replaced by the value of that name."""
    found = _catalog().gettext(text) if text else ""  # the empty key is the catalog's header
    return found.format_map(values) if values else found


def trn(one: str, many: str, count: int, /, **values: object) -> str:
    """The singular or plural form for `count` in the user's language, formatted as by `tr`.

    `{count}` is the number with thousands separators unless `values` give another.
    """
    found = _catalog().ngettext(one, many, count)
    return found.format_map({"count": f"{count:,}"} | values)


@cache
def _catalog() -> gettext.NullTranslations:
    """The catalog of the environment's language; without one the English texts are returned."""
    return gettext.translation(DOMAIN, paths.resources() / "locale", fallback=True)
