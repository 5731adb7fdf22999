"""Embedding prompts: the words that an embedding model wants before a question and a passage.

A model that was trained with these prefixes finds less without them. A model file does not contain
them, so the model's family is detected by architecture and name. Sources: the model cards.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from engine import EmbedderFacts

_TASK = "Given a web search query, retrieve relevant passages that answer the query"
_BGE = "Represent this sentence for searching relevant passages: "


@dataclass(frozen=True, slots=True)
class EmbeddingPrompts:
    """What is written before a question and before a passage."""

    query: str = ""
    document: str = ""


# The first row whose pattern is in "architecture name file" of a model, in lower case; in the order
# in which one is preferred where several are installed: several languages first.
_FAMILIES: tuple[tuple[str, EmbeddingPrompts], ...] = (
    (
        r"^gemma-embedding ",
        EmbeddingPrompts("task: search result | query: ", "title: none | text: "),
    ),
    (r"^qwen3 ", EmbeddingPrompts(f"Instruct: {_TASK}\nQuery:")),
    (r"bge-?m3", EmbeddingPrompts()),
    (r"e5\b.*instruct", EmbeddingPrompts(f"Instruct: {_TASK}\nQuery: ")),
    (r"multilingual-e5", EmbeddingPrompts("query: ", "passage: ")),
    (r"arctic-embed.*v2", EmbeddingPrompts("query: ")),
    (r"^nomic-bert ", EmbeddingPrompts("search_query: ", "search_document: ")),
    (r"bge\b.*\bzh\b", EmbeddingPrompts("为这个句子生成表示以用于检索相关文章\uff1a")),
    (r"bge\b|mxbai|arctic-embed", EmbeddingPrompts(_BGE)),
    (r"\be5\b", EmbeddingPrompts("query: ", "passage: ")),
    (r"", EmbeddingPrompts()),  # MiniLM, GTE and others are given the text alone
)


def _family(model: EmbedderFacts) -> int:
    title = re.sub(r"[\s_]+", "-", f"{model.title} {Path(model.path).name}".lower())
    text = f"{model.architecture} {title}"
    return next(at for at, (pattern, _) in enumerate(_FAMILIES) if re.search(pattern, text))


def prompts_of(model: EmbedderFacts) -> EmbeddingPrompts:
    """What is written before the texts that a model is given."""
    return _FAMILIES[_family(model)][1]


def preference(model: EmbedderFacts) -> tuple[int, int, str]:
    """Sorts models: the one to use first. Of one family the smaller, which is faster."""
    return _family(model), model.file_bytes, str(model.path)


def vectors_id(model: EmbedderFacts, most_tokens: int) -> str:
    """Name of the vectors that a model makes of documents: those of another name are not comparable."""
    made_by = f"{model.weights} {prompts_of(model).document} {most_tokens}"
    return hashlib.sha256(made_by.encode()).hexdigest()[:24]
