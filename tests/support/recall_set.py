"""Question set of retrieval: documents, questions, and the span of a document that answers each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.domain.documents import FoundPassage

FOLDER = Path(__file__).parents[1] / "app" / "documents" / "recall"
LIMIT = 5  # passages that are looked at

# Words that carry no topic.
_STOP_WORDS = (
    "a about after again all also am an and another any anyone are as at away be because been before being below both but "
    "by can cannot could did do does down during each else even ever every few first for from further get had has "
    "have having he her here hers him his how i if in into is it its itself just let like long many may me might "
    "more most much must my myself need never no nor not now of off on once one only or other our out over own "
    "people per s same she should since so some somebody someone still such t than that the their them then there these they this "
    "those though through to too two under until up upon us used using very was we were what when where whether which "
    "while who whole whom whose why will with without would yet you your make made take use"
)
_STOP = frozenset(_STOP_WORDS.split())
_ENDING_WORDS = (
    "ational fulness iveness ization ations ingly ation ments ness ment ings able ible ally edly"
    " ing ies ied ers est ful ity ive ous ion ed er es ly al s e y"
)
_ENDINGS = _ENDING_WORDS.split()


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the characters of a document that answer it."""

    text: str
    document: str  # file name
    start: int
    end: int
    answer: str  # those characters

    @property
    def shared(self) -> frozenset[str]:
        """Stems of words with a meaning that question and answer both have."""
        return stems(self.text) & stems(self.answer)


def documents(folder: str = "documents") -> dict[str, str]:
    """The texts of the documents by file name."""
    paths = sorted((FOLDER / folder).iterdir())
    return {path.name: path.read_text("utf-8") for path in paths if path.name != "questions.txt"}


def questions(folder: str = "") -> list[Question]:
    """The questions, in the order of their documents; fails for an answer that is not there once."""
    texts = documents(folder or "documents")
    made: list[Question] = []
    document = question = ""
    for line in (FOLDER / folder / "questions.txt").read_text("utf-8").splitlines():
        kind, _, value = line.partition(" ")
        if kind == "D":
            document = value
        elif kind == "Q":
            question = value
        elif kind == "A":
            assert texts[document].count(value) == 1, f"{document}: {value}"
            start = texts[document].index(value)
            made.append(Question(question, document, start, start + len(value), value))
    return made


def stems(text: str) -> frozenset[str]:
    """The stems of the words of a text that have a meaning, coarsely."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return frozenset(_stem(word) for word in words if word not in _STOP and len(word) > 1)


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


@dataclass(frozen=True, slots=True)
class Recall:
    """How well a search answers questions."""

    recall: float  # share of questions with a passage of the answer among the first `LIMIT`
    rank: float  # mean of 1 / its rank among these; 0 where there is none
    missed: tuple[Question, ...]

    def __str__(self) -> str:
        return f"recall@{LIMIT} {self.recall:.3f}, MRR {self.rank:.3f}"


def measure(
    asked: Sequence[Question], search: Callable[[Question], Iterable[FoundPassage]]
) -> Recall:
    """Ask all questions; a passage counts that overlaps the answer's span."""
    ranks: list[float] = []
    for one in asked:
        found = list(search(one))[:LIMIT]
        hits = [
            at
            for at, span in enumerate(found, 1)
            if span.key == one.document and span.start < one.end and one.start < span.end
        ]
        ranks.append(1 / hits[0] if hits else 0.0)
    missed = tuple(one for one, rank in zip(asked, ranks, strict=True) if not rank)
    return Recall(sum(map(bool, ranks)) / len(ranks), sum(ranks) / len(ranks), missed)
