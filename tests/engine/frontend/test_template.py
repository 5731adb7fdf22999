"""ChatTemplate: recorded prompts, errors of refused conversations, limits on hostile templates.

`golden/chat_templates.json` has templates and expected prompts with their origin.
"""

from __future__ import annotations

import json
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import TemplateError
from engine.frontend.sandbox import TemplateEnvironment
from engine.frontend.template import ChatTemplate, prompt_ids
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.gguf.reader import GGUFFile
from engine.messages import Role, Turn

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{{ message.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SYSTEM, USER, ASSISTANT = Role.SYSTEM, Role.USER, Role.ASSISTANT
HELLO = (Turn(USER, "Hello"),)


def turns(rows: list[list[str]]) -> list[Turn]:
    return [Turn(Role(role), text) for role, text in rows]


def rendered(source: str, conversation: tuple[Turn, ...] = HELLO, **options: Any) -> str:
    return ChatTemplate(source, bos="<s>", eos="</s>").render(conversation, **options)


def recorded() -> Any:
    place = Path(__file__).parents[2] / "golden" / "chat_templates.json"
    return json.loads(place.read_text(encoding="utf-8"))


def qwen_3() -> Any:
    return next(row for row in recorded()["rows"] if row["name"] == "Qwen-Qwen3-0.6B")


# --- recorded prompts ---------------------------------------------------------------------------


@pytest.mark.parametrize("row", recorded()["rows"], ids=lambda row: row["name"])
def test_recorded_templates_give_the_recorded_prompt(row: Any) -> None:
    template = ChatTemplate(row["template"], bos=row["bos"], eos=row["eos"])
    conversation = turns(row.get("turns", recorded()["turns"]))
    now = datetime.fromisoformat(recorded()["now"])
    prompt = template.render(conversation, enable_thinking=row.get("enable_thinking"), now=now)
    assert prompt == row["expected"]


@pytest.mark.real
def test_the_starter_model_gives_the_recorded_prompts(golden: Path, starter_model: Path) -> None:
    with GGUFFile.open(starter_model) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
        template = ChatTemplate.from_metadata(file.metadata, tokenizer)
    assert not template.built_in
    chats = [
        row
        for row in json.loads((golden / "smollm2.json").read_text(encoding="utf-8"))["completions"]
        if row["kind"] == "chat"
    ]
    assert chats
    for row in chats:
        conversation = [Turn(Role(one["role"]), one["content"]) for one in row["input"]]
        assert template.render(conversation) == row["prompt"]
        assert prompt_ids(tokenizer, row["prompt"]) == row["prompt_ids"]


def test_resource_limits_do_not_change_the_output() -> None:
    source = """
    {%- macro shout(text, times=2) %}{{ text|upper * times }}{% endmacro %}
    {%- set ns = namespace(last=none, parts=[]) %}
    {%- for m in messages if m.role != 'system' %}
        {%- set ns.last = m.content %}
        {%- set ns.parts = ns.parts + [m.content ~ loop.index ~ loop.last] %}
        {%- if loop.index > 2 %}{% break %}{% endif %}
    {%- endfor %}
    {{ shout(ns.last) }} {{ ns.parts[::-1]|join('; ') }} {{ ns.parts|length }} {{ ns.parts }}
    {{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list }}
    {{ {'b': 1, 'a': [none, true, 1.5]} }} {{ "%s-%03d" % ('x', 7) }} {{ "{:>4}|{}".format(1, 2) }}
    {{ 'a,b'.split(',')|last }} {{ 7 // 2 ** 2 }} {{ (3, 4)[0] }} {{ undefined_name }}
    {% if messages is iterable and 'x' not in messages %}yes{% else %}no{% endif %}
    {% generation %}words{% endgeneration %}{{ 'a\nb'|indent(2) }}{{ ' x '|trim }}{{ 2.567|round(1) }}
    {% if messages|selectattr('role', 'equalto', 'tool') %}generators are true{% endif %}
    """
    conversation = [Turn(USER, "one"), Turn(ASSISTANT, "two"), Turn(USER, "three\n<&>")]
    plain = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[*TemplateEnvironment().extensions],
    )
    messages = [{"role": turn.role.value, "content": turn.text} for turn in conversation]
    assert rendered(source, tuple(conversation)) == plain.from_string(source).render(
        messages=messages
    )


# --- variables of a template --------------------------------------------------------------------


def test_template_gets_the_variables_of_transformers() -> None:
    source = (
        "{{ bos_token }}{{ eos_token }}{{ tools is none }}{{ enable_thinking is defined }}"
        "{{ add_generation_prompt }}{{ strftime_now('%Y-%m-%d') }}{{ messages|tojson }}"
    )
    assert rendered(source, (Turn(USER, "é<'\""),), now=datetime(2026, 1, 2)) == (
        '<s></s>TrueFalseTrue2026-01-02[{"role": "user", "content": "é<\'\\""}]'
    )
    assert rendered("{{ strftime_now('%-d/%-m') }}", now=datetime(2026, 1, 2)) == "2/1"
    assert rendered("{{ enable_thinking }}", enable_thinking=False) == "False"
    assert rendered("{{ add_generation_prompt }}", add_generation_prompt=False) == "False"


def test_blocks_are_trimmed_as_templates_expect() -> None:
    assert rendered("  {% if true %}\nx\n  {% endif %}\ny") == "x\ny"


def test_tojson_is_python_json() -> None:
    assert rendered("{{ {'b': [1, 'é'], 'a': none}|tojson(indent=2, sort_keys=true) }}") == (
        json.dumps({"b": [1, "é"], "a": None}, ensure_ascii=False, indent=2, sort_keys=True)
    )


# --- system text, continuation, begin token -----------------------------------------------------


@pytest.mark.parametrize(
    "refusal",
    [
        "{% if messages[0].role == 'system' %}{{ raise_exception('No system') }}{% endif %}",
        "",
    ],
    ids=["refused", "ignored"],
)
def test_refused_or_ignored_system_text_goes_before_the_first_user_text(refusal: str) -> None:
    source = refusal + "{% for m in messages if m.role != 'system' %}[{{ m.content }}]{% endfor %}"
    conversation = (Turn(SYSTEM, "Be brief."), Turn(USER, "Hello"), Turn(ASSISTANT, "Hi"))
    assert rendered(source, conversation) == "[Be brief.\nHello][Hi]"


def test_escaped_system_text_is_not_repeated() -> None:
    conversation = (Turn(SYSTEM, 'Say "x".'), Turn(USER, "Hello"))
    source = "{% for m in messages %}{{ m.content|tojson }}{% endfor %}"
    assert rendered(source, conversation) == '"Say \\"x\\".""Hello"'


def test_refusal_includes_the_message_of_the_template() -> None:
    with pytest.raises(TemplateError, match=r"refuses.*Roles must alternate") as caught:
        rendered("{{ raise_exception('Roles must\n alternate') }}")
    assert caught.value.remedy
    with pytest.raises(TemplateError, match="still no"):
        rendered("{{ raise_exception('still no') }}", (Turn(SYSTEM, "s"), Turn(USER, "u")))


def test_continued_answer_is_appended_unchanged() -> None:
    template = ChatTemplate(CHATML, bos="", eos="")
    conversation = [Turn(USER, "Count"), Turn(ASSISTANT, " one, two, \n")]
    assert template.render_answer(conversation).text == (
        "<|im_start|>user\nCount<|im_end|>\n<|im_start|>assistant\n one, two, \n"
    )
    assert template.render_answer(conversation[:1]).text == template.render(conversation[:1])


def test_begin_token_is_added_once() -> None:
    tokens = ["<unk>", "<s>", "</s>", "\u2581", "a"]
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3, 1, 1],
        "tokenizer.ggml.add_eos_token": True,
    }
    tokenizer = Tokenizer.from_metadata(metadata)
    assert prompt_ids(tokenizer, "a") == prompt_ids(tokenizer, "<s>a") == [1, 3, 4]
    metadata["tokenizer.ggml.add_bos_token"] = False
    assert prompt_ids(Tokenizer.from_metadata(metadata), "a") == [3, 4]
    assert prompt_ids(Tokenizer.from_metadata(metadata), "<s>a") == [1, 3, 4]


# --- reasoning ----------------------------------------------------------------------------------

THOUGHT = "<think>\nHm, a\nquestion.\n</think>\n\nFour."


def test_reasoning_is_separate_from_the_answer() -> None:
    source = "{% for m in messages %}[{{ m.content }}|{{ m.reasoning_content }}]{% endfor %}"
    conversation = (
        Turn(USER, "<think>mine</think>"),
        Turn(ASSISTANT, THOUGHT),
        Turn(ASSISTANT, "<think>a"),
    )
    assert rendered(source, conversation) == "[<think>mine</think>|][Four.|Hm, a\nquestion.][|a]"
    assert "question" not in rendered(CHATML, conversation)


def test_template_that_splits_reasoning_itself_renders_the_same_prompt() -> None:
    row = qwen_3()
    template = ChatTemplate(row["template"], bos=row["bos"], eos=row["eos"])
    conversation = [Turn(USER, "Two and two?"), Turn(ASSISTANT, THOUGHT), Turn(USER, "Sure?")]
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(
        row["template"]
    )
    messages = [{"role": turn.role.value, "content": turn.text} for turn in conversation]
    for upto in (3, 2):  # the template keeps the reasoning of the last turn only
        whole = plain.render(messages=messages[:upto], add_generation_prompt=True)
        assert template.render(conversation[:upto]) == whole
    assert "question." in template.render(conversation[:2])


def test_the_prompt_may_begin_the_answer_with_a_think_tag() -> None:
    for end, opening in (
        ("<think>\n", "<think>\n"),
        ("<think>", "<think>"),
        ("<think>\n\n</think>\n\n", ""),
        ("<think> is a word", ""),
        ("", ""),
    ):
        prompt = ChatTemplate(CHATML + f"{{{{ {end!r} }}}}", bos="", eos="").render_answer(
            [Turn(USER, "Hello")]
        )
        assert (prompt.begun, prompt.opening) == (opening, opening)


def test_continued_answer_keeps_its_own_think_tag() -> None:
    template = ChatTemplate(CHATML + "{{ '<think>\\n' }}", bos="", eos="")
    asked = template.render([Turn(USER, "Count")])
    assert asked.endswith("assistant\n<think>\n")
    for text in ("<think>\nOne, t", "One, t"):
        conversation = [Turn(USER, "Count"), Turn(ASSISTANT, text)]
        assert template.render_answer(conversation).text == asked.removesuffix("<think>\n") + text


@pytest.mark.parametrize(
    "source",
    [
        "{% if %}",
        "{{ 1/0 }}",
        "{{ x.y.z }}",
        "{{ messages|nosuch }}",
        "{% include 'x' %}",
        "{% import 'os' as os %}",
        "{{ '' ~ {}[[]] ~ [] + 1 }}",
        "{{ [].append(1) }}",
        "{{ ''.__class__.__mro__[1] }}",
        "{{ (5).to_bytes(9) }}",
        "{{ 'a'.encode() }}",
        "{{ raise_exception.__globals__.x.y }}",
        "{{ self._TemplateReference__context.x }}",
    ],
)
def test_faulty_template_raises_and_the_next_rendering_works(source: str) -> None:
    template = ChatTemplate(
        "{% if messages|length > 1 %}" + source + "{% endif %}ok", bos="", eos=""
    )
    broken = ChatTemplate(source, bos="", eos="")
    with pytest.raises(TemplateError) as caught:
        broken.render(HELLO)
    assert caught.value.remedy
    assert "\n" not in caught.value.sentence
    if "%}" not in source and "|" not in source:  # it compiles, so it fails only if it is run
        assert template.render(HELLO) == "ok"


def test_long_conversations_stay_far_below_the_limits() -> None:
    source = qwen_3()["template"]
    conversation = [Turn((USER, ASSISTANT)[at % 2], "word " * 100) for at in range(2001)]
    prompt = ChatTemplate(source, bos="", eos="").render(conversation)
    assert prompt.count("word") == 200_100


# --- hostile templates --------------------------------------------------------------------------

_LISTS = "{% set a = range(90000)|list %}{% set b = range(90000)|list %}"
_BIG = "{% set a = 'y' * 400000 %}"
_DOUBLE = "{% set n = namespace(x=START) %}{% for i in range(100) %}{% set n.x = GROW %}{% endfor %}{{ n.x }}"


def _double(start: str, grow: str) -> str:
    return _DOUBLE.replace("START", start).replace("GROW", grow)


HOSTILE = {
    "loops in loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "loops over lists": _LISTS + "{% for i in a %}{% for j in b %}{% endfor %}{% endfor %}",
    "loops that skip": _LISTS + "{% for i in a %}{% for j in b if false %}{% endfor %}{% endfor %}",
    "comparisons": _LISTS + "{% if " + " and ".join(["a == b"] * 1500) + " %}{% endif %}",
    "tests": _LISTS + "{% if " + " and ".join(["a is eq b"] * 1500) + " %}{% endif %}",
    "searches": _LISTS + "{% for i in a %}{{ -1 in b }}{% endfor %}",
    "sorting": _LISTS + "{% for i in a %}{{ b|sort|length }}{% endfor %}",
    "chains of filters": "{{ range(99999)" + "|select" * 150 + "|list|length }}",
    "splitting": _BIG + "{% for i in range(99999) %}{{ a.split('y')|length }}{% endfor %}",
    "repeated text": "{{ 'x' * 10 ** 9 }}",
    "repeated list": "{{ [1] * 10 ** 9 }}",
    "a tower of powers": "{{ 10 ** (10 ** 10) }}",
    "growing numbers": _double("3", "n.x * n.x"),
    "a long number": "{{ 0x" + "f" * 60000 + " // 3 }}",
    "doubling by ~": _double("'x'", "n.x ~ n.x"),
    "doubling by +": _double("'x'", "n.x + n.x"),
    "doubling lists": _double("[1]", "n.x + n.x"),
    "lists of lists": _double("[1]", "[n.x, n.x]"),
    "dicts of dicts": _double("1", "{'a': n.x, 'b': n.x}"),
    "dict calls": _double("1", "dict(a=n.x, b=n.x)"),
    "doubling blocks": "{% set a %}xxxxxxxx{% endset %}"
    + "{% set a %}{{ a }}{{ a }}{% endset %}" * 60,
    "arguments of arguments": "{% macro m(n) %}{% if n < 45 %}{{ m(n + 1, varargs, varargs) }}"
    "{% else %}{{ varargs == [1] }}{% endif %}{% endmacro %}{{ m(0, 1, 2) }}",
    "long output": "{% for i in range(99999) %}" + "y" * 30000 + "{% endfor %}",
    "many variables": _BIG + "".join(f"{{% set v{i} = a ~ {i} %}}" for i in range(1000)),
    "many slices": _BIG + "".join(f"{{% set v{i} = a[1:] %}}" for i in range(1000)),
    "a macro of itself": "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "a tree of macros": "{% macro a(n) %}{% if n %}{{ a(n - 1) }}{{ a(n - 1) }}{% endif %}"
    "{% endmacro %}{{ a(40) }}",
    "a block of itself": "{% block a %}{{ self.a() }}{% endblock %}",
    "a loop of itself": "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "parentheses": "{{ " + "(" * 30000 + "1" + ")" * 30000 + " }}",
    "brackets": "{{ " + "[" * 30000 + "]" * 30000 + " }}",
    "a long sum": "{{ 1" + " + 1" * 15000 + " }}",
    "many nots": "{{ " + "not " * 15000 + "1 }}",
    "many dots": "{{ a" + ".b" * 30000 + " }}",
    "nested ifs": "{% if 1 %}" * 2500 + "{% endif %}" * 2500,
    "nested loops": "{% for a in [1] %}" * 60 + "{% endfor %}" * 60,
    "a long template": "x" * 100_000,
    "many expressions": "{{a.b}}" * 9000,
    "center": "{{ 'x'.center(10 ** 9) }}",
    "center filter": "{{ 'x'|center(10 ** 9) }}",
    "ljust": "{{ 'x'.ljust(10 ** 9) }}",
    "zfill": "{{ 'x'.zfill(10 ** 9) }}",
    "expandtabs": "{{ '\t'.expandtabs(10 ** 9) }}",
    "format width": "{{ '{:1000000000}'.format(1) }}",
    "format nested width": "{{ '{:{}}'.format(1, 10 ** 9) }}",
    "format repeated": _BIG + "{{ ('{0}' * 90000).format(a) }}",
    "format_map": _BIG + "{{ ('{a}' * 90000).format_map({'a': a}) }}",
    "format by attr": "{{ ('{0:1000000000}'|attr('format'))(1) }}",
    "percent width": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (1000000000, 1) }}",
    "percent digits": "{{ '%.1000000000f' % 1 }}",
    "percent repeated": _BIG + "{{ ('%(a)s' * 90000) % {'a': a} }}",
    "format filter": "{{ '%1000000000d'|format(1) }}",
    "format filter mapped": "{{ ['%1000000000d']|map('format', 1)|list }}",
    "join": _BIG + "{{ a.join('x' * 90000) }}",
    "join filter": _BIG + "{{ range(90000)|join(a) }}",
    "replace": _BIG + "{{ a.replace('y', a) }}",
    "replace filter": _BIG + "{{ a|replace(old='', new=a) }}",
    "translate": _BIG + "{{ a.translate({121: a}) }}",
    "strip": _BIG + "{{ a.strip(a ~ 'x') }}",
    "trim": _BIG + "{{ a|trim(a ~ 'x') }}",
    "indent": "{{ 'a\nb'|indent(10 ** 9) }}",
    "indent by text": _BIG + "{{ ('\n' * 90000)|indent(a) }}",
    "tojson": "{{ [[[1]]]|tojson(indent=10 ** 9) }}",
    "tojson by text": _BIG + "{{ [[[1]]]|tojson(indent=a) }}",
    "wordwrap": "{{ 'a b'|wordwrap(1, wrapstring='x' * 10 ** 9) }}",
    "batch": "{{ [1]|batch(10 ** 9, 0)|list }}",
    "round": "{{ 1.5|round(10 ** 9, 'ceil') }}",
    "sum of lists": "{{ ([[1]] * 90000)|sum(start=[]) }}",
    "range": "{{ range(10 ** 9)|list }}",
    "lipsum": "{{ lipsum(10 ** 7) }}",
    "long dates": "{{ strftime_now('%c' * 90000) }}",
    "batch without end": "{{ [1]|batch(10 ** 9)|list }}",
    "keys of a text": _BIG + "{% for i in range(99999) %}{{ dict.fromkeys(a)|length }}{% endfor %}",
    "slices": "{{ [1]|slice(10 ** 9, 0)|list }}",
    "ljust of a number": "{{ '1'.ljust(10 ** 9) }}",
    "wrapped text": _BIG + "{{ a|wordwrap(1) }}",
    "wrapped by text": "{% set a = 'y' * 90000 %}{{ a|wordwrap(1, wrapstring=a) }}",
    "urlencode": "{% set a = 'é' * 400000 %}{{ a|urlencode }}",
    "cycler": "{% set c = cycler(1) %}{% for i in range(99999) %}{% for j in range(99999) %}"
    "{{ c.next() }}{% endfor %}{% endfor %}",
    "joiner": _BIG + "{% set j = joiner(a) %}{% for i in range(99999) %}{{ j() }}{% endfor %}",
    "names of names": "{% set n0 = namespace(v=1) %}"
    + "".join(f"{{% set n{i + 1} = namespace(v=[n{i}, n{i}]) %}}" for i in range(60))
    + "{{ n60.v|tojson }}",
}


@pytest.mark.sweep
@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_template_is_stopped_without_leaving_threads(source: str) -> None:
    threads = threading.active_count()
    with pytest.raises(TemplateError) as caught:
        rendered(source)
    assert caught.value.remedy
    assert len(caught.value.sentence) < 500
    assert threading.active_count() == threads


def test_namespace_text_omits_its_attributes() -> None:
    assert rendered("{% set n = namespace() %}{% set n.x = n %}{{ n }}") == "namespace"


def test_template_is_asked_whether_it_omits_earlier_reasoning() -> None:
    each = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    assert ChatTemplate(each, bos="", eos="").omits_thoughts
    shows = each.replace("{{ m.content }}", "{{ m.reasoning_content }}{{ m.content }}")
    assert not ChatTemplate(shows, bos="", eos="").omits_thoughts
    assert not ChatTemplate("{{ raise_exception('no') }}", bos="", eos="").omits_thoughts


def test_a_switch_of_thinking_is_found_by_its_effect() -> None:
    switched = (
        "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    )
    assert ChatTemplate(switched, bos="", eos="").has_thinking_switch
    assert not ChatTemplate("{# enable_thinking #}fine", bos="", eos="").has_thinking_switch
    faulty = ChatTemplate("{{ raise_exception('no') }}", bos="", eos="")
    assert not faulty.has_thinking_switch


# --- whether what was written reaches the model -------------------------------------------------

_PARTS = (
    "{% for m in messages %}[{{ m.role }}]{% for part in m.content %}"
    "{% if part.type == 'image' %}<image>{% elif part.type == 'text' %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endfor %}"
)
_CHAT = (Turn(SYSTEM, "Be brief."), Turn(USER, "Hello"), Turn(ASSISTANT, "Hi"), Turn(USER, "So?"))
_EACH = "{% for m in messages %}[{{ m.role }}]CONTENT{% endfor %}"


@pytest.mark.parametrize(
    "source",
    [
        _PARTS,
        _EACH.replace("CONTENT", "{{ m.content[0].text }}"),
        _EACH.replace("CONTENT", "{{ m.content[0]['text'] }}"),
        _EACH.replace(
            "CONTENT",
            "{{ m.content|selectattr('type', 'equalto', 'text')|map(attribute='text')|join('') }}",
        ),
        _EACH.replace(
            "CONTENT", "{% for p in m.content %}{{ p['text'] if 'text' in p }}{% endfor %}"
        ),
        # One role only: each is asked on its own.
        "{% for m in messages %}[{{ m.role }}]{% if m.role == 'user' %}{{ m.content[0].text }}"
        "{% else %}{{ '' + m.content }}{% endif %}{% endfor %}",
        "{% for m in messages %}[{{ m.role }}]{% if m.role != 'user' %}{{ m.content[0].text }}"
        "{% else %}{{ '' + m.content }}{% endif %}{% endfor %}",
        _EACH.replace("CONTENT", "{{ m.content if m.content is string else m.content[0].text }}"),
        _EACH.replace("CONTENT", "{{ m.content }}"),
    ],
)
def test_text_is_given_as_the_template_reads_it(source: str) -> None:
    expected = "[system]Be brief.[user]Hello[assistant]Hi[user]So?"
    template = ChatTemplate(source, bos="", eos="")
    assert template.render(_CHAT) == expected
    assert template.render_answer(_CHAT).text == expected
    assert template.problem is None


def test_thoughts_of_an_answer_in_parts_are_kept() -> None:
    source = _PARTS.replace("[{{ m.role }}]", "[{{ m.role }}|{{ m.reasoning_content }}]")
    conversation = (Turn(USER, "Two?"), Turn(ASSISTANT, "<think>\nHm.\n</think>\n\nFour."))
    assert rendered(source, conversation) == "[user|]Two?[assistant|Hm.]Four."


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}[{{ m.role }}]{{ m.text }}{% endfor %}",
        "{% for m in messages %}[{{ m.role }}]{{ m.content[0] }}{% endfor %}",
        "{% for m in messages %}[{{ m.role }}]{{ m.content|truncate(9) }}{% endfor %}",
        "{% for m in messages %}{% if m.role == 'human' %}{{ m.content }}{% endif %}{% endfor %}",
        "Hello",
    ],
)
def test_a_template_that_loses_the_question_is_refused(source: str) -> None:
    template = ChatTemplate(source, bos="", eos="")
    for question in ("Hi", "Hello", "What is the capital of France, please?"):
        for conversation in ([Turn(USER, question)], [Turn(USER, question), Turn(ASSISTANT, "a")]):
            with pytest.raises(TemplateError, match=r"leaves out the user's text.*[.]$") as caught:
                template.render_answer(conversation)
            assert caught.value.remedy
    assert template.problem is not None
    assert "leaves out the user's text" in template.problem.sentence


def test_a_question_lost_by_its_place_in_the_chat_is_refused() -> None:
    template = ChatTemplate(
        "{% for m in messages[:2] %}[{{ m.content }}]{% endfor %}", bos="", eos=""
    )
    assert template.render_answer(HELLO).text == "[Hello]"
    with pytest.raises(TemplateError, match="leaves out the user's text"):
        template.render_answer(_CHAT[1:])
    assert template.problem is not None


@pytest.mark.parametrize(
    "form", ["m.content|tojson", "m.content|upper", "m.content|replace('.', '')"]
)
def test_a_question_in_another_form_is_not_lost(form: str) -> None:
    source = f"{{% for m in messages %}}[{{{{ {form} }}}}]{{% endfor %}}"
    template = ChatTemplate(source, bos="", eos="")
    assert template.problem is None
    assert template.render_answer([Turn(USER, 'Say "x". é')]).text.startswith("[")


def test_earlier_turns_that_are_left_out_are_said() -> None:
    template = ChatTemplate("[{{ messages[-1].content }}]", bos="", eos="")
    assert template.render_answer(_CHAT[1:]).text == "[So?]"  # as its makers want it
    assert template.problem is not None
    assert "earlier turns" in template.problem.sentence


def test_a_faulty_template_is_said_before_the_first_question() -> None:
    for source in ("{% if %}", "{{ 1/0 }}", "{{ raise_exception('no') }}"):
        assert ChatTemplate(source, bos="", eos="").problem is not None
    assert ChatTemplate(CHATML, bos="", eos="").problem is None


@pytest.mark.parametrize("row", recorded()["rows"], ids=lambda row: row["name"])
def test_recorded_templates_have_no_problem(row: Any) -> None:
    assert ChatTemplate(row["template"], bos=row["bos"], eos=row["eos"]).problem is None


# --- the language of the templates --------------------------------------------------------------

# What Jinja has and a template cannot use: it is refused by name, never left out in silence.
_NO_FILTERS = {
    "pprint": "for debugging", "random": "another prompt at each rendering", "striptags": "of HTML",
    "urlize": "of HTML", "xmlattr": "of HTML",
}  # fmt: skip
_NO_GLOBALS = {"lipsum": "another prompt at each rendering"}
_FILTER_USES = """
    {{ -3|abs }} {{ 'a'|attr('nope') }} {{ [1, 2, 3]|batch(2, 'x')|list }} {{ 'aB'|capitalize }}
    {{ 'a'|center(5) }}| {{ 'ab'|count }} {{ none|d('x', true) }} {{ nope|default('x') }}
    {{ {'b': 1, 'a': 2}|dictsort }} {{ '<'|e }} {{ '<'|escape }} {{ 12345|filesizeformat }}
    {{ [7, 8]|first }} {{ '1.5'|float }} {{ '<'|forceescape }} {{ '%s!'|format('a') }}
    {{ [{'a': 1}, {'a': 2}]|groupby('a') }} {{ 'a\nb'|indent(2) }} {{ '7'|int }}
    {{ {'a': 1}|items|list }} {{ [1, 2]|join('-') }} {{ [7, 8]|last }} {{ [7, 8]|length }}
    {{ 'ab'|list }} {{ 'AB'|lower }} {{ [{'a': 1}, {}]|map(attribute='a', default=0)|list }}
    {{ [1, 2]|max }} {{ [1, 2]|min }} {{ [1, 2]|reject('odd')|list }}
    {{ [{'a': 1}]|rejectattr('a')|list }} {{ 'aa'|replace('a', 'b', 1) }} {{ 'ab'|reverse }}
    {{ 2.7|round }} {{ '<'|safe }} {{ [1, 2]|select('odd')|list }}
    {{ [{'a': 1}]|selectattr('a')|list }} {{ [1, 2, 3]|slice(2)|list }} {{ [2, 1]|sort }}
    {{ 1|string }} {{ [1, 2]|sum }} {{ 'a b'|title }} {{ ' a '|trim }} {{ 'a b c'|truncate(3) }}
    {{ [1, 1]|unique|list }} {{ 'a'|upper }} {{ 'a b&'|urlencode }} {{ {'a': 'b c'}|urlencode }}
    {{ 'a b'|wordcount }} {{ 'aaa bbb ccc'|wordwrap(4) }} {{ 'a b'|wordwrap(2, wrapstring='/') }}
"""
_OTHER_USES = """
    {% set comma = joiner(', ') %}{% for i in 'ab' %}{{ comma() }}{{ i }}{% endfor %}
    {% set row = cycler('x', 'y') %}{{ row.next() }}{{ row.current }}{{ row.next() }}{{ row.reset() }}
    {% set ns = namespace(a=1) %}{% set ns.a = 2 %}{{ ns.a }} {{ dict(a=1) }} {{ dict.fromkeys('ab', 0) }} {{ range(1, 9, 3)|list }}
    {% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i > 2 %}{% break %}{% endif %}
    {{ i }} {{ loop.index0 }} {{ loop.revindex }} {{ loop.previtem }} {{ loop.changed(i // 2) }}
    {{ loop.cycle('a', 'b') }}{% endfor %}{% generation %}g{% endgeneration %}
    {% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{{ caller() if caller }}{% endmacro %}
    {{ m(1, 2, 3, c=4) }}{% call m(1) %}called{% endcall %}{% filter upper %}up{% endfilter %}
    {% set block %}<b>{% endset %}{{ block }}{% with x = 5 %}{{ x }}{% endwith %}{# no #}
    {{ 'abc'.center(7) }} {{ 'a'.ljust(3) }}| {{ 'a'.rjust(3) }} {{ '7'.zfill(3) }}
    {{ 'a'.isidentifier() }} {{ 'a'.isprintable() }} {{ 1 if false }} {{ 'a' in 'ab' }} {{ 3 is odd }}
    {{ documents is none }} {{ documents is defined }} {{ tools is none }}
"""


def _as_in_transformers(source: str, **given: object) -> str:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[*TemplateEnvironment().extensions]
    )
    return environment.from_string(source).render(given)


def test_a_template_has_all_of_jinja_but_a_written_list() -> None:
    plain, ours = ImmutableSandboxedEnvironment(), TemplateEnvironment()
    assert set(plain.filters) - set(ours.filters) == set(_NO_FILTERS)
    assert set(plain.globals) - set(ours.globals) == set(_NO_GLOBALS)
    assert ours.tests == plain.tests
    for name in _NO_FILTERS:
        with pytest.raises(TemplateError, match=name):
            rendered(f"{{{{ 'a'|{name} }}}}")
    for name in _NO_GLOBALS:
        with pytest.raises(TemplateError, match=name):
            rendered(f"{{{{ {name}() }}}}")


@pytest.mark.parametrize("source", [_FILTER_USES, _OTHER_USES])
def test_the_language_is_that_of_transformers(source: str) -> None:
    given = {"messages": [], "documents": None, "tools": None, "add_generation_prompt": True}
    assert ChatTemplate(source, bos="", eos="").render(()) == _as_in_transformers(source, **given)


def test_every_filter_was_compared() -> None:
    own = {"tojson"}  # of transformers, not of Jinja: see test_tojson_is_python_json
    used = {name for name in TemplateEnvironment().filters if f"|{name}" in _FILTER_USES}
    assert set(TemplateEnvironment().filters) - used == own


def test_special_tokens_of_the_file_are_variables() -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% endfor %}{{ bos_token }}{{ eos_token }}"
        "{{ unk_token }}{{ pad_token }}{{ sep_token is defined }}{{ mask_token is defined }}"
    )
    metadata: dict[str, object] = {
        "tokenizer.chat_template": source,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "<pad>"],
        "tokenizer.ggml.token_type": [2, 3, 3, 3],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 3,
        "tokenizer.ggml.mask_token_id": 99,
    }
    template = ChatTemplate.from_metadata(metadata, Tokenizer.from_metadata(metadata))
    assert template.render(HELLO) == "Hello<s></s><unk><pad>FalseFalse"
