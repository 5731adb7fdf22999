"""Titles without greetings and polite openings, in the languages of the window."""

from __future__ import annotations

import pytest

from app.chat.chat_list.conversations import title_of
from app.domain.parts import TextPart

TITLES = {
    # English
    "Hi, could you please tell me how tides work? I need it for school.": "How tides work?",
    "hey there can you write a poem about the sea": "Write a poem about the sea",
    "Good morning. Thanks! Explain relativity.": "Explain relativity",
    "Please summarise this:\n\nLong text here": "Summarise this",
    "I would like to know what a monad is.": "What a monad is",
    "Hi how are you": "How are you",
    "could you please tell me iPhone prices": "iPhone prices",
    # what only looks like an opening
    "Hello world in C": "Hello world in C",
    "Hi-fi systems": "Hi-fi systems",
    "请假条怎么写": "请假条怎么写",
    "你好吗": "你好吗",
    "你能做什么？": "你能做什么？",
    "可以吃生鸡蛋吗": "可以吃生鸡蛋吗",
    # sentences
    "What is Dr. House about? Tell me.": "What is Dr. House about?",
    "Is version 3.5 better? Yes or no.": "Is version 3.5 better?",
    "OK. Write a poem. It should be long.": "OK. Write a poem",
    "Translate to German\nThe house is big": "Translate to German",
    # other languages
    "Hallo, könntest du mir bitte sagen, wie man Brot backt?": "Wie man Brot backt?",
    "Kannst du mir ein Gedicht schreiben?": "Ein Gedicht schreiben",
    "Bonjour, pourriez-vous m'expliquer pourquoi le ciel est bleu ?": (
        "Pourquoi le ciel est bleu ?"
    ),
    "Hola, ¿podrías decirme cómo funciona un motor? Gracias": "¿Cómo funciona un motor?",
    "Por favor, dime qué hora es en Madrid.": "Qué hora es en Madrid",
    "Olá, você poderia me dizer como fazer pão?": "Como fazer pão?",
    "Ciao, potresti spiegarmi perché il cielo è blu?": "Perché il cielo è blu?",
    "Привет! Подскажите, пожалуйста, как испечь хлеб?": "Как испечь хлеб?",
    "你好，请问天空为什么是蓝色的？谢谢": "天空为什么是蓝色的？",
    "こんにちは。空はなぜ青いのですか？教えてください。": "空はなぜ青いのですか？",
    "안녕하세요, 하늘은 왜 파란가요?": "하늘은 왜 파란가요?",
    "السلام عليكم، هل يمكنك أن تخبرني كيف أطبخ الأرز؟": "كيف أطبخ الأرز؟",
    # never empty
    "Hi": "Hi",
    "Hello!": "Hello!",
    "Can you": "Can you",
    "...": "...",
    "请": "请",
}


@pytest.mark.parametrize(("text", "title"), TITLES.items())
def test_a_title_is_the_first_sentence_without_its_opening(text: str, title: str) -> None:
    assert title_of((TextPart(text),)) == title


def test_a_long_first_sentence_is_cut_at_a_word() -> None:
    title = title_of((TextPart("Hi, please explain " + "very " * 30 + "slowly."),))
    assert title.startswith("Explain very")
    assert title.endswith("very…")
    assert len(title) <= 61
