"""lmlib.bpe beside tiktoken and Hugging Face's tokenizers: CPU seconds and memory, on one core.

Run it with `make bench` where nothing else runs. Every measurement is a process of its own; those of a task
take turns, and the medians are compared. What counts are the ratios: seconds differ from machine to machine.
"""

import argparse
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import process_time

from tqdm import tqdm

RESULTS = Path(__file__).parent / "results" / "bpe.json"
BUILD = Path(__file__).parents[1] / "_build" / "bench"
MIXED_BYTES = 50_000_000
END = "<|endoftext|>"


# --- texts ------------------------------------------------------------------------------------------------------


def moby_dick() -> list[str]:
    """Return the novel, as one document."""
    from lmlib.corpora import load_corpus

    return [load_corpus("moby_dick")]


def languages() -> list[str]:
    """Return the Universal Declaration of Human Rights in 34 languages, a document each."""
    from lmlib.corpora import load_corpus

    return [language.text for language in load_corpus("udhr").values()]


def mixed() -> list[str]:
    """Return 50 MB of source code and documentation: the text files of the installed packages."""
    folder = Path(sysconfig.get_path("purelib"))
    documents, size = [], 0
    for path in sorted(folder.rglob("*"), key=_shuffled):
        if path.suffix not in {".py", ".pyi", ".md", ".rst", ".txt", ".json", ".h"} or path.stat().st_size > 400_000:
            continue
        try:
            documents.append(path.read_text("utf-8"))
        except UnicodeDecodeError:
            continue
        size += len(documents[-1].encode())
        if size > MIXED_BYTES:
            return documents
    raise SystemExit(f"The installed packages hold only {size} bytes of text, but {MIXED_BYTES} are needed.")


def _shuffled(path: Path) -> bytes:
    """Return a key that mixes packages, but always in the same way."""
    return hashlib.sha256("/".join(path.parts[-3:]).encode()).digest()


TEXTS = {"moby_dick": moby_dick, "languages": languages, "mixed": mixed}


def documents_of(name: str) -> list[str]:
    """Return the documents of a text, as they were stored when the benchmark began."""
    return (BUILD / f"{name}.txt").read_text("utf-8").split(END)


# --- what is measured: each returns CPU seconds, and what came out --------------------------------------------------


def train_lmlib(text: str, vocab_size: int) -> tuple[float, object]:
    """Train with lmlib, from a file."""
    from lmlib.bpe import train_bpe

    start = process_time()
    _, merges = train_bpe(BUILD / f"{text}.txt", vocab_size, [END], progress=False)
    return process_time() - start, len(merges)


def train_tokenizers(text: str, vocab_size: int) -> tuple[float, object]:
    """Train with Hugging Face's tokenizers, from a file, with GPT-2's pre-tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    start = process_time()
    tokenizer.train([str(BUILD / f"{text}.txt")], trainer)
    return process_time() - start, tokenizer.get_vocab_size() - 257


def encode_lmlib(text: str, warm: bool = False) -> tuple[float, object]:
    """Encode every document with GPT-2's vocabulary; warm, after having done it once."""
    from lmlib.bpe import Tokenizer

    return _encode(text, Tokenizer.from_pretrained("gpt2").encode_ordinary, warm)


def encode_tiktoken(text: str, warm: bool = False) -> tuple[float, object]:
    """Encode every document with GPT-2's vocabulary in tiktoken, which remembers nothing."""
    from lmlib.bpe import Tokenizer

    return _encode(text, Tokenizer.from_pretrained("gpt2").to_tiktoken().encode_ordinary, warm)


def _encode(text: str, encode: Callable[[str], list[int]], warm: bool) -> tuple[float, object]:
    documents = documents_of(text)
    if warm:
        for document in documents:
            encode(document)
    start = process_time()
    ids = [encode(document) for document in documents]
    seconds = process_time() - start
    return seconds, hashlib.sha256(json.dumps(ids).encode()).hexdigest()


# --- tasks ------------------------------------------------------------------------------------------------------

TRAIN = {"lmlib": train_lmlib, "tokenizers": train_tokenizers}
ENCODE = {"lmlib": encode_lmlib, "tiktoken": encode_tiktoken}
TASKS = {
    "train Moby-Dick to 10,000": (TRAIN, ("moby_dick", 10_000)),
    "train 50 MB to 32,000": (TRAIN, ("mixed", 32_000)),
    "encode Moby-Dick, cold": (ENCODE, ("moby_dick",)),
    "encode 34 languages, cold": (ENCODE, ("languages",)),
    "encode 50 MB, cold": (ENCODE, ("mixed",)),
    "encode 50 MB, warm": (ENCODE, ("mixed", True)),
}


def measure(task: str, contender: str) -> None:
    """Measure once, in this process, and print what came out as JSON."""
    contenders, arguments = TASKS[task]
    seconds, result = contenders[contender](*arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak_bytes": peak, "result": result}))


def run_task(task: str, runs: int, bar: tqdm) -> dict:
    """Measure all contenders in turn, and compare lmlib with its peer."""
    contenders, _ = TASKS[task]
    measured: dict[str, list[dict]] = {contender: [] for contender in contenders}
    for _ in range(runs):
        for contender, results in measured.items():
            results.append(_in_own_process(task, contender))
            bar.update()
    ours, (peer, theirs) = measured["lmlib"], next(item for item in measured.items() if item[0] != "lmlib")
    outcomes = {result["result"] for result in ours + theirs}
    if len(outcomes) != 1:
        raise SystemExit(f"{task}: the results differ, so the times say nothing: {outcomes}.")
    seconds = {name: [round(result["seconds"], 3) for result in results] for name, results in measured.items()}
    medians = {name: median(values) for name, values in seconds.items()}
    return {
        "peer": peer,
        "cpu_seconds": seconds,
        "median_cpu_seconds": medians,
        "peak_mib": {name: round(max(r["peak_bytes"] for r in rs) / 2**20) for name, rs in measured.items()},
        "time_ratio": round(medians["lmlib"] / medians[peer], 3),
    }


def _in_own_process(task: str, contender: str) -> dict:
    command = [sys.executable, __file__, "--measure", task, contender]
    environment = {**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return json.loads(output)


# --- the whole --------------------------------------------------------------------------------------------------


def store_texts(names: set[str]) -> dict[str, dict]:
    """Write the texts to files, and return what identifies them."""
    BUILD.mkdir(parents=True, exist_ok=True)
    facts = {}
    for name in sorted(names):
        documents = TEXTS[name]()
        content = END.join(documents).encode()
        (BUILD / f"{name}.txt").write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        facts[name] = {"bytes": len(content), "documents": len(documents), "sha256": digest}
    return facts


def machine() -> dict:
    """Describe the machine and what is installed on it."""
    info = Path("/proc/cpuinfo")
    models = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ["lmlib", "regex", "tiktoken", "tokenizers"]},
    }


def table(results: dict) -> Iterator[str]:
    """Yield the lines of a table of ratios."""
    yield f"{'task':<28} {'lmlib':>8} {'peer':>8}   time ÷ peer's"
    for task, result in results.items():
        seconds, peer = result["median_cpu_seconds"], result["peer"]
        yield f"{task:<28} {seconds['lmlib']:7.2f}s {seconds[peer]:7.2f}s   {result['time_ratio']:.2f} × {peer}"


def main() -> None:
    """Run the benchmark, or one measurement of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="measurements of each contender (default: 5)")
    parser.add_argument("--task", choices=TASKS, action="append", help="only this task (may be repeated)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where to write the results")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if options.measure:
        measure(*options.measure)
        return
    tasks = options.task or list(TASKS)
    texts = store_texts({TASKS[task][1][0] for task in tasks})
    with tqdm(total=2 * options.runs * len(tasks), unit="run", disable=None) as bar:
        results = {task: run_task(task, options.runs, bar) for task in tasks}
    report = {"command": "make bench", "machine": machine(), "runs": options.runs, "texts": texts, "tasks": results}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n")
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
