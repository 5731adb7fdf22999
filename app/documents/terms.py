"""Terms of the document index: how texts are folded for FTS5, and a question turned into a query.

FTS5 splits at everything that is no letter, digit, mark or symbol, and stems English words. Scripts
without spaces are indexed by pairs of letters, and names such as `readFile` also by their words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from app.documents.passages import UNSPACED
from app.system.text_search import normalize, normalize_query

TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* M* Co So'"
MOST_TERMS = 64  # of a question; what comes after them is not looked for
_LONGEST_TERM = 100  # characters

_RUN = re.compile(f"[{UNSPACED}]+")
_INNER_CAPITAL = re.compile(r"[a-z][A-Z]")
_NAME = re.compile(r"[A-Za-z0-9]{4,60}")
_NAME_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PHRASE = re.compile(r'"([^"]+)"')
_WORD = re.compile(r"[^\s!-/:-@\[-`{-~\u00a1-\u00a9\u00ab-\u00b1\u00bf\u2000-\u206f\u3000-\u3003]+")

# Words of questions and sentences that say nothing about what is looked for, folded.
_STOP_WORDS = """
a about after all also am an and any are as at be been before being but by can could did do does
doing for from had has have having he her hers him his how i if in into is it its just many may me
might more most much must my no nor not of on once only or our out over please shall she should so
some such tell than that the their them then there these they this those to too under until up us
very was we were what when where which while who whom whose why will with within without would you
your
aber als am an auch auf aus bei bin bis da das dass dein dem den der des die dies diese dieser dir
du durch ein eine einem einen einer eines er es fur hat haben ich ihr im in ist ja kann kein keine
man mein mir mit nach nicht noch nur oder ob ohne sein sich sie sind so und uns unter vom von vor
wann war waren warum was wegen welche welcher welches wenn wer werden wie wieder wir wird wo zu zum
zur
au aux avec ce ces cette comment dans de des du elle en est et eux il ils je la le les leur lui ma
mais mes mon ne nos notre nous ou par pas pour pourquoi quand que quel quelle quelles quels qui sa
sans se ses son sont sur ta tes ton tu un une votre vous
al como con cual cuando cuanto del donde el ella en entre era esta este esto fue ha hay las lo los
mas mi muy nos para pero por porque que quien se ser si sin sobre son su sus una uno y ya
che chi ci come con cosa da dal della delle di dove e gli ha il io le lo ma nel nella non per perche
piu quale quali quando quanto questa questo sono sua suo tra un una
"""


@cache
def _stop_words() -> frozenset[str]:
    return frozenset(_STOP_WORDS.split())


@dataclass(frozen=True, slots=True)
class Question:
    """What is looked for, as strings of FTS5."""

    phrases: tuple[str, ...] = ()  # that were in quotes
    terms: tuple[str, ...] = ()


def folded(text: str) -> str:
    """A text as FTS5 gets it: folded, and in pairs of letters where no spaces separate words."""
    plain = normalize(text)
    return plain if plain.isascii() else _RUN.sub(_spaced_pairs, plain)


def name_words(text: str) -> str:
    """The words of names with inner capitals, such as those of `readFile`; "": there are none."""
    if not _INNER_CAPITAL.search(text):
        return ""
    names = (name for name in _NAME.findall(text) if _INNER_CAPITAL.search(name))
    return " ".join(word for name in names for word in _NAME_BORDER.split(name))


def question(text: str) -> Question:
    """The phrases and terms of a question, each once; stop words only if there is nothing else."""
    plain = normalize_query(text)
    phrases = [" ".join(_terms(phrase)) for phrase in _PHRASE.findall(plain)[:MOST_TERMS]]
    words = list(dict.fromkeys(_terms(_PHRASE.sub(" ", plain))))
    words += [w.lower() for w in name_words(text[:10_000]).split()]
    telling = [word for word in words if word not in _stop_words()]
    if not telling and not phrases:
        telling = words
    return Question(
        tuple(_quoted(each) for each in dict.fromkeys(phrases) if each),
        tuple(_quoted(each) for each in dict.fromkeys(telling[:MOST_TERMS])),
    )


def _terms(plain: str) -> list[str]:
    """The words of a folded text, and the pairs of letters of those without spaces."""
    found: list[str] = []
    for word in _WORD.findall(plain[:100_000]):
        found += _RUN.sub(_spaced_pairs, word[:_LONGEST_TERM]).split()
    return found


def _spaced_pairs(run: re.Match[str]) -> str:
    text = run[0]
    pairs = [text[at : at + 2] for at in range(len(text) - 1)] or [text]
    return f" {' '.join(pairs)} "


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'
