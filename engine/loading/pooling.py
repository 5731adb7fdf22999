"""Pooling and ranking keys of a model file: what its hidden states of a text become."""

from __future__ import annotations

from engine.errors import ModelFileError
from engine.gguf.reader import GGUFFile
from engine.messages import Pooling

# Values of the key `<architecture>.pooling_type`; 0 means that the file names none.
_BY_NUMBER = {1: Pooling.MEAN, 2: Pooling.CLS, 3: Pooling.LAST}
_RANK = 4  # a score instead of a vector


def named_pooling(file: GGUFFile) -> str:
    """The pooling that the file names, as `info` shows it; "" if it names none."""
    number = _number(file)
    return "rank" if number == _RANK else _BY_NUMBER[number].value if number else ""


def pooling_of(file: GGUFFile, otherwise: Pooling = Pooling.LAST) -> Pooling:
    """The pooling that the file names, or `otherwise`; raises ModelFileError for another number."""
    return _BY_NUMBER.get(_number(file), otherwise)


def rank_template(file: GGUFFile) -> str:
    """The text with {query} and {document} that a reranker reads; "" if the file names none."""
    found = file.string("tokenizer.chat_template.rerank", "")
    if found and not ("{query}" in found and "{document}" in found):
        raise ModelFileError(
            "The key 'tokenizer.chat_template.rerank' has no {query} or no {document}.",
            "The file is made by a faulty converter; get another copy.",
        )
    return found


def _number(file: GGUFFile) -> int:
    name = file.string("general.architecture")
    return file.integer(f"{name}.pooling_type", 0, minimum=0, maximum=_RANK)
