"""The subcommand embed: texts to vectors."""

from __future__ import annotations

from pathlib import Path

from engine.cli.files import read_texts
from engine.cli.loading import load_model
from engine.cli.options import Options
from engine.cli.output import print_json
from engine.errors import RequestError
from engine.inference.embedding import Embedder
from engine.messages import Pooling

_SHOWN = 8  # numbers of a vector that are printed without --json


def embed(options: Options) -> None:
    """Print the embedding of a text, or of each text of --batch."""
    texts = [options.prompt] if options.batch is None else read_texts(Path(options.batch))
    if empty := [number for number, text in enumerate(texts, 1) if not text]:
        raise RequestError(f"Text {empty[0]} is empty.", "Leave it out, or give it words.")
    model = load_model(options)
    chosen = None if options.pooling is None else Pooling(options.pooling)
    pooling = chosen or model.pooling or Pooling.LAST
    scheduler = model.new_scheduler()
    embedder = Embedder(scheduler.runner, scheduler.pool, scheduler.tree, scheduler.context)
    ids = [model.tokenizer.encode(text) for text in texts]
    work = embedder.embed(ids, pooling)
    try:
        while True:
            next(work)
    except StopIteration as done:
        vectors: list[list[float]] = done.value
    if not options.json:
        for vector in vectors:
            shown = " ".join(f"{value:.6f}" for value in vector[:_SHOWN])
            print(f"{len(vector)} numbers ({pooling.value}): {shown} ...")
    elif options.batch is None:
        print_json(embedding=vectors[0], tokens=len(ids[0]), pooling=pooling.value)
    else:
        print_json(embeddings=vectors, tokens=[len(one) for one in ids], pooling=pooling.value)
