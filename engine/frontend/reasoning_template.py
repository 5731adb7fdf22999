"""Thought markers: how a model's thoughts begin and end, found from its chat template.

A conversation whose answer has thoughts is rendered and compared with the prompt of an answer, with
thinking on and off. So no list of model names is needed, and a template's white space is known too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from engine.messages.reasoning_markers import BLOCKS, Message, ThoughtMarkers, thought_blocks

# Renders messages; None: the template refuses them.
Render = Callable[[Sequence[Message], Mapping[str, object]], str | None]

_QUESTION, _THOUGHT, _ANSWER = "Well-known", "Considering", "Certainly"
_FIELDS = ("reasoning_content", "reasoning", "thinking")  # of a message, for its thoughts
_LONGEST = 120  # characters of a marker
_TAG = re.compile(r"(<[^<>\s]+>|\[[A-Z_]+\])\s*\Z")
# An empty thought: a tag, perhaps with a name behind it, white space, and the tag that closes it.
_EMPTY = re.compile(
    r"(<\|?START_(\w+)\|?>)(\s*)(<\|?END_\2\|?>)"
    r"|(<([\w:]+)>)(\s*)(</\6>)"
    r"|(<\|(\w+)>\w*)(\s*)(<\10\|>)"
    r"|(\[([A-Z_]+)\])(\s*)(\[/\14\])"
)
_EMPTY_PARTS = (1, 3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16)  # groups: all but the names
_NONE = re.compile(r"""(['"])none\1""")  # a degree of thinking: a text, unlike Jinja's none
# Pairs of tokens that some vocabularies have, where the template does not show any.
_KNOWN = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|channel>thought", "<channel|>"),
)


def thinking_options(thinking: bool | None, source: str) -> dict[str, object]:
    """The variables by which templates switch thinking; none for their default.

    A template with degrees of it is asked for the highest, or for the lowest that its source names.
    """
    if thinking is None:
        return {}
    options: dict[str, object] = {"enable_thinking": thinking, "thinking": thinking}
    if "reasoning_effort" in source:
        lowest = "none" if _NONE.search(source) else "low"
        options["reasoning_effort"] = "high" if thinking else lowest
    return options


def find_markers(source: str, render: Render, has_token: Callable[[str], bool]) -> ThoughtMarkers:
    """The markers of a template with this source; `has_token` looks a text up in the vocabulary."""
    question = {"role": "user", "content": _QUESTION}
    tails: list[str] = []  # of the prompt of an answer: by default, with thinking and without
    for thinking in (None, True, False):
        prompt = render([question], thinking_options(thinking, source))
        if prompt is None and not tails:
            return _of_vocabulary(source, has_token)
        if prompt is not None and (tail := _after_question(prompt)) not in tails:
            tails.append(tail)
    return (
        _of_conversation(render, question, tails)
        or _of_prompts(source, tails)
        or _of_vocabulary(source, has_token)
    )


def _of_conversation(
    render: Render, question: Message, tails: Sequence[str]
) -> ThoughtMarkers | None:
    """The markers around the thoughts of an answer that the template is given."""
    plain: Message = {"role": "assistant", "content": _ANSWER}
    for field in (*_FIELDS, BLOCKS):
        content = thought_blocks(_THOUGHT, _ANSWER) if field == BLOCKS else _ANSWER
        answer = plain | {"content": content} | ({} if field == BLOCKS else {field: _THOUGHT})
        text = render([question, answer], {"add_generation_prompt": False})
        before, thought, after = _after_question(text or "").partition(_THOUGHT)
        closing, said, _ = after.partition(_ANSWER)
        if not (thought and said and 0 < len(closing.strip()) <= _LONGEST):
            continue
        if any(mark in closing for mark in ("'type'", '"type"')):  # a list as text
            continue
        opens = _opens(before, closing.strip(), tails)
        if 0 < len(opens) <= _LONGEST:
            return _with_header(ThoughtMarkers(opens, closing.strip(), closing), tails, field)
    return None


def _opens(before: str, ends: str, tails: Sequence[str]) -> str:
    """The opening marker at the end of the text before thoughts."""
    for tail in sorted(tails, key=len):
        if before.startswith(tail) and (rest := before[len(tail) :].strip()):
            return rest  # the model writes it
        rest = tail[len(before.rstrip()) :].strip() if tail.startswith(before.rstrip()) else ""
        if rest and rest != ends:
            return rest  # only the prompt of an answer has it
    tag = _TAG.search(before)
    return tag[1] if tag else ""


def _with_header(markers: ThoughtMarkers, tails: Sequence[str], field: str) -> ThoughtMarkers:
    """With what the answer's message begins with, where thoughts are a message before it."""
    header = again = ""
    for tail in tails:
        ends = markers.ends
        starts = [at for at in range(len(tail)) if tail[at] in "<[" and tail[at:] in ends]
        start = next((tail[at:] for at in starts if not ends.startswith(tail[at:])), "")
        if start and start.strip() != markers.opens:
            end, _, header = ends.partition(start)
            again = end + start + markers.opens
            break
    return replace(markers, header=header, again=again, field=field, can_think=True)


def _of_prompts(source: str, tails: Sequence[str]) -> ThoughtMarkers | None:
    """The markers of the thoughts that a prompt of an answer begins, or that it has empty."""
    for tail in tails:
        found = list(_EMPTY.finditer(tail))
        if found and not tail[found[-1].end() :].strip():
            opens, space, ends = (one for one in found[-1].group(*_EMPTY_PARTS) if one is not None)
            trail = tail[found[-1].end() :]
            if space == "\n" and not trail and ends.startswith("</"):
                return ThoughtMarkers(opens, ends, f"\n{ends}\n\n", can_think=True)
            return ThoughtMarkers(opens, ends, space[1:] + ends + trail, can_think=True)
    for tail in tails:
        if tag := _TAG.search(tail):
            ends = tag[1][0] + "/" + tag[1][1:]
            if ends in source or any(ends in other for other in tails):
                is_spaced = tail.endswith("\n")
                closing = f"\n{ends}\n\n" if is_spaced else ends
                return ThoughtMarkers(tag[1], ends, closing, can_think=True)
    return None


def _of_vocabulary(source: str, has_token: Callable[[str], bool]) -> ThoughtMarkers:
    """The markers that the template's source names, or that the vocabulary has."""
    for opens, ends in _KNOWN:
        if ends in source:
            return ThoughtMarkers(opens, ends, f"\n{ends}\n\n", can_think=True)
    for opens, ends in _KNOWN:
        first = opens.partition(">")[0] + ">" if opens.startswith("<") else opens
        if has_token(first) and has_token(ends):
            return ThoughtMarkers(opens, ends, f"\n{ends}\n\n")
    return ThoughtMarkers()


def _after_question(prompt: str) -> str:
    return prompt.rpartition(_QUESTION)[2]
