"""GBNF grammars: what llama.cpp's tests say of texts, exact places of faults, and every feature."""

from __future__ import annotations

import itertools
import json
import random
from contextlib import suppress
from pathlib import Path

import pytest

import tiny
from engine.errors import RequestError
from engine.frontend.constraints.gbnf import (
    Characters,
    Either,
    Joined,
    Node,
    Reference,
    Repeated,
    parsed,
)
from engine.frontend.constraints.grammars import Grammars
from engine.frontend.constraints.matcher import Matcher
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import Constraint, ConstraintKind

GOLDEN = json.loads(
    (Path(__file__).parents[3] / "golden" / "llamacpp_grammars.json").read_text(encoding="utf-8")
)
CONTROLS = [f"<|control {at}|>" for at in range(30)]
CONTROLS[5] = "<call>"
Text = str | list[str | int]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """Thirty control tokens, then every byte and a few merges."""
    keys = tiny.bpe("llama")
    tokens = CONTROLS + keys["tokenizer.ggml.tokens"]
    kinds = [tiny.CONTROL] * len(CONTROLS) + keys["tokenizer.ggml.token_type"]
    changed = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    return Tokenizer.from_metadata(keys | changed)


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, tokenizer.size)


def matches(grammars: Grammars, tokenizer: Tokenizer, constraint: Constraint, text: Text) -> bool:
    parts = [text] if isinstance(text, str) else text
    tokens: list[int] = []
    for part in parts:
        tokens += [part] if isinstance(part, int) else tokenizer.encode_within(part)
    matcher = Matcher(grammars.compile(constraint))
    if matcher.allowed(tokens) < len(tokens):
        return False
    for token in tokens:
        matcher.accept(token)
    return matcher.is_complete


# Texts of llama.cpp's tests that are decided otherwise here.
OTHERWISE = {
    # It limits integers to 16 digits; here they have up to 20, as 2 ** 64 has.
    "min 2": {"12345678900000000"},
    # It says nothing of texts that are no arrays.
    "min+max items": {"1"},
}


@pytest.mark.parametrize("case", GOLDEN["grammars"], ids=lambda case: case["name"])
def test_texts_of_llama_cpp(
    grammars: Grammars, tokenizer: Tokenizer, case: dict[str, object]
) -> None:
    kind = ConstraintKind.GBNF if case["kind"] == "grammar" else ConstraintKind.JSON_SCHEMA
    constraint = Constraint(kind, str(case["text"]))
    if case["name"] == "required props":  # it ignores this keyword
        with pytest.raises(RequestError, match="uniqueItems"):
            grammars.compile(constraint)
        return
    other = OTHERWISE.get(str(case["name"]), set())
    wrong = [
        text
        for texts, expected in ((case["right"], True), (case["wrong"], False))
        for text in texts  # type: ignore[attr-defined]
        if matches(grammars, tokenizer, constraint, text) is not expected
    ]
    assert {json.dumps(text) if isinstance(text, list) else text for text in wrong} == other


# --- against the definition ---------------------------------------------------------------------


def ends(rules: dict[str, Node], node: Node, text: str, at: int, depth: int = 40) -> set[int]:
    """Where texts of a node that begin at `at` may end, by the definition of GBNF."""
    if depth < 0:
        return set()
    match node:
        case Characters(ranges, inverted):
            code = ord(text[at]) if at < len(text) else -1
            inside = any(low <= code <= high for low, high in ranges)
            return {at + 1} if at < len(text) and inside is not inverted else set()
        case Reference(name):
            return ends(rules, rules[name], text, at, depth - 1)
        case Joined(parts):
            found = {at}
            for part in parts:
                found = {end for one in found for end in ends(rules, part, text, one, depth)}
            return found
        case Either(parts):
            return {end for part in parts for end in ends(rules, part, text, at, depth)}
        case Repeated(part, least, most):
            reached, found = {at}, {at} if not least else set()
            for count in range(1, (len(text) + 2 if most is None else most) + 1):
                reached = {end for one in reached for end in ends(rules, part, text, one, depth)}
                if count >= least:
                    found |= reached
            return found
        case _:
            raise AssertionError(node)


def random_grammar(chance: random.Random) -> str:
    """Three rules over a and b; some are recursive, behind a bracket."""

    def node(depth: int, name: int) -> str:
        kind = chance.randrange(8 if depth else 3)
        if kind == 0:
            return chance.choice(['"a"', '"b"', '"ab"', "[ab]", "[^a(]", '"ba"'])
        if kind == 1:
            return f"r{name + 1}" if name < 2 else '"b"'
        if kind == 2:
            return f'"(" r{chance.randrange(3)} ")"'
        if kind < 5:
            return " ".join(node(depth - 1, name) for _ in range(chance.randint(2, 3)))
        if kind < 7:
            return "(" + " | ".join(node(depth - 1, name) for _ in range(2)) + ")"
        return f"({node(depth - 1, name)}){chance.choice(['*', '+', '?', '{2}', '{1,2}'])}"

    rules = [f"r{name} ::= {node(3, name)} | {node(2, name)}" for name in range(3)]
    return "\n".join(["root ::= r0", *rules])


def test_texts_of_random_grammars(grammars: Grammars, tokenizer: Tokenizer) -> None:
    texts = ["".join(one) for size in range(6) for one in itertools.product("ab", repeat=size)]
    texts += [f"{a}({b}){c}" for a in ("", "a", "ab") for b in ("a", "b", "(a)") for c in ("", "b")]
    checked = wrong = 0
    for seed in range(60):
        text = random_grammar(random.Random(seed))
        with suppress(RequestError):  # of a grammar without any text
            rules = parsed(text, lambda _: None)
            constraint = Constraint(ConstraintKind.GBNF, text)
            for one in texts:
                expected = len(one) in ends(rules, rules["root"], one, 0)
                found = matches(grammars, tokenizer, constraint, one)
                checked += 1
                wrong += found is not expected
                assert expected or not found, (text, one)  # only what matches is allowed
    assert checked > 2_000
    # An alternative may begin as another one: the library then follows the longer lexeme alone.
    assert wrong <= checked / 50


@pytest.mark.parametrize(
    ("text", "said", "line", "column"),
    [
        ('root ::= "a"\nroot ::= "b"', "the rule 'root' is defined twice", 2, 1),
        ('rot ::= "a"', "there is no rule 'root'", 1, 1),
        ('root ::= "a" numero', "there is no rule 'numero'", 1, 14),
        ('root = "a"', "expected ::=", 1, 6),
        ('root ::= "a', "the string does not end", 1, 10),
        ('root ::= "a\n"', "the string does not end", 1, 10),
        ("root ::= [a", "the class of characters does not end", 1, 10),
        ("root ::= []", "the class of characters is empty", 1, 10),
        ("root ::= [z-a]", "the range of characters is reversed", 1, 11),
        ('root ::= "\\q"', "unknown escape", 1, 11),
        ('root ::= "\\x4"', "expected 2 hexadecimal digits", 1, 11),
        ('root ::= "\\uD800"', "there is no such character", 1, 11),
        ('root ::= ("a" |\n  "b"', "expected )", 2, 6),
        ('root ::= "a" )', "expected the end of the rule", 1, 14),
        ("root ::= *", "nothing to repeat", 1, 10),
        ('root ::= "a"{x}', "expected a count", 1, 13),
        ('root ::= "a"{3,2}', "the largest count is smaller", 1, 13),
        ('root ::= "a"{1000000}', "more than 100,000 repetitions", 1, 13),
        ("root ::= <nothing>", "the model has no token <nothing>", 1, 10),
        ("root ::= <a", "expected a token", 1, 10),
        ('root ::= "a" root', "no text can match it", 1, 1),
        ("", "there is no rule 'root'", 1, 1),
    ],
)
def test_faults_have_a_place(
    grammars: Grammars, text: str, said: str, line: int, column: int
) -> None:
    with pytest.raises(RequestError) as caught:
        grammars.compile(Constraint(ConstraintKind.GBNF, text))
    assert said in str(caught.value)
    assert str(caught.value).endswith(f"(line {line}, column {column}).")


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        # Left recursion, which llama.cpp refuses.
        ('root ::= "a" | root "b"', ["a", "abb"], ["b", "aa"]),
        ('root ::= a\na ::= "a" | f "b"\nf ::= "c" | e a "d"\ne ::= "x" | ', ["a", "cb", "xadb", "adb"], ["d"]),
        # A lexeme must not take what follows it.
        ('root ::= "(" root ")" | [a-z]+ "end"', ["(xend)", "endend", "aendbend"], ["end", "ab"]),
        ("root ::= x x\nx ::= [a-z]* | \"(\" x \")\"", ["", "ab", "(a)b", "a()"], ["(a", "a)b("]),
        ('root ::= "\\u00e9\\x41\\U0001F600\\t" [^\\n\\]-]', ["éA😀\tx"], ["éA😀\t]", "éA😀\t-"]),
        ("# comment\nroot ::= # more\n  \"a\" # end\n | \"b\"\n\n", ["a", "b"], ["", "c"]),
        ('root ::= "a"{2,} ("b"){,2} "c"?', ["aa", "aaabbc"], ["a", "aabbb"]),
        ("root ::= <call> \"x\" !<call>", [[5, "x", 9]], [[5, "x", 5], ["<call>x", 9]]),
        ("root ::= .", ["a", "é", "\n", "😀"], ["", "ab"]),
    ],
)  # fmt: skip
def test_features(
    grammars: Grammars, tokenizer: Tokenizer, text: str, right: list[Text], wrong: list[Text]
) -> None:
    constraint = Constraint(ConstraintKind.GBNF, text)
    assert [one for one in right if not matches(grammars, tokenizer, constraint, one)] == []
    assert [one for one in wrong if matches(grammars, tokenizer, constraint, one)] == []
