"""Finds code that was pasted into a message without a fence, so that it is shown as code.

Lines between blank lines are code if most of them look like lines of a program, of data or of a
terminal. It only decides how a message of the user looks: a wrong guess changes no character.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_MOST_SHARE = 0.6  # of the lines of a chunk look like code
_MOST_LINES = 1000  # a longer text is judged by its first lines, as a whole
_MOST_CHARACTERS = 400  # of a line that are looked at
_STRONG_SHARE = 0.3  # of them cannot be prose

# Lines that hardly occur in prose.
_STRONG = re.compile(
    r"""
    ^(?:
        (?:async\s+)?def\s+\w+\s*\( | class\s+\w+\s*[({:<] | @\w[\w.]*(?:\(.*\))?$
      | from\s+[\w.]+\s+import\s | import\s+(?:[\w.]+(?:\s+as\s+\w+)?;?$|[\w.]+(?:,\s*[\w.]+)+$|[{*"'])
      | import\s+.+\s+from\s+["'] | (?:export\s+)?(?:default\s+)?(?:async\s+)?function\b.*\(
      | (?:pub\s+|unsafe\s+)*fn\s+\w+ | func\s+(?:\(.*\)\s*)?\w+\s*\( | package\s+\w[\w.]*;?$
      | (?:export\s+)?(?:const|let|var|val|auto)\s+[\w{\[].*?[=:;] | \#\s*(?:include|define|ifn?def|endif|pragma)\b
      | (?:public|private|protected|static|final|unsigned|inline|extern|virtual)\s+[\w<>\[\],\s*&]+[({;=]
      | (?:int|long|float|double|char|bool|void|size_t|string|auto)\s+[*&]?\w+\s*(?:[=;(\[,]|$)
      | (?:else\s+)?(?:if|for|while|switch|catch|elseif|foreach)\s*\(.*\)?\s*\{?$
      | (?:if|elif|for|while|with|except|match|case|async\s+for|async\s+with)\s+.*:$ | (?:else|try|finally|do):?\s*\{?$
      | (?:SELECT|INSERT\s+INTO|UPDATE|DELETE\s+FROM|FROM|WHERE|(?:LEFT\s+|INNER\s+)?JOIN
         |GROUP\s+BY|ORDER\s+BY|CREATE\s+TABLE|VALUES|LIMIT)\s+[\w(*"'`$@.]
      | (?:\$|>>>|\.\.\.|PS\ .*>|C:\\.*>|\w+@[\w-]+:.*[$\#])\s+\S | <[/!?]?[A-Za-z][^<>]*>(?:.*</[\w-]+>)?\s*$
      | "(?:[^"\\]|\\.)*"\s*: | [\[\](){}]+[,;)]*$ | \[[\w.\s"-]+\]$
      | Traceback\ \(most | File\ ".*",\ line\ \d | at\ [\w.$<>]+\(.*\)$ | [\w.]*(?:Error|Exception|Warning):\s
      | @@\ .*\ @@ | (?:---|\+\+\+)\ \S | [├└│┌┐┘╰╭|+][─\-|\ ─├└│+=]{2,}
      | //.*$ | /\*.* | \*/$ | --\s*\w.*$ | \#!/ | \.[\w-]+\s*\{ | <\?
      | (?:sudo|git|pip|npm|docker|cd|ls|echo|export|source|chmod|curl|apt(?:-get)?|cargo|make|python3?)\s+[\w./"'$~-]+[^.!?]*$
      | (?:fi|done|esac|end|endif|then)$ | impl\b.*\{$ | (?:return|yield|raise|throw|await)\b[^.!?,]*[;)\]]$ | return$ | return\s+\S{1,40}$
    )
  | [;{]\s*(?://.*|/\*.*)?$ | ^\}
  | ^[\w.$@&*\[\]"'(),\ ]{1,60}?\s*(?::=|[-+*/|&^%]?=|=>|<-|<<=)\s*[\w"'\[({<$&*@!.+-]
  | (?:=>|->|&&|\|\||::|\+\+|==|!==?|<=|>=)\s*\S
  | ^[\w.$:!]+\(.*\)\s*[;:]?$ | \)\s*(?:=>|->)
  | \\$
    """,
    re.VERBOSE,
)
# Lines that are code beside others: a key with a value, what is indented, a comment.
_KEY = re.compile(r"^\s*(?:-\s+)?[\w./$\"'-]+:(?:\s+\S.*)?$")
_VALUE = re.compile(r"^\s*-\s+\S+$")  # of a list in YAML
_INDENTED = re.compile(r"^(?: {2}|\t)\s*\S")
_COMMENT = re.compile(r"^\s*(?:#|//|--|;|%|/?\*)")
_ITEM = re.compile(r"^\s*(?:[-*+\u2022\u2023\u2013]|\d{1,3}[.)]|[a-z]\))\s+(?!\w+:(?:\s|$))")
_COLUMNS = re.compile(r"[^\s.!?:;,]( {2,}|\t+| \| )\S")
_WORD = re.compile(r"[\w'\u2019-]+[\"')\u201d\u2019]*[.!?\u2026;,:]*[\"')\u201d\u2019]*")
_SYMBOLS = re.compile(r"[=(){}\[\]<>|\\$@#&*]|\w\.\w|\w/\w|['\"]\w+['\"]\s*[,:)\]]")


def code_runs(lines: Sequence[str]) -> list[tuple[int, int]]:
    """The runs [start, end) of lines that are code, without blank lines at their ends."""
    runs: list[tuple[int, int]] = []
    chunks = _chunks(lines)
    if len(lines) > _MOST_LINES:
        sample = code_runs(lines[:_MOST_LINES])
        code = sum(end - start for start, end in sample) >= _MOST_SHARE * _MOST_LINES
        return [(chunks[0][0], chunks[-1][1])] if code else []
    kinds = [_is_code(lines[start:end]) for start, end in chunks]
    for order in (range(len(chunks)), reversed(range(len(chunks)))):
        for number in order:  # a line by itself is code beside code
            start, end = chunks[number]
            if end - start == 1 and any(kinds[max(number - 1, 0) : number + 2]):
                kinds[number] = kinds[number] or _is_strong(lines[start][:_MOST_CHARACTERS])
    for number, (start, end) in enumerate(chunks):
        if kinds[number]:
            if runs and runs[-1][1] == chunks[number - 1][1]:
                runs[-1] = runs[-1][0], end
            else:
                runs.append((start, end))
    return runs


def _chunks(lines: Sequence[str]) -> list[tuple[int, int]]:
    """The runs [start, end) of lines that are not blank."""
    chunks: list[tuple[int, int]] = []
    for at, line in enumerate(lines):
        if not line.strip():
            continue
        if chunks and chunks[-1][1] == at:
            chunks[-1] = chunks[-1][0], at + 1
        else:
            chunks.append((at, at + 1))
    return chunks


def _is_strong(line: str) -> bool:
    """Whether a line hardly occurs in prose."""
    return bool(_STRONG.search(" ".join(line.split()))) and not _is_sentence(line)


def _is_sentence(line: str) -> bool:
    """Whether a line ends with five words, and has no symbol of a program."""
    words = line.split()
    ends = all(_WORD.fullmatch(word) for word in words[-5:])
    return len(words) >= 5 and ends and not _SYMBOLS.search(line)


def _is_code(chunk: Sequence[str]) -> bool:
    """Whether most lines of a chunk look like code."""
    chunk = [line[:_MOST_CHARACTERS] for line in chunk]
    count = len(chunk)
    if count < 2:
        return False
    strong = sum(map(_is_strong, chunk))
    prose = [_is_sentence(line) for line in chunk]
    items = [bool(_ITEM.match(line)) for line in chunk]
    indented = sum(bool(_INDENTED.match(line)) for line in chunk)
    keys = sum(bool(_KEY.match(line)) for line in chunk)
    values = sum(bool(_VALUE.match(line)) for line in chunk)
    if keys + values == count and keys > values and indented and not any(prose):
        return True  # YAML
    columns = sum(bool(_COLUMNS.search(line)) for line in chunk)
    if count >= 3 and columns >= 0.8 * count and not any(items):
        return True  # the output of a program
    weak = sum(
        not is_prose
        and not is_item
        and bool(_INDENTED.match(line) or _KEY.match(line) or _COMMENT.match(line))
        and not _is_strong(line)
        for line, is_prose, is_item in zip(chunk, prose, items, strict=True)
    )
    return strong >= _STRONG_SHARE * count and strong + weak >= _MOST_SHARE * count
