"""Records the grammars of llama.cpp's tests, with texts that match them and texts that do not.

Only these facts are read from the source, `tests/test-grammar-integration.cpp`:

    python tests/recorders/grammar_strings.py PATH_OF_LLAMA_CPP
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path("tests/test-grammar-integration.cpp")
GOLDEN = Path(__file__).parent.parent / "golden" / "llamacpp_grammars.json"
_LEXEMES = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<text>(?:\\.|[^"\\])*)"|"""
    r"""token\((?P<token>\d+)\)|(?P<call>\btest_(?:grammar|schema)\s*\()|(?P<mark2>[{},+)])|\s+""",
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
Part = str | int  # text, or a token


def recorded(source: str) -> list[dict[str, object]]:
    """Every call of a test in a C++ source: its name, grammar or schema, and texts."""
    found: list[dict[str, object]] = []
    for match in re.finditer(r"^    test_(grammar|schema)\(", source, re.MULTILINE):
        lexemes = _lexemes(source, match.end())
        arguments: list[object] = []
        while len(arguments) < 4:
            arguments.append(_argument(lexemes))
        name, text, right, wrong = arguments
        found.append({"name": name, "kind": match[1], "text": text, "right": right, "wrong": wrong})
    return found


def _lexemes(source: str, at: int) -> Iterator[Part | tuple[str]]:
    while True:
        found = _LEXEMES.match(source, at)
        assert found, source[at : at + 80]
        at = found.end()
        if found["raw"] is not None:
            yield found["raw"]
        elif found["text"] is not None:
            yield re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[1]), found["text"])
        elif found["token"]:
            yield int(found["token"])
        elif found["mark2"]:
            yield (found["mark2"],)


def _argument(lexemes: Iterator[Part | tuple[str]]) -> object:
    """A string, or a list of strings; those with tokens in them are lists of their parts."""
    parts: list[Part] = []
    listed: list[object] | None = None
    for lexeme in lexemes:
        if not isinstance(lexeme, tuple):
            parts.append(lexeme)
            continue
        (mark,) = lexeme
        if mark == "{":
            listed = []
        elif mark in ",})" and listed is not None:
            if parts:
                listed.append(_joined(parts))
                parts = []
            if mark == "}":
                next(lexemes)  # the comma or bracket behind it
                return listed
        elif mark in ",)":
            return _joined(parts)
    raise AssertionError("the source ends")


def _joined(parts: list[Part]) -> object:
    if all(isinstance(part, str) for part in parts):
        return "".join(map(str, parts))
    return parts


def main() -> None:
    """Write the golden file."""
    root = Path(sys.argv[1])
    found = recorded((root / SOURCE).read_text(encoding="utf-8"))
    origin = f"{SOURCE} of llama.cpp 0.6.0-dev (ggml 0.26.0)"
    rows = ",\n".join(json.dumps(one, ensure_ascii=False) for one in found)
    GOLDEN.write_text(
        f'{{"origin": {json.dumps(origin)}, "licence": "MIT", "grammars": [\n{rows}\n]}}\n',
        encoding="utf-8",
    )
    print(f"{len(found)} grammars")


if __name__ == "__main__":
    main()
