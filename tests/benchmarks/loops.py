"""Share of the starter's answers that loop, and of plain questions it answers right, by sampling.

Sixty everyday questions with four seeds, without the repetition guard. An answer loops if its end
was at any time one passage again and again, as the guard defines it for running text, or if it has
`MOST` tokens without an end. Right answers are counted as in `starter_sampling`, with more seeds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

from starter_sampling import CHOSEN, QUESTIONS, is_right, starter_path
from starter_sampling import MOST as JUDGED

from app.settings.table import Settings, sampling
from engine.core.request import AnswerRequest
from engine.frontend.repetition import RepetitionGuard
from engine.frontend.template import prompt_ids
from engine.loading.loader import LoadedModel, load
from engine.messages import Finished, FinishReason, Role, Sampling, Text, Turn

TABLE = Path(__file__).with_suffix(".md")
CONTEXT = 4_096
CACHE_BYTES = 1 << 30
MOST = 2_000  # tokens of an answer
SEEDS, JUDGED_SEEDS = (1, 2, 3, 4), tuple(range(1, 9))
UNSEEN_SEEDS = (11, 12, 13, 14)
SAMPLINGS = (
    CHOSEN,
    sampling(Settings()),  # of models without recommendations
)
EVERYDAY = (
    "My neighbour plays loud music at night. What can I say to him?",
    "What should I cook for dinner tonight?",
    "How do I get a red wine stain out of a carpet?",
    "Can you help me write a birthday message for my sister?",
    "I can't sleep. What can I do?",
    "How do I ask my boss for a raise?",
    "What is a good gift for my father?",
    "My dog eats grass. Is that normal?",
    "How do I start running?",
    "Write a short letter to my landlord: the heating is broken.",
    "What should I pack for a week at the sea?",
    "How do I make pancakes?",
    "I have a headache. What helps?",
    "Give me ideas for a rainy Sunday with children.",
    "How can I save money on groceries?",
    "Explain how a credit card works.",
    "Tell me a story about a dragon who is afraid of fire.",
    "Write a poem about autumn.",
    "What is the difference between a virus and a bacterium?",
    "How do I change a bicycle tyre?",
    "My friend is sad. How can I cheer her up?",
    "Plan a weekend in Paris.",
    "How do I learn to play the guitar?",
    "What are good questions for a job interview?",
    "Why is the sky blue?",
    "How do I take care of a cactus?",
    "Write an invitation to a garden party.",
    "How do I stop biting my nails?",
    "What can I do with stale bread?",
    "How does a refrigerator work?",
    "My computer is slow. What can I do?",
    "How do I tie a tie?",
    "Tell me a joke.",
    "What should I do if I lose my passport?",
    "How do I remove ice from my windscreen?",
    "List ten healthy snacks.",
    "How do I write a good CV?",
    "What is inflation?",
    "How can I make new friends in a new town?",
    "Describe a perfect day.",
    "How long should I boil an egg?",
    "Write a complaint about a late parcel.",
    "What are the rules of chess?",
    "How do I teach my child to read?",
    "Is it better to rent or to buy a house?",
    "How do I calm down before an exam?",
    "Give me a workout without equipment.",
    "What is the meaning of life?",
    "How do I clean an oven?",
    "Who was Cleopatra?",
    "Write a song about friendship.",
    "How do plants drink water?",
    "My cat scratches the sofa. What should I do?",
    "How do I say no politely?",
    "What are the seven wonders of the world?",
    "Explain the water cycle to a child.",
    "How do I plan a birthday party?",
    "What should I say in a wedding speech?",
    "How do I keep mosquitoes away?",
    "Hello! How are you?",
)

# No setting was chosen by these: `--unseen` asks them, with other seeds.
UNSEEN = (
    "How do I get rid of ants in the kitchen?",
    "What should I name my new kitten?",
    "Write a thank-you note to my teacher.",
    "How do I fold a fitted sheet?",
    "What is the best way to learn Spanish?",
    "My shoes smell. What can I do?",
    "Explain what a mortgage is.",
    "Write a short story about a lighthouse.",
    "How do I cook a turkey?",
    "What are the benefits of green tea?",
    "Plan a trip to London.",
    "How do I apologise to a friend?",
    "What is a black hole?",
    "My child will not eat vegetables. Any ideas?",
    "How do I unblock a sink?",
    "Write a poem about the sea.",
    "What is the difference between a crocodile and an alligator?",
    "How do I make coffee without a machine?",
    "Give me a recipe for vegetable soup.",
    "How can I stop worrying?",
    "What should I wear to a wedding?",
    "Describe your favourite animal.",
    "How do I remember names better?",
    "Why do cats purr?",
    "Write an email to cancel my gym membership.",
    "How do I plant tomatoes?",
    "What is the stock market?",
    "List five good books for the summer.",
    "How do I treat a sunburn?",
    "Tell me about the Roman Empire.",
    "What can I cook with chicken and rice?",
    "How do I back up my phone?",
    "Who was Albert Einstein?",
    "Write a slogan for a bakery.",
    "How do I stop my dog from barking?",
    "What is democracy?",
    "How many hours should I sleep?",
    "Give me tips for a first date.",
    "How do I iron a shirt?",
    "What are the rules of football?",
    "Why do leaves change colour?",
    "Write a short speech for my boss's retirement.",
    "How do I save electricity?",
    "What is yoga?",
    "How do I get better at drawing?",
    "My plant has yellow leaves. Why?",
    "Suggest a weekend hobby.",
    "How do aeroplanes fly?",
    "What should I do after a car accident?",
    "Write a dialogue between a cat and a mouse.",
    "How do I make a budget?",
    "What is photosynthesis?",
    "How do I fix a squeaky door?",
    "Give me ten ideas for dinner.",
    "How do I meditate?",
    "Tell me a bedtime story.",
    "What is the capital of Australia and what can I see there?",
    "How do I wash a wool sweater?",
    "Is coffee bad for you?",
    "Good morning!",
)


def answers(
    model: LoadedModel,
    questions: Sequence[str],
    tried: Sampling,
    seeds: Sequence[int],
    most: int,
    *,
    guard: bool = False,
) -> list[list[tuple[str, list[int], FinishReason]]]:
    """For each question its answers by seed: text, tokens, end. Many are made together."""
    scheduler = model.new_scheduler(CACHE_BYTES)
    asked = [
        [
            scheduler.submit(
                AnswerRequest(
                    prompt_ids(model.tokenizer, model.template.render([Turn(Role.USER, question)])),
                    replace(tried, seed=seed),
                    max_tokens=most,
                    stop=model.template.stop,
                    stop_loops=guard,
                )
            )
            for seed in seeds
        ]
        for question in questions
    ]
    while scheduler.is_busy:
        scheduler.step()
    made: list[list[tuple[str, list[int], FinishReason]]] = []
    for tickets in asked:
        made.append([])
        for ticket in tickets:
            text = "".join(event.text for event in ticket.request.events if isinstance(event, Text))
            (end,) = [
                event.reason for event in ticket.request.events if isinstance(event, Finished)
            ]
            made[-1].append((text, ticket.answers[0], end))
    return made


def loops(tokens: Sequence[int], end: FinishReason) -> bool:
    """Whether an answer has looped, or did not end."""
    guard = RepetitionGuard(lambda token: b"x")  # as if all were running text
    return end is FinishReason.LENGTH or any(guard.push(token) for token in tokens)


def main() -> int:
    """Write the table; print the questions whose answers loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=len(EVERYDAY), help="only the first ones")
    parser.add_argument("--chosen", action="store_true", help="only what the app uses; no table")
    parser.add_argument("--unseen", action="store_true", help="only the other questions; no table")
    options = parser.parse_args()
    if options.unseen:
        made = answers(load(starter_path(), context=CONTEXT), UNSEEN, CHOSEN, UNSEEN_SEEDS, MOST)
        ends = [loops(tokens, end) for row in made for _, tokens, end in row]
        print(f"{sum(ends)} of {len(ends)}")
        return 0
    model, questions = load(starter_path(), context=CONTEXT), EVERYDAY[: options.questions]
    lines = [
        "# The starter's answers that loop, by sampling",
        "",
        f"{date.today().isoformat()}, {starter_path().stem}. Written by `packaging/dev.py bench "
        f"loops`. Loops: of {len(questions)} everyday questions with {len(SEEDS)} seeds, without the "
        f"repetition guard, the answers whose end was at least 160 tokens made of at least four "
        f"equal passages, or that had no end within {MOST:,} tokens. With the guard: those that it "
        f"stopped, and those that still had no end. Right: of {len(QUESTIONS)} plain questions with "
        f"{len(JUDGED_SEEDS)} seeds, as in starter_sampling.md, and two standard errors. The app uses "
        "the first row, and the second one for models without recommendations. The settings were "
        "chosen by these questions, so the shares are too low: `loops.py --unseen` asks sixty others, "
        "by which nothing was chosen, and 4 of 240 answers of the first row (1.7%) had no end.",
        "",
        "| Temperature | Repeat penalty | Window | DRY | Loops | Share | Guard: stopped | No end "
        "| Right | Share | Tokens of an answer |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for tried in (CHOSEN,) if options.chosen else SAMPLINGS:
        started = time.monotonic()
        made = answers(model, questions, tried, SEEDS, MOST)
        found = [
            (question, seed)
            for question, row in zip(questions, made, strict=True)
            for seed, (_, tokens, end) in zip(SEEDS, row, strict=True)
            if loops(tokens, end)
        ]
        # With the guard the others stay as they are.
        again = [question for question in questions if question in dict(found)]
        guarded = [
            one for row in answers(model, again, tried, SEEDS, MOST, guard=True) for one in row
        ]
        ends = [end for _, _, end in guarded]
        judged = answers(model, [one for one, _ in QUESTIONS], tried, JUDGED_SEEDS, JUDGED)
        right = sum(
            is_right(text, accepted)
            for (_, accepted), row in zip(QUESTIONS, judged, strict=True)
            for text, _, _ in row
        )
        asked, all_judged = len(questions) * len(SEEDS), len(QUESTIONS) * len(JUDGED_SEEDS)
        share = right / all_judged
        error = 2 * (share * (1 - share) / all_judged) ** 0.5
        tokens = sum(len(tokens) for row in made for _, tokens, _ in row) / asked
        lines.append(
            f"| {tried.temperature} | {tried.repeat_penalty} | {tried.penalty_window} "
            f"| {tried.dry_multiplier} | {len(found)} of {asked} | {len(found) / asked:.1%} "
            f"| {ends.count(FinishReason.REPETITION)} | {ends.count(FinishReason.LENGTH)} "
            f"| {right} of {all_judged} | {share:.1%} ± {error:.1%} | {tokens:.0f} |"
        )
        print(lines[-1], f"{time.monotonic() - started:.0f} s", flush=True)
        print("loops:", *found, sep="\n  ", flush=True)
        if not options.chosen:
            TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
