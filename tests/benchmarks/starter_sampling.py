"""Share of plain questions the starter model answers right, at several sampling settings.

Sixty questions with known answers; an answer is right if one of the accepted words is in its first
`MOST` tokens. Every setting is asked with the same seeds. The suggestions of the empty page are
asked ten times with the best setting, to be read by a person: their answers are printed.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[2]))

from app.library.recommended_sampling import with_recommended
from app.settings.table import Settings, sampling
from app.ui.chat.empty_view import SUGGESTIONS
from engine import Sampling, starter_path
from engine_bench import Bench, answer_text

TABLE = Path(__file__).with_suffix(".md")
MOST = 48  # tokens of an answer that are judged
CONTEXT = 1_024
SEEDS = (1, 2, 3, 4)
CHOSEN = sampling(with_recommended(Settings(), starter_path()))  # what the app uses
SAMPLINGS = (
    sampling(Settings()),
    replace(CHOSEN, temperature=0.5),
    CHOSEN,
    replace(CHOSEN, repeat_penalty=1.0),
    replace(CHOSEN, repeat_penalty=1.05),
    replace(CHOSEN, temperature=0.2, top_k=0, top_p=0.9, min_p=0.0),
    replace(CHOSEN, temperature=0.2, min_p=0.1),
    replace(CHOSEN, temperature=0.0),
)
OPEN_MOST, OPEN_SEEDS = 500, (1, 2)  # of the open questions
REPEATED_WORDS, REPEATED = 8, 3  # an answer repeats itself: so many words in a row, so often
OPEN_QUESTIONS = (
    "Explain what a tree is.",
    "Tell me about Paris.",
    "How do I cook rice?",
    "Write a short story about a cat.",
    "Give me three tips for a job interview.",
    "What is love?",
    "How does a car engine work?",
    "Write an email to my landlord about the heating.",
    "What should I eat for breakfast?",
    "Describe the ocean.",
    "How can I save money?",
    "Explain gravity to a child.",
    "List five animals that live in the forest.",
    "What is the difference between weather and climate?",
    "Tell me a joke.",
    "Plan a weekend in Rome.",
)
# Each question with the words of which one must be in the answer, in lower case.
QUESTIONS = (
    ("What is the capital of France?", "paris"),
    ("What is the capital of Italy?", "rome"),
    ("What is the capital of Germany?", "berlin"),
    ("What is the capital of Spain?", "madrid"),
    ("What is the capital of Japan?", "tokyo"),
    ("What is the capital of England?", "london"),
    ("What is the capital of Russia?", "moscow"),
    ("What is the capital of China?", "beijing"),
    ("What is the capital of Egypt?", "cairo"),
    ("What is the capital of Greece?", "athens"),
    ("What is the capital of Canada?", "ottawa"),
    ("What is the capital of Portugal?", "lisbon"),
    ("What is the largest planet in the solar system?", "jupiter"),
    ("Which planet is closest to the sun?", "mercury"),
    ("Which planet is known as the red planet?", "mars"),
    ("What star is at the centre of our solar system?", "sun"),
    ("What is the largest ocean on Earth?", "pacific"),
    ("What is the highest mountain in the world?", "everest"),
    ("On which continent is Brazil?", "south america"),
    ("On which continent is Kenya?", "africa"),
    ("On which continent is India?", "asia"),
    ("What language do people speak in Brazil?", "portuguese"),
    ("What language do people speak in Mexico?", "spanish"),
    ("What currency is used in Japan?", "yen"),
    ("What currency is used in the United Kingdom?", "pound"),
    ("What is the chemical formula of water?", "h2o|h₂o"),
    ("What gas do plants take in for photosynthesis?", "carbon dioxide|co2"),
    ("What gas do humans need to breathe?", "oxygen"),
    ("At what temperature in Celsius does water boil?", "100"),
    ("At what temperature in Celsius does water freeze?", "0|zero"),
    ("What is frozen water called?", "ice"),
    ("What force pulls objects towards the Earth?", "gravity|gravitation"),
    ("What is the chemical symbol of gold?", "au"),
    ("What is the chemical symbol of iron?", "fe"),
    ("How many days are in a week?", "7|seven"),
    ("How many months are in a year?", "12|twelve"),
    ("How many hours are in a day?", "24|twenty-four"),
    ("How many minutes are in an hour?", "60|sixty"),
    ("How many legs does a spider have?", "8|eight"),
    ("How many legs does a dog have?", "4|four"),
    ("How many sides does a triangle have?", "3|three"),
    ("How many sides does a square have?", "4|four"),
    ("What is 2 + 2?", "4|four"),
    ("What is 5 + 3?", "8|eight"),
    ("What is 10 - 4?", "6|six"),
    ("What is 3 times 3?", "9|nine"),
    ("What colour is the sky on a clear day?", "blue"),
    ("What colour is grass?", "green"),
    ("What colour do you get by mixing blue and yellow?", "green"),
    ("What colour is a ripe banana?", "yellow"),
    ("Who wrote Romeo and Juliet?", "shakespeare"),
    ("Who painted the Mona Lisa?", "leonardo|da vinci"),
    ("Who wrote the theory of relativity?", "einstein"),
    ("Who was the first president of the United States?", "washington"),
    ("Who was the first person to walk on the Moon?", "armstrong"),
    ("What animal gives us milk and says moo?", "cow"),
    ("What insect makes honey?", "bee"),
    ("What do bees make?", "honey"),
    ("What is the opposite of hot?", "cold|cool"),
    ("What is the opposite of day?", "night"),
)


class Chat:
    """The model, asked one question at a time."""

    def __init__(self, model: Path) -> None:
        self._bench = Bench()
        self._bench.load(model, context=CONTEXT)
        self._requests = itertools.count(2)

    def answer(self, question: str, sampling: Sampling, most: int) -> str:
        """The text of one answer, without a conversation before it."""
        events = self._bench.generate(
            next(self._requests), question, sampling=sampling, max_tokens=most
        )
        return answer_text(events)

    def close(self) -> None:
        """End the engine thread."""
        self._bench.engine.stop()


def is_right(answer: str, accepted: str) -> bool:
    """Whether one of the accepted words, separated by bars, is in the answer."""
    words = "|".join(map(re.escape, accepted.split("|")))
    return re.search(rf"(?<!\w)(?:{words})s?(?!\w)", answer.lower()) is not None


def score(chat: Chat, tried: Sampling) -> tuple[int, int, list[str]]:
    """Right answers, all answers, and the questions that were never answered right."""
    seeds = SEEDS if tried.temperature else SEEDS[:1]
    right, missed = 0, list[str]()
    for question, accepted in QUESTIONS:
        found = [
            is_right(chat.answer(question, replace(tried, seed=seed), MOST), accepted)
            for seed in seeds
        ]
        right += sum(found)
        if not any(found):
            missed.append(question)
    return right, len(seeds) * len(QUESTIONS), missed


def repeats(answer: str) -> bool:
    """Whether some words in a row are in the answer again and again."""
    words = answer.split()
    runs = Counter(
        tuple(words[at : at + REPEATED_WORDS]) for at in range(len(words) - REPEATED_WORDS)
    )
    return max(runs.values(), default=0) >= REPEATED


def repeating(chat: Chat, tried: Sampling) -> int:
    """How many answers to the open questions repeat themselves."""
    return sum(
        repeats(chat.answer(question, replace(tried, seed=seed), OPEN_MOST))
        for question in OPEN_QUESTIONS
        for seed in OPEN_SEEDS
    )


def main() -> int:
    """Write the table; print what was never right, and the suggestions' answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suggestions", action="store_true", help="ask only the suggestions")
    options = parser.parse_args()
    chat = Chat(starter_path())
    if options.suggestions:
        for question in SUGGESTIONS:
            for seed in range(1, 11):
                answer = chat.answer(question, replace(CHOSEN, seed=seed), 200)
                print(f"## {question} ({seed})\n{answer}\n", flush=True)
        chat.close()
        return 0
    lines = [
        "# The starter's answers to sixty plain questions, by sampling",
        "",
        f"{date.today().isoformat()}, {starter_path().stem}. Written by `packaging/dev.py bench "
        f"starter_sampling`. Right: one of the accepted words is in the first {MOST} tokens; "
        f"{len(SEEDS)} seeds, greedy asked once. Repeating: of {len(OPEN_QUESTIONS)} open questions "
        f"with {len(OPEN_SEEDS)} seeds, the answers of up to {OPEN_MOST} tokens in which "
        f"{REPEATED_WORDS} words in a row occur {REPEATED} times. The app uses the third row.",
        "",
        "| Temperature | top_k | top_p | min_p | Repeat penalty | Right | Share | Repeating |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for tried in SAMPLINGS:
        right, asked, missed = score(chat, tried)
        lines.append(
            f"| {tried.temperature} | {tried.top_k} | {tried.top_p} | {tried.min_p} "
            f"| {tried.repeat_penalty} | {right} of {asked} | {right / asked:.0%} "
            f"| {repeating(chat, tried)} of {len(OPEN_QUESTIONS) * len(OPEN_SEEDS)} |"
        )
        print(lines[-1], flush=True)
        print("never:", *missed, sep="\n  ", flush=True)
    chat.close()
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
