"""llama.cpp's logits of a small random model of every architecture, recorded and compared.

Run from the project's folder. PEER is the folder of a llama.cpp build: it has `bin/logits`, which
prints the float32 logits of a model after every given token, and `bin/test-llama-archs` wrote FILE.

    python tests/recorders/golden_architectures.py compare PEER FILE...
    python tests/recorders/golden_architectures.py record PEER FILE...
    python tests/recorders/golden_architectures.py write FOLDER [NAME...]

`compare` runs llama.cpp and our engine on the same files and prints a line for each: the architecture
and why we refuse it, or the error relative to llama.cpp's logits (NMSE) on each backend, the share
of positions with the same best token, and the first position that differs. With --without-scales it
writes each model again without its scales of weights, to tell a fault of these from others.

`record` keeps the skeletons of the files and of `written_skeletons.py`, and llama.cpp's logits of the
models written from these, in `tests/golden`; it leaves the records of other files as they are.
`write` writes recorded models, by default all of them, to a folder.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "packaging")]

import architecture_files as files  # noqa: E402
import written_skeletons  # noqa: E402
from engine.errors import EngineError  # noqa: E402
from engine.gguf.reader import GGUFFile  # noqa: E402
from engine.loading.loader import load  # noqa: E402
from kernels import backends  # noqa: E402

# Those recorded: what people run, of what llama.cpp knows.
_RECORDED = """
    apertus arcee bailingmoe2 bailingmoe3 bitnet cohere2 cohere2moe command-r deepseek2 ernie4_5
    ernie4_5-moe exaone4 falcon-h1 gemma gemma2 gemma3 gemma3n gemma4 glm4 glm4moe gpt-oss granite
    granite_swa granitehybrid granitemoe hunyuan-dense laguna lfm2 lfm2moe llama llama4 mamba2 maple
    mellum minicpm mistral3 mistral4 nanbeige nemotron_h nemotron_h_moe olmo2 olmoe phi2 phi3 phimoe
    qwen2 qwen2vl qwen3 qwen35 qwen35moe qwen3moe qwen3next qwen3vl qwen3vlmoe seed_oss smollm3
    spark2_5 starcoder starcoder2
"""
ARCHITECTURES = frozenset(_RECORDED.split())
PEER_SECONDS, OUR_SECONDS = 120, 240  # time limits for one model
WRONG = 1e-6  # NMSE of a row that counts as different


_MISSING = re.compile(r"key not found in model: (\S+)")


class Failed(Exception):
    """llama.cpp gave no logits for a file; `missing` is the key that it asks for, if it does."""

    def __init__(self, text: str, missing: str = "") -> None:
        super().__init__(text)
        self.missing = missing


def their_logits(peer: Path, model: Path, tokens: Sequence[int]) -> files.Rows:
    """llama.cpp's logits [T, V]; raises Failed."""
    command = [str(peer / "bin" / "logits"), str(model), *map(str, tokens)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PEER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f"llama.cpp ran longer than {PEER_SECONDS} s") from None
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from None
    rows = np.frombuffer(done.stdout, "<f4") if len(done.stdout) % 4 == 0 else np.empty(0, "<f4")
    if done.returncode or not len(rows) or len(rows) % len(tokens):
        said = done.stderr.decode("utf-8", "replace").strip()
        missing = _MISSING.search(said)
        raise Failed(
            f"llama.cpp fails with status {done.returncode}: {said[:200]}",
            missing[1] if missing else "",
        )
    return rows.reshape(len(tokens), -1)


# --- compare ------------------------------------------------------------------------------------


def compare(peer: Path, paths: Sequence[Path], options: argparse.Namespace) -> int:
    """Print a line for each file; returns how many our engine does not run as llama.cpp does."""
    backends.choose("reference")  # import everything before the processes are forked
    context = multiprocessing.get_context("fork")
    failed = 0
    for path in paths:
        ours, child = context.Pipe(duplex=False)
        process = context.Process(target=_compare_in_child, args=(child, peer, path, options))
        started = time.perf_counter()
        process.start()
        child.close()
        line, good = f"{path.stem:24} ERROR our process died", False
        try:
            if not ours.poll(OUR_SECONDS):
                line = f"{path.stem:24} ERROR ran longer than {OUR_SECONDS} s"
                process.kill()
            else:
                line, good = ours.recv()
        except EOFError:
            process.join()
            line += f" with status {process.exitcode}"
        process.join()
        failed += not good
        print(f"{line}  [{time.perf_counter() - started:.1f} s]", flush=True)
    print(f"{len(paths) - failed} of {len(paths)} files agree with llama.cpp")
    return failed


def _compare_in_child(out: Connection, peer: Path, path: Path, options: argparse.Namespace) -> None:
    try:
        if options.without_scales:
            plain = files.read_skeleton(path).without_scales()
            with tempfile.TemporaryDirectory() as folder:
                path = files.write(plain, Path(folder) / path.name)
                out.send(_compare_one(peer, path, options))
        else:
            out.send(_compare_one(peer, path, options))
    except BaseException as error:  # noqa: BLE001  # whatever it is, the next file is compared
        text = " ".join(str(error).split())[:300]
        out.send((f"{path.stem:24} ERROR {type(error).__name__}: {text}", False))


def _compare_one(peer: Path, path: Path, options: argparse.Namespace) -> tuple[str, bool]:
    skeleton = files.read_skeleton(path)
    tokens, label = skeleton.tokens, f"{path.stem:24}"
    found: list[str] = []
    good = True
    expected: files.Rows | None = None
    for name in options.backend or ["reference", "cpu"]:
        try:
            model = load(
                path,
                backend=name,
                context=len(tokens),
                threads=None,
                ids_only=True,
            )
        except EngineError as error:
            return f"{label} REFUSED ({skeleton.architecture}) {error.sentence}", False
        if expected is None:
            try:
                expected = their_logits(peer, path, tokens)
            except Failed as error:
                return f"{label} NO REFERENCE {error}", False
        session = model.new_session()
        ways = {"": (), " in pieces": files.PIECES} | (
            {" by step": (1,) * len(tokens)} if options.steps else {}
        )
        for way, pieces in ways.items():
            rows = files.run(session, tokens, pieces)
            if rows.shape != expected.shape:
                return f"{label} ERROR our logits are {rows.shape}, theirs {expected.shape}", False
            error = files.nmse(rows, expected)
            same = float((rows.argmax(1) == expected.argmax(1)).mean())
            fine = error <= WRONG
            good &= fine
            if not fine or not way:
                where = "" if fine else f", wrong from position {_first_wrong(rows, expected)}"
                found.append(f"{name}{way} NMSE {error:.1e}, same top {same:.0%}{where}")
    return f"{label} {'ok   ' if good else 'WRONG'} {'; '.join(found)}", good


def _first_wrong(rows: files.Rows, expected: files.Rows) -> int:
    pairs = zip(rows, expected, strict=True)
    return next((at for at, pair in enumerate(pairs) if files.nmse(*pair) > WRONG), len(rows) - 1)


# --- record -------------------------------------------------------------------------------------


def record(peer: Path, paths: Sequence[Path]) -> int:
    """Keep the skeletons and llama.cpp's logits of models; returns how many it could not run."""
    skeletons = files.recorded() if files.SKELETONS.exists() else {}
    rows = {name: files.recorded_rows(name) for name in skeletons}
    failed = 0
    found = {path.stem: files.read_skeleton(path) for path in paths}
    found = {name: one for name, one in found.items() if one.architecture in ARCHITECTURES}
    sources = {path.stem: path for path in paths}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.gguf"
        for name, skeleton in (found | written_skeletons.skeletons()).items():
            try:
                if name in sources:
                    skeleton = _with_needed_keys(peer, sources[name], skeleton, model)
                scaled = their_logits(peer, files.write(skeleton, model), skeleton.tokens)
                files.write(skeleton.without_scales(), model)
                plain = their_logits(peer, model, skeleton.tokens)
            except Failed as error:
                failed += 1
                print(f"{name}: not recorded, {error}", flush=True)
                continue
            if not np.isfinite(plain).all() or not np.isfinite(scaled).all():
                failed += 1
                print(f"{name}: not recorded, llama.cpp's logits are not finite", flush=True)
                continue
            skeletons[name] = skeleton
            rows[name] = plain[skeleton.positions], scaled[skeleton.few_positions]
            spread, keys = float(plain.std()), len(skeleton.metadata)
            print(f"{name}: {rows[name][0].shape}, spread {spread:.3g}, {keys} keys", flush=True)
    files.save(skeletons)
    arrays: dict[str, files.Rows] = {}
    for name, (plain, scaled) in sorted(rows.items()):
        arrays |= {name: plain, f"{name} with scales": scaled}
    np.savez(files.LOGITS, **arrays)
    left = ARCHITECTURES - {skeleton.architecture for skeleton in skeletons.values()}
    print(f"{len(skeletons)} models recorded; without a file: {', '.join(sorted(left)) or 'none'}")
    return failed


def _with_needed_keys(
    peer: Path, path: Path, skeleton: files.Skeleton, model: Path
) -> files.Skeleton:
    """The skeleton without the keys that llama.cpp's saver adds to those of the architecture.

    It must compute the same bits without them; if it does not, all are kept. Raises Failed.
    """
    whole = their_logits(peer, files.write(skeleton, model), skeleton.tokens)
    with GGUFFile.open(path) as file:
        needed = set(file.metadata)
    for _ in skeleton.metadata:
        keys = {key: value for key, value in skeleton.metadata.items() if key in needed}
        small = replace(skeleton, metadata=keys)
        try:
            logits = their_logits(peer, files.write(small, model), skeleton.tokens)
        except Failed as error:
            if error.missing in needed or error.missing not in skeleton.metadata:
                break
            needed.add(error.missing)
            continue
        if np.array_equal(logits, whole, equal_nan=True):
            return small
        break
    print(f"{path.stem}: all keys are kept, for without some it differs")
    return skeleton


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["compare", "record", "write"])
    parser.add_argument("folder", type=Path, help="with bin/logits; of `write`, for the models")
    parser.add_argument("files", type=Path, nargs="*", help="models; of `write`, names")
    parser.add_argument("--backend", action="append", help="of ours; default: reference and cpu")
    parser.add_argument("--steps", action="store_true", help="also token by token")
    parser.add_argument("--without-scales", action="store_true", help="of models written again")
    options = parser.parse_args()
    if options.command == "write":
        options.folder.mkdir(parents=True, exist_ok=True)
        skeletons = files.recorded()
        for name in map(str, options.files or skeletons):
            files.write(skeletons[name], options.folder / f"{name}.gguf")
        return 0
    if options.command == "record":
        return min(record(options.folder, options.files), 1)
    return min(compare(options.folder, options.files, options), 1)


if __name__ == "__main__":
    sys.exit(main())
