"""Constraints of each kind: which texts they allow, and how bad ones are refused."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from llguidance import LLParserLimits

import tiny
from engine.errors import Busy, EngineError, RequestError
from engine.frontend.constraints import grammars as grammars_module
from engine.frontend.constraints.grammars import Grammars
from engine.frontend.constraints.library import guarded
from engine.frontend.constraints.matcher import Matcher, lookahead
from engine.frontend.tokenizer import vocabulary
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.gguf.reader import GGUFFile
from engine.messages import Constraint, ConstraintKind
from serving import wait_until

SCHEMA, GBNF, LARK = ConstraintKind.JSON_SCHEMA, ConstraintKind.GBNF, ConstraintKind.LARK
REGEX, CHOICES, TOOLS = ConstraintKind.REGEX, ConstraintKind.CHOICES, ConstraintKind.TOOLS
PERSON = (
    '{"type": "object",\n "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},\n'
    ' "required": ["a", "b"], "additionalProperties": false}'
)


def calls_of(*names: str, lazy: bool = False, repeats: bool = True) -> str:
    """Rules of calls between markers, behind the first marker where they are `lazy`."""
    schemas: list[dict[str, object]] = []
    for name in names:
        fields = {"name": {"const": name}, "x": {"type": "integer"}}
        schemas.append({"type": "object", "properties": fields, "required": ["name", "x"]})
        schemas[-1]["additionalProperties"] = False
    begin, end = "\n" if lazy else "<call>\n", "\n</call>"
    choices = [[{"text": begin}, {"schema": at}, {"text": end}] for at in range(len(names))]
    rules = {"rest" if lazy else "start": choices}
    after = {"<call>": "rest"} if lazy else {}
    return json.dumps({"rules": rules, "schemas": schemas, "after": after, "repeats": repeats})


CALLS, LAZY_CALLS = calls_of("f", "g"), calls_of("f", "g", lazy=True)
CALL = '<call>\n{{"name":"{}","x":{}}}\n</call>'


def tokenizer_of(path: Path) -> Tokenizer:
    with GGUFFile.open(path) as file:
        return vocabulary.find(file).tokenizer()


@pytest.fixture(scope="module", params=["bpe", "spm"])
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return tokenizer_of(tiny.write(path, tokenizer=request.param))


@pytest.fixture
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, tokenizer.size + 7)


def fits(matcher: Matcher, tokens: Sequence[int]) -> bool:
    """Whether a text is allowed from here, token by token, and the answer may end after it."""
    for token in tokens:
        if not int(matcher.mask()[token // 32]) >> token % 32 & 1:
            return False
        assert matcher.allowed([token])
        matcher.accept(token)
    return matcher.is_complete


@pytest.fixture
def allows(tokenizer: Tokenizer, grammars: Grammars) -> Callable[[Constraint, str], bool]:
    """Whether a constraint allows a text, as whole tokens and byte by byte."""

    def check(constraint: Constraint, text: str) -> bool:
        matcher = Matcher(grammars.compile(constraint))
        tokens = tokenizer.encode_within(text)
        assert b"".join(map(tokenizer.piece, tokens)) == text.encode()
        # Where bytes are forced, the mask has their token alone: the text is compared, not tokens.
        count = matcher.allowed(tokens)
        if count < len(tokens):
            return False
        for token in tokens:
            matcher.accept(token)
        return matcher.is_complete

    return check


# --- each kind ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "right", "wrong"),
    [
        (SCHEMA, PERSON, ['{"a":1,"b":"x"}', '{ "a": -2, "b": "y" }', '{\n  "a": 0,\n  "b": "x"\n}'],
         ['{"a":1}', ' {"a":1,"b":"x"}', '{"b":"x","a":1}', '{"a":1,"b":"z"}', '{"a":1.5,"b":"x"}',
          "", '{"a":1,"b":"x"', '{"a":1,"b":"x"}}', '{\n\n\n\n"a":1,"b":"x"}']),
        (SCHEMA, "true", ["1", '["a", {}]', "null"], ["nil", "[1,]"]),
        (SCHEMA, '{"type": "string", "pattern": "^[0-9]{2}$"}', ['"12"'], ['"1"', "12"]),
        (GBNF, 'root ::= "a" b*\nb ::= [b-d] | "(" b ")"', ["a", "abcd", "a(b)((c))"], ["", "ae", "a(b"]),
        (LARK, 'start: "a" b\nb: /[0-9]+/ | "(" b ")"', ["a12", "a((1))"], ["a", "a(1"]),
        (REGEX, "[a-z]+/\\d{2}\n?", ["abc/12", "a/00\n"], ["A/12", "abc/1", "abc/12\n\n"]),
        (REGEX, r"\d[\d.]\D\w", ["12xa", "1.é_"], ["١2xa", "1١xa", "12xé"]),  # as in ECMA 262
        (REGEX, r"\s[^\s]", ["\u2003a"], ["\u2003\u2003"]),
        (REGEX, "", [""], ["a"]),
        (REGEX, "é|😀+", ["é", "😀😀"], ["e", "é😀"]),
        (CHOICES, json.dumps(["yes", "no", 'a "b" \\ é \n/', ""]),
         ["yes", "no", 'a "b" \\ é \n/', ""], ["maybe", "yesno", "ye"]),
        (TOOLS, CALLS, [CALL.format("f", 1), CALL.format("g", -20)],
         ["", CALL.format("h", 1), CALL.format("f", 1) + CALL.format("g", 1)]),
    ],
)  # fmt: skip
def test_texts_of_each_kind(
    allows: Callable[[Constraint, str], bool],
    kind: ConstraintKind,
    text: str,
    right: list[str],
    wrong: list[str],
) -> None:
    constraint = Constraint(kind, text)
    assert [one for one in right if not allows(constraint, one)] == []
    assert [one for one in wrong if allows(constraint, one)] == []


def test_a_constraint_begins_after_a_trigger(allows: Callable[[Constraint, str], bool]) -> None:
    lazy = Constraint(REGEX, "[ab]+c", trigger=("<go>", "END "))
    right = ["", "hello", "<go>abc", "hello <go>bc", "go > on <g END abc"]
    wrong = ["hello <go>", "<go>abcx", "<go>xx", "END <go>", "a <go>ac and <go>"]
    assert [one for one in right if not allows(lazy, one)] == []
    assert [one for one in wrong if allows(lazy, one)] == []
    required = Constraint(REGEX, "[ab]+c", trigger=("<go>",), required=True)
    assert allows(required, "hello <go>bc")
    assert not any(allows(required, one) for one in ("", "hello", "hello <go>"))


def test_tool_calls_come_between_free_text(allows: Callable[[Constraint, str], bool]) -> None:
    lazy = Constraint(TOOLS, LAZY_CALLS, trigger=("<call>",))
    one, two = CALL.format("f", 1), CALL.format("g", 22)
    for text in ("", "hi", one, f"I call: {one}", f"{one}{two}", f"a {one} b\n{two} c < call"):
        assert allows(lazy, text), text
    for text in ("hi <call>", CALL.format("h", 1), f"{one} and <call>\n", one[:-1], "<call>{}"):
        assert not allows(lazy, text), text
    required = Constraint(TOOLS, LAZY_CALLS, trigger=("<call>",), required=True)
    assert allows(required, f"so: {one}")
    assert not allows(required, "hi")
    single = Constraint(TOOLS, calls_of("f", lazy=True, repeats=False), trigger=("<call>",))
    assert allows(single, f"so: {one}")
    assert not allows(single, f"so: {one}{one}")


def test_a_control_token_is_no_text_but_its_letters_are_a_trigger(
    tokenizer: Tokenizer, grammars: Grammars
) -> None:
    control = next(token for token in range(tokenizer.size) if tokenizer.is_control(token))
    text = tokenizer.piece(control).decode()
    anything = Matcher(grammars.compile(Constraint(REGEX, "(?s:.*)")))
    assert anything.allowed(tokenizer.encode_within(text)) == len(tokenizer.encode_within(text))
    assert not anything.allowed([control]) or control in tokenizer.end_tokens
    if control in tokenizer.end_tokens:
        return
    lazy = Constraint(REGEX, "[ab]+c", trigger=(text,))
    after = Matcher(grammars.compile(lazy))
    assert fits(after, [*tokenizer.encode_within("hello "), control]) is False
    assert fits(after, tokenizer.encode_within("abc"))
    for begun, fitting in (("abc", True), ("x", False)):  # spelled by other tokens it is the same
        spelled = Matcher(grammars.compile(lazy))
        assert fits(spelled, tokenizer.encode_within(f"hello {text}{begun}")) is fitting


def test_the_end_is_allowed_where_the_text_is_complete(
    tokenizer: Tokenizer, grammars: Grammars
) -> None:
    matcher = Matcher(grammars.compile(Constraint(REGEX, "a+")))
    (a,) = tokenizer.encode_within("a")

    def ends() -> list[bool]:
        words = matcher.mask()
        return [bool(int(words[end // 32]) >> end % 32 & 1) for end in tokenizer.end_tokens]

    assert not any(ends())
    assert not matcher.is_complete
    matcher.accept(a)
    assert all(ends())
    assert matcher.is_complete
    assert not matcher.is_finished


def test_a_vocabulary_without_end_tokens(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "end_tokens", frozenset())
    grammars = Grammars(tokenizer, tokenizer.size)
    matcher = Matcher(grammars.compile(Constraint(REGEX, "abc")))
    for token in tokenizer.encode_within("abc"):
        assert not matcher.is_finished
        matcher.accept(token)
    assert matcher.is_finished


def test_no_token_without_logits_or_text_is_allowed(
    tokenizer: Tokenizer, grammars: Grammars
) -> None:
    matcher = Matcher(grammars.compile(Constraint(REGEX, "(?s:.*)")))
    bits = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
    allowed = {int(token) for token in np.flatnonzero(bits)}
    assert allowed <= set(range(tokenizer.size))
    assert all(tokenizer.piece(token) for token in allowed)


# --- states -------------------------------------------------------------------------------------


def test_tokens_are_taken_back(tokenizer: Tokenizer, grammars: Grammars) -> None:
    matcher = Matcher(grammars.compile(Constraint(SCHEMA, PERSON)))
    tokens = tokenizer.encode_within('{"a":12,"b":"x"}')
    masks = []
    for token in tokens:
        masks.append(matcher.mask())
        matcher.accept(token)
    assert matcher.is_finished
    for count in range(1, len(tokens) + 1):
        matcher.rollback(1)
        assert not matcher.is_finished
        assert np.array_equal(matcher.mask(), masks[-count])
    matcher.read(tokens)
    matcher.rollback(len(tokens))
    assert fits(matcher, tokens[:0]) is False
    assert np.array_equal(matcher.mask(), masks[0])


def test_masks_are_computed_ahead_of_drafts(tokenizer: Tokenizer, grammars: Grammars) -> None:
    grammar = grammars.compile(Constraint(SCHEMA, PERSON))
    tokens = tokenizer.encode_within('{"a":12,"b":"x"}')
    wrong = tokenizer.encode_within("z")
    for accepted in range(len(tokens)):
        plain, ahead = Matcher(grammar), Matcher(grammar)
        draft = [*tokens[:accepted], *wrong, *tokens[accepted:]]
        assert ahead.allowed(draft) == accepted
        lookahead([(ahead, draft[:accepted])])
        for token in tokens:
            assert np.array_equal(plain.mask(), ahead.mask())
            plain.accept(token)
            ahead.accept(token)
        assert ahead.is_finished


def test_masks_ahead_of_a_rejected_draft_are_dropped(
    tokenizer: Tokenizer, grammars: Grammars
) -> None:
    grammar = grammars.compile(Constraint(REGEX, "(ab|cd)*"))
    plain, ahead = Matcher(grammar), Matcher(grammar)
    lookahead([(ahead, tokenizer.encode_within("abab"))])
    for token in tokenizer.encode_within("cdab"):
        assert np.array_equal(plain.mask(), ahead.mask())
        plain.accept(token)
        ahead.accept(token)


def test_forks_go_their_own_ways(tokenizer: Tokenizer, grammars: Grammars) -> None:
    first = Matcher(grammars.compile(Constraint(REGEX, "a(bc|de)f")))
    first.read(tokenizer.encode_within("a"))
    second = first.fork()
    assert fits(first, tokenizer.encode_within("bcf"))
    assert fits(second, tokenizer.encode_within("def"))
    assert not fits(first.fork(), tokenizer.encode_within("f"))


def test_a_text_that_does_not_match_is_not_continued(
    tokenizer: Tokenizer, grammars: Grammars
) -> None:
    matcher = Matcher(grammars.compile(Constraint(REGEX, "a+")))
    with pytest.raises(RequestError, match="from its token 2 on"):
        matcher.read([*tokenizer.encode_within("a"), *tokenizer.encode_within("x")])


def test_grammars_are_compiled_once(grammars: Grammars) -> None:
    constraint = Constraint(REGEX, "a+")
    made = grammars.compile(constraint)
    assert grammars.compile(Constraint(REGEX, "a+")) is made
    for number in range(20):
        grammars.compile(Constraint(REGEX, f"a{{{number + 1}}}"))
    assert grammars.compile(constraint) is not made


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "said", "line", "column"),
    [
        (SCHEMA, '{"a":\n', "not JSON, Expecting value", 2, 1),
        (SCHEMA, "[1]", "must be a JSON object", 1, 1),
        (SCHEMA, "false", "Unsatisfiable", 1, 1),
        (SCHEMA, '{"items":\n {"type": "strin"}}', "Invalid type: strin", 2, 11),
        (SCHEMA, '{"type": "array",\n "uniqueItems": true}', "uniqueItems", 2, 2),
        (SCHEMA, '{"properties": {"a":\n  {"$ref": "#/$defs/x"}}}', "'/$defs/x' does not exist", 2, 12),
        (SCHEMA, '{"type": "integer", "minimum": 5,\n"maximum": 3}', "greater than maximum", 2, 1),
        (SCHEMA, '{"type": "string",\n "pattern": "(a"}', "unclosed group", 2, 13),
        (SCHEMA, '{"$ref": "http://example.org/a"}', "not present", 1, 10),
        (SCHEMA, '{"$ref": "#"}', "no text can match it", 1, 1),
        (LARK, 'start: "a" b\nb: c', 'unknown name: "c"', 2, 4),
        (LARK, 'start: "a"\n  | | )', "expecting rule, token", 2, 7),
        (LARK, "start: /(?=a)b/", "look-around", 1, 8),
        (LARK, "word: /a/", "no start rule", 1, 1),
        (LARK, "", "no start rule", 1, 1),
        (LARK, "start: start", "no text can match it", 1, 1),
        (REGEX, "ab(", "unclosed group", 1, 3),
        (REGEX, "ab\nc(?=d)", "look-around", 2, 2),
        (REGEX, "x{2,1}", "invalid repetition", 1, 2),
        (REGEX, r"a\b", "lookarounds not supported", 1, 1),
        (REGEX, r"[^\s\S]", "no text can match it", 1, 1),
        (CHOICES, '["a",\n3', "not JSON", 2, 2),
        (CHOICES, '["a", 3]', "JSON array of one or more strings", 1, 1),
        (CHOICES, "[]", "JSON array of one or more strings", 1, 1),
        (TOOLS, '[{"name": "f"}]', 'JSON object with "rules"', 1, 1),
        (TOOLS, '{"rules": {}}', 'JSON object with "rules" and "schemas"', 1, 1),
    ],
)  # fmt: skip
def test_bad_grammars_are_refused_in_one_sentence(
    grammars: Grammars, kind: ConstraintKind, text: str, said: str, line: int, column: int
) -> None:
    with pytest.raises(RequestError) as caught:
        grammars.compile(Constraint(kind, text))
    message = str(caught.value)
    assert said in message
    assert message.endswith(f"(line {line}, column {column}).")
    assert message.startswith(f"The {kind.value} cannot be used: ")
    assert "\n" not in caught.value.sentence
    assert caught.value.remedy


def test_bad_triggers_are_refused(grammars: Grammars) -> None:
    with pytest.raises(RequestError, match="a trigger is empty"):
        grammars.compile(Constraint(REGEX, "a", trigger=("",)))


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"step_max_items": 3}, "start: s\ns: s s | s s s | w\nw: /[a-z ]/"),
        ({"max_lexer_states": 2}, "start: A | B\nA: /(.*x1.*)/\nB: /(.*x2.*)/"),
    ],
)
def test_a_grammar_that_is_too_complex_from_the_start_says_so(
    limits: dict[str, int], text: str, grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = LLParserLimits(verbose_errors=False, **limits)
    monkeypatch.setattr("engine.frontend.constraints.grammars.LIMITS", few)
    with pytest.raises(RequestError, match="it is too complex"):
        grammars.compile(Constraint(LARK, text))


HOSTILE = {
    "long": (REGEX, "a" * (1 << 21)),
    "deep brackets": (REGEX, "(" * 5_000 + "a" + ")" * 5_000),
    "deep schema": (SCHEMA, '{"items":' * 5_000 + "{}" + "}" * 5_000),
    "deep list": (CHOICES, "[" * 50_000 + "]" * 50_000),
    "deep rules": (GBNF, "root ::= " + "(" * 3_000 + '"a"' + ")" * 3_000),
    "many stars": (GBNF, 'root ::= "a"' + "*" * 100_000),
    "doubling rules": (
        GBNF,
        'root ::= r0\n' + "".join(f"r{n} ::= r{n + 1} r{n + 1}\n" for n in range(60)) + 'r60 ::= "a"',
    ),
    "chain of rules": (
        GBNF,
        "root ::= r0\n" + "".join(f"r{n} ::= r{n + 1}\n" for n in range(4_000)) + 'r4000 ::= "a"',
    ),
    "counts of counts": (REGEX, "((a{1000}){1000}){1000}"),
    "any then count": (REGEX, "(.*a.{5000})+b"),
    "nested repeats": (LARK, 'start: ((("a"{1,1000}){1,1000}){1,1000}){1,1000}'),
    "circular terminals": (LARK, "start: A\nA: B\nB: A"),
    "huge bounds": (SCHEMA, '{"type":"string","minLength":100000000,"maxLength":2000000000}'),
    "huge number": (SCHEMA, '{"const": 1' + "0" * 5_000 + "}"),
    "product of choices": (
        SCHEMA,
        json.dumps({"allOf": [
            {"anyOf": [{"properties": {f"a{i}": {"const": j}}} for j in range(6)]} for i in range(12)
        ]}),
    ),
    "many properties": (
        SCHEMA, json.dumps({"properties": {f"p{i}": {"type": "string"} for i in range(1_500)}})
    ),
    "joined patterns": (
        SCHEMA, json.dumps({"allOf": [{"type": "string", "pattern": f"x{i}"} for i in range(40)]})
    ),
    "joined terminals": (LARK, "start: T\nT: " + " & ".join(f"/(.*x{i}.*)/" for i in range(30))),
    "joined in a schema": (
        LARK, "start: %json " + json.dumps({"allOf": [{"pattern": f"x{i}"} for i in range(30)]})
    ),
    "ambiguous": (LARK, "start: s\ns: s s | s s s | w\nw: /[a-z ]/"),
    "null": (LARK, 'start: "\0"'),
    "half a character": (REGEX, "\ud800"),
    "binary": (GBNF, "".join(map(chr, range(1, 256)))),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_grammars_end_in_time(tokenizer: Tokenizer, grammars: Grammars, name: str) -> None:
    kind, text = HOSTILE[name]
    started = time.monotonic()
    message = ""
    try:
        matcher = Matcher(grammars.compile(Constraint(kind, text)))
        for _ in range(40):
            bits = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
            choices = [int(at) for at in np.flatnonzero(bits) if at not in tokenizer.end_tokens]
            if not choices:
                break
            matcher.accept(choices[len(choices) // 2])
    except EngineError as error:
        message = error.sentence
    assert len(message) < 400
    assert "\n" not in message
    assert time.monotonic() - started < 20


# Each value of one list is compared with each of the other: minutes of Python.
SLOW = json.dumps({"allOf": [{"enum": [*range(60_000)]}, {"enum": [*range(-60_000, 0)]}]})


def compiling() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("grammar")]


def test_a_compilation_that_takes_too_long_is_refused_and_ends(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammars_module, "_LONGEST_SECONDS", 0.3)
    with pytest.raises(RequestError, match="takes too long to compile"):
        grammars.compile(Constraint(SCHEMA, SLOW))
    wait_until(lambda: not compiling())
    assert grammars.compile(Constraint(REGEX, "a"))


def test_compilations_do_not_pile_up(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, release = list[type[Exception]](), threading.Event()
    monkeypatch.setattr(grammars_module, "_LONGEST_SECONDS", 0.3)
    monkeypatch.setattr(grammars, "_compile", lambda _: release.wait(60))  # not to be interrupted

    def refused(number: int) -> None:
        with pytest.raises((RequestError, Busy)) as caught:
            grammars.compile(Constraint(REGEX, f"a{number}"))
        ends.append(caught.type)

    asking = [threading.Thread(target=refused, args=(number,)) for number in range(8)]
    for one in asking:
        one.start()
    for one in asking:
        one.join(60)
        assert len(compiling()) == 2
    assert sorted(one.__name__ for one in ends) == ["Busy"] * 6 + ["RefusedConstraint"] * 2
    release.set()
    wait_until(lambda: not compiling())


def test_where_threads_get_small_stacks_only_small_grammars_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A limit of address space, or a system with a limit of its own."""
    stack_size = threading.stack_size

    def small(size: int = 0) -> int:
        if size > 32 << 20:
            raise ValueError("size not valid")
        return stack_size(size)

    monkeypatch.setattr(threading, "stack_size", small)
    assert Grammars().compile(Constraint(CHOICES, json.dumps([f"w{at}" for at in range(1_000)])))
    with pytest.raises(RequestError, match=r"needs a stack of \d+ MB, which the system"):
        Grammars().compile(Constraint(CHOICES, json.dumps([f"w{at}" for at in range(9_000)])))


def test_a_panic_of_the_library_is_an_engine_error() -> None:
    class Panic(BaseException):
        pass

    with pytest.raises(RequestError, match=r"failed \(at line 3\)"), guarded():
        raise Panic("at\nline 3")
    with pytest.raises(KeyboardInterrupt), guarded():
        raise KeyboardInterrupt


def test_a_long_chain_of_rules_is_compiled_on_a_stack_of_its_own() -> None:
    # The library calls itself for each; with the usual stack it ended the process.
    names = "".join(f"A{at}: A{at + 1}\n" for at in range(10_000))
    grammar = Grammars().compile(Constraint(LARK, f'start: A0\n{names}A10000: "x"'))
    assert grammar.start().consume_token(ord("x"))
