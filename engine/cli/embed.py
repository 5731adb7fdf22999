"""The subcommands `embed`, texts to vectors of length 1, and `rerank`, documents to scores."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

from engine.cli.files import read_texts
from engine.cli.loading import adapter_stack, load_model
from engine.cli.options import Options
from engine.cli.output import print_json
from engine.messages import Pooling

T = TypeVar("T")


def embed(options: Options) -> None:
    """Print the vector of -p, or those of the texts in --batch."""
    texts = [options.prompt] if options.batch is None else read_texts(Path(options.batch))
    model = load_model(options, embeddings=True)
    pooling = Pooling(options.pooling) if options.pooling else model.pooling
    embedder, stack = model.new_embedder(), adapter_stack(options, model)
    ids = embedder.tokens(texts)
    vectors = finish(embedder.vectors(ids, pooling, stack))
    if not options.json:
        for vector in vectors:
            print(" ".join(f"{value:.6f}" for value in vector))
        return
    tokens = sum(map(len, ids))
    if options.batch is None:
        print_json(embedding=vectors[0], tokens=tokens)
    else:
        print_json(embeddings=vectors, tokens=tokens)


def rerank(options: Options) -> None:
    """Print the score of each document in --documents for --query."""
    documents = read_texts(Path(options.documents))
    model = load_model(options, embeddings=True)
    ranker, stack = model.new_ranker(), adapter_stack(options, model)
    pairs = ranker.pairs(options.query, documents, model.rank_template)
    scores = finish(ranker.scores(pairs, stack))
    if options.json:
        print_json(scores=scores, tokens=sum(map(len, pairs)))
        return
    for score in scores:
        print(f"{score:.6f}")


def finish(work: Generator[None, None, T]) -> T:
    """Run work that pauses between passes to its end."""
    while True:
        try:
            next(work)
        except StopIteration as stopped:
            return stopped.value
