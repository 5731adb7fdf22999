"""Measures the document index: indexing, the window meanwhile, queries, and forms of vectors.

    QT_QPA_PLATFORM=offscreen python tests/benchmarks/documents.py [--pages 1000]
        [--passages 100000] [--model EMBEDDING.gguf]

from the repository's root, with tests/support on the path; 0 leaves a part out. Prints the tables
of documents.md. Times are of the processor, of all threads, where not said otherwise: so they hold
on a busy machine, too. Threads of torch do not spin, as in the app.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

import recall_set
from app.chat.documents.indexing import DocumentText, Indexing
from app.documents.index import DocumentIndex
from app.domain.documents import DocumentKind, PageStart
from app.state.chat import State
from app.state.indexing import IndexingState
from engine import Embed, Embedded, Engine, Failed, Load, ModelLoaded

WORDS, LETTERS = 50_000, "etaoinshrdlcumwfgypbvk"
QUERIES = {  # the words of a question, by their rank in frequency
    "eight of the most frequent": range(8),
    "six usual ones": (3, 20, 150, 900, 3_000, 20_000),
    "three rare ones": (10_000, 20_000, 40_000),
    "64 words": range(100, 164),
    "three unknown ones": (),
}
SAMPLE = 48  # passages that are embedded


class Texts:
    """Texts of words with the frequencies of a language."""

    def __init__(self) -> None:
        self._chance = np.random.default_rng(1)
        chance = random.Random(1)
        self.words = [
            "".join(chance.choice(LETTERS) for _ in range(2 + at.bit_length() // 2))
            for at in range(1, WORDS + 1)
        ]
        weights = 1 / np.arange(1, WORDS + 1)
        self._weights = weights / weights.sum()

    def page(self, count: int) -> str:
        """A page of paragraphs of 80 words."""
        drawn = [self.words[at] for at in self._chance.choice(WORDS, count, p=self._weights)]
        pieces = (" ".join(drawn[at : at + 80]) for at in range(0, count, 80))
        return "\n\n".join(f"{piece}." for piece in pieces)

    def document(self, pages: int) -> DocumentText:
        """A document of pages of 500 words."""
        starts: list[PageStart] = []
        text = ""
        for number in range(1, pages + 1):
            starts.append(PageStart(str(number), len(text)))
            text += self.page(500) + "\n\n"
        return DocumentText(text, tuple(starts))


def seconds(work: Callable[[], object], rounds: int = 1) -> tuple[float, float]:
    """The least processor time of all threads, and elapsed time, of some rounds."""
    found: list[tuple[float, float]] = []
    for _ in range(rounds):
        used, begun = time.process_time(), time.perf_counter()
        work()
        found.append((time.process_time() - used, time.perf_counter() - begun))
    return min(found)


class Lateness:
    """How late a timer of the window's thread is."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self._last = time.perf_counter()
        self._timer = QTimer(interval=5)
        self._timer.timeout.connect(self._tick)
        self._timer.start()

    def _tick(self) -> None:
        now = time.perf_counter()
        self.late.append(1e3 * (now - self._last - 0.005))
        sum(range(3_000))  # about 0.05 ms of Python, as handling an event takes
        self._last = time.perf_counter()

    def __str__(self) -> str:
        late = sorted(self.late)
        return " | ".join(f"{late[int(part * (len(late) - 1))]:.1f}" for part in (0.5, 0.99, 1))


def indexing(folder: Path, pages: int, texts: Texts) -> None:
    """Index documents of 100 pages in the background, beside an event loop; then without one."""
    application = QApplication([])
    documents = [texts.document(100) for _ in range(pages // 100)]
    print("| Window's thread | Timer late, ms: median | p99 | most |\n|---|---:|---:|---:|")
    until = time.perf_counter() + 3
    idle = Lateness()
    while time.perf_counter() < until:
        application.processEvents()
    print(f"| idle | {idle} |")
    service = Indexing(State(), IndexingState(), folder / "service.sqlite")
    busy = Lateness()

    def work() -> None:
        for number, document in enumerate(documents):
            service.want(str(number), document)
        while service.state.view.is_working or len(busy.late) < 2:
            application.processEvents()

    used, elapsed = seconds(work)
    print(f"| {pages} pages are indexed ({used:.1f} s of {elapsed:.1f} s) | {busy} |\n")
    service.close()
    index = DocumentIndex(folder / "index.sqlite")

    def add() -> None:
        for number, document in enumerate(documents):
            index.add(str(number), document.text, document.starts)

    used, _ = seconds(add)
    size, length = index.size(), sum(len(each.text) for each in documents)
    print(f"{pages} pages, {length / 1e6:.1f} million letters, {size.passages} passages: words in")
    print(f"{used:.2f} s; {size.file_bytes / 1e6:.1f} MB.\n")
    index.close()


def embedding(path: Path) -> None:
    """Embed passages of real texts, and say what 1,000 pages of 3,000 letters take."""
    index = DocumentIndex(None)
    index.add("all", "\n\n".join(recall_set.documents().values()), kind=DocumentKind.MARKDOWN)
    passages = index.without_vectors("m", SAMPLE)
    pages = 1_000 * 3_000 / sum(len(each.text) for each in passages)  # of such samples
    engine = Engine(lambda *_: None)
    engine.start()

    def ask(request: Load | Embed) -> None:
        ended = threading.Event()
        engine.submit(
            request,
            lambda event: (
                ended.set() if isinstance(event, ModelLoaded | Embedded | Failed) else None
            ),
        )
        assert ended.wait(600)

    ask(Load(path, context=512, embeddings=True))
    for name, wanted in (
        ("whole passages", [each.text for each in passages]),
        ("their parts", [part for each in passages for part in each.parts]),
    ):
        ask(Embed(tuple(wanted[:4]), cuts=True))
        used, elapsed = seconds(lambda wanted=wanted: ask(Embed(tuple(wanted), cuts=True)))
        taken = f"{used * pages:.0f} s, elapsed {elapsed * pages:.0f} s"
        print(f"{path.stem}: {name} of 1,000 pages: {taken}")
    engine.stop()


def queries(folder: Path, count: int, texts: Texts) -> None:
    """Search many passages, by words and by vectors."""
    index = DocumentIndex(folder / "many.sqlite")
    number = 0
    while index.size().passages < count:
        index.add(f"{number:064}", texts.page(2_000))
        number += 1
    size = index.size()
    print(
        f"\n{size.passages} passages of {size.documents} documents, {size.file_bytes / 1e6:.0f} MB"
    )
    print("\n| Question, ms | in all | in one document | in every second one |")
    print("|---|---:|---:|---:|")
    among = (None, ["7".zfill(64)], [f"{at:064}" for at in range(0, number, 2)])

    def row(name: str, asked: str, vector: list[float] | None = None, model: str = "") -> None:
        times = [
            1e3 * seconds(lambda keys=keys: index.search(asked, keys, vector, model), 3)[0]
            for keys in among
        ]
        print(f"| {name} | {times[0]:.0f} | {times[1]:.0f} | {times[2]:.0f} |", flush=True)

    for name, ranks in QUERIES.items():
        row(name, " ".join(texts.words[at] for at in ranks) or "zzeqq recievvd kontraktt")
    asked = " ".join(texts.words[at] for at in QUERIES["six usual ones"])
    chance = np.random.default_rng(2)
    for numbers in (384, 768):
        model = str(numbers)
        while todo := index.without_vectors(model, 4_096):
            rows = chance.standard_normal((len(todo), numbers))
            index.set_vectors(model, list(zip([e.id for e in todo], rows, strict=True)))
        vector = chance.standard_normal(numbers).tolist()
        first, _ = seconds(lambda v=vector, m=model: index.search(asked, None, v, m))
        row(
            f"six usual ones, vectors of {numbers} (the first: {1e3 * first:.0f})",
            asked,
            vector,
            model,
        )
    print(f"\nWith these vectors {index.size().file_bytes / 1e6:.0f} MB.")
    index.close()


def forms(count: int) -> None:
    """The nearest of many vectors, in several forms."""
    print(
        f"\n| Nearest of {count} vectors, ms | 384 | 768 | bytes of a number |\n|---|---:|---:|---:|"
    )
    chance = np.random.default_rng(3)
    made = {name: list[str]() for name in ("float32", "float16", "int8", "int8, in integers")}
    for numbers in (384, 768):
        exact = chance.standard_normal((count, numbers)).astype(np.float32)
        wanted = chance.standard_normal(numbers).astype(np.float32)
        half = exact.astype(np.float16)
        small = np.rint(exact * 25).clip(-127, 127).astype(np.int8)
        whole = np.rint(wanted * 25).clip(-127, 127).astype(np.int8)
        ways: dict[str, Callable[[], object]] = {
            "float32": lambda e=exact, w=wanted: e @ w,
            "float16": lambda e=half, w=wanted: list(_blocks(e, w)),
            "int8": lambda e=small, w=wanted: list(_blocks(e, w)),
            "int8, in integers": lambda e=small, w=whole: np.einsum(
                "ij,j->i", e, w, dtype=np.int32
            ),
        }
        for name, way in ways.items():
            made[name].append(f"{1e3 * seconds(way, 5)[0]:.0f}")
    for (name, times), size in zip(made.items(), (4, 2, 1, 1), strict=True):
        print(f"| {name} | {' | '.join(times)} | {size} |")


def _blocks(rows: np.ndarray, wanted: np.ndarray) -> Iterator[np.ndarray]:
    """Products with blocks that are converted one after the other."""
    for at in range(0, len(rows), 512):
        yield rows[at : at + 512].astype(np.float32) @ wanted


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1_000)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    texts = Texts()
    with tempfile.TemporaryDirectory() as name:
        if options.model is not None:
            embedding(options.model)
        if options.pages:
            indexing(Path(name), options.pages, texts)
        if options.passages:
            forms(options.passages)
            queries(Path(name), options.passages, texts)


if __name__ == "__main__":
    main()
