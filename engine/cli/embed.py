"""The subcommands `embed`, texts to vectors of length 1, and `rerank`, documents to scores."""

from __future__ import annotations

from pathlib import Path

from engine.cli import options as options_of
from engine.cli.client import Client
from engine.cli.files import read_texts
from engine.cli.options import Options
from engine.cli.output import print_json
from engine.messages import Embed, Embedded, Pooling, Rerank, Reranked


def embed(options: Options) -> None:
    """Print the vector of -p, or those of the texts in --batch."""
    texts = [options.prompt] if options.batch is None else read_texts(Path(options.batch))
    pooling = Pooling(options.pooling) if options.pooling else None
    adapters = tuple(options_of.adapters(options))
    with Client(options, embeddings=True) as client:
        found = client.result(Embed(tuple(texts), pooling, adapters=adapters), Embedded)
    if not options.json:
        for vector in found.vectors:
            print(" ".join(f"{value:.6f}" for value in vector))
    elif options.batch is None:
        print_json(embedding=found.vectors[0], tokens=found.tokens)
    else:
        print_json(embeddings=found.vectors, tokens=found.tokens)


def rerank(options: Options) -> None:
    """Print the score of each document in --documents for --query."""
    documents = tuple(read_texts(Path(options.documents)))
    adapters = tuple(options_of.adapters(options))
    with Client(options, embeddings=True) as client:
        found = client.result(Rerank(options.query, documents, adapters=adapters), Reranked)
    if options.json:
        print_json(scores=found.scores, tokens=found.tokens)
        return
    for score in found.scores:
        print(f"{score:.6f}")
