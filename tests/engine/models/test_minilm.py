"""A real embedding model: its vectors are those of a plain definition over its own tokenizer."""

from __future__ import annotations

import random

import pytest
import torch

import minilm
from engine.loading.loader import LoadedModel, load
from engine.messages import Pooling
from sessions import finish

pytestmark = pytest.mark.slow
LEAST = {"F32": 0.99999, "F16": 0.9999, "Q8_0": 0.998}  # cosine

_MIXED = (
    "the of lease tenant pays monthly reactor sample pH temperature 37.5 °C boil flour oven train departs "
    "platform dosage tablet insurer premium valve torque Straße naïve café résumé Ångström Ελλάδα "
    "Москва हिन्दी ไทย العربية עברית 日本語 中文 한국어 emoji 🙂 👩‍👩‍👧 don't it's e-mail x_y a/b (c) [d] {e} <f> & | \\ ~ ` ^ ½ ﬁ "
    "1,000,000 2026-11-27 http://example.org/a?b=c user@example.org"
)
_WORDS = _MIXED.split()
TEXTS = (
    "A lease ends after three months' notice.",
    "",
    " ",
    "\n\t\n",
    "UPPER and lower Ünïcödé, straße, İstanbul.",
    "今天天气很好，我们去公园散步吧。",
    "日本語の文章も読めるはずです。",
    "مرحبا بالعالم، كيف حالك اليوم؟",
    "🙂🎉👩‍👩‍👧‍👦 flags 🇩🇪🇨🇳 and hearts ❤️",
    "word" * 60,  # longer than a word may be: unknown
    "a" * 101,
    "[CLS] [SEP] [MASK] are plain text",
    "x\u200by\u00ad z\u00a0w \ufeff",
    "tab\tseparated\tvalues\r\nand lines",
    "def f(x):\n    return {**x, 'a': 1}  # code",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    *(
        " ".join(random.Random(seed).choices(_WORDS, k=length))
        for seed, length in enumerate(
            [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 120, 144, 200, 300, 700] * 3
        )
    ),
)


@pytest.fixture(scope="module", params=["F32", "F16", "Q8_0"])
def model(request: pytest.FixtureRequest) -> LoadedModel:
    return load(minilm.model(request.param), embeddings=True)


def vectors(model: LoadedModel, texts: tuple[str, ...]) -> torch.Tensor:
    made = model.new_embedder()
    rows = finish(made.vectors(made.tokens(texts, lambda: None), Pooling.MEAN), made.scheduler)
    return torch.tensor(rows, dtype=torch.float64)


def test_tokens_are_those_of_its_own_tokenizer(model: LoadedModel) -> None:
    found = model.new_embedder().tokens(TEXTS, lambda: None)
    odd = {"[CLS] [SEP] [MASK] are plain text"}  # which the tokenizer reads as control tokens
    for text, ids in zip(TEXTS, found, strict=True):
        if text not in odd:
            assert ids == minilm.tokenizer().encode(text).ids, text


def test_vectors_are_those_of_the_definition(model: LoadedModel) -> None:
    texts = tuple(text for text in TEXTS if "[CLS]" not in text)
    expected = torch.stack([minilm.vector(text) for text in texts])
    cosines = (vectors(model, texts) * expected).sum(1)
    assert float(cosines.min()) >= LEAST[model.format], texts[int(cosines.argmin())]


def test_a_text_has_the_same_bits_alone_and_among_others(model: LoadedModel) -> None:
    together = vectors(model, TEXTS)
    for at in range(0, len(TEXTS), 7):
        assert torch.equal(vectors(model, TEXTS[at : at + 1])[0], together[at])
