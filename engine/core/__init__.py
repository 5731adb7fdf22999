"""Core: sequences, the scheduler that runs them together, and the passes of the model.

Which thread does what. A client submits and cancels on any thread; the rest is done on these:

    engine                    begins requests, runs all passes, draws tokens, calls `deliver` and
                              `notify`. It uses alone: ModelSession, Answerer, TextReader, Scheduler,
                              RunningSequence, Runner, Sampler, PrefixTree, Sequence, AnswerStream
    prompt, text, texts       render templates and tokenize for one request
    tokenizer                 reads the vocabulary while weights are loaded
    grammar, grammar library  compile a constraint
    masks                     computes the tokens that a constraint allows, beside a pass
    disk tier, disk size      find and read saved pages, and measure their folder
    snapshot                  writes saved sequences and evicted pages, and calls the `deliver` that
                              ends a Save
    layers N                  read weights that are not in memory

Several threads use RequestQueue, PagePool, Saver and PageStore, each under its lock. What is handed
to another thread is not changed any more: messages, a Prompt, a Capture with its pages, and the tuple
`Residents.facts`, which is replaced as a whole.

The window makes its objects and emits its signals on the GUI thread: `app.engines.local` queues the
events of these threads, and hands them on when its timer fires there.

`tests/test_threads.py` reads this page and compares a running engine with it.
"""
