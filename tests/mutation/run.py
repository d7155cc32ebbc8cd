"""Draws mistakes by a seed, plants them one by one, runs the related tests and prints the share that was noticed.

`make mutants SEED=7 COUNT=300`, or `python -m tests.mutation.run --seed 7 --count 300`. Tests run in forks of a process
that has imported torch, pandas and scipy, each in a copy of the checkout with one mistake, so that the processes which
tests start have it too. The test files nearest to the mistake's module by imports are asked one after the other
(tests/mutation/related.py), until one notices it, or until they have used --seconds.

A mistake is noticed where a test fails with it and passes without it. One that makes a file of tests run longer than
--limit has a result of its own and does not count as noticed.
"""

import argparse
import csv
import importlib
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest

from tests.mutation import related, sites
from tests.mutation.sites import Mistake

# Packages and modules of profzoo/ in which numbers are derived.
PACKAGES = (
    "calibration", "compare", "experiments", "figures", "foreign_reports", "formatting.py", "fusion", "harness",
    "io", "kernels", "launches", "machine", "op_costs", "plans", "referee", "report", "script_harness", "statistics",
    "tables", "terminal", "tools", "trials", "verdicts", "what_if",
)  # fmt: skip
# All others, and modules of PACKAGES that are left out, with what they do instead.
WITHOUT_NUMBERS = {
    **dict.fromkeys(("cell", "config", "extensions.py"), "check settings"),
    **dict.fromkeys(("cli", "collect", "workflow", "run.py"), "start processes, and move, hand out or withhold files"),
    **dict.fromkeys(("records", "versions.py"), "compare files and versions"),
    "document": "writes texts",
    **dict.fromkeys(("catalog", "results.py"), "read and write tables by calling other modules"),
    **dict.fromkeys(("__init__.py", "__main__.py", "errors.py", "json_types.py", "range_names.py"), "hold names"),
    **dict.fromkeys((f"figures/{name}.py" for name in ("__init__", "drawing", "palette", "plots")),
                    "place marks and texts on paper"),
    **dict.fromkeys((f"report/{name}.py" for name in ("glossary",)), "write texts"),
    **dict.fromkeys(("terminal/log_handler.py", "tools/unavailable_tools.py"), "write texts"),
}  # fmt: skip
# Functions in which a mistake would reach beyond the tests: mounts over the machine's own /proc, where this is run by
# root, or kills other processes of this user.
UNSAFE = {
    ("profzoo/machine/namespace.py", "_unshare"),
    ("profzoo/machine/namespace.py", "_mount"),
    ("profzoo/machine/scratch_folder.py", "_marked"),
    ("profzoo/referee/exchange.py", "_signal"),
    ("profzoo/referee/exchange.py", "close"),
    ("profzoo/referee/rounds.py", "_end_strays"),
}
EQUIVALENT = Path("tests/mutation/equivalent.tsv")
# What tests and package take from elsewhere, in one process for all forks.
LIBRARIES = ("numpy", "pandas", "scipy.stats", "torch", "torchvision", "matplotlib.pyplot", "seaborn", "pytest", "yaml")
NOTICED, SURVIVED, TIMED_OUT, UNTESTED = "noticed", "survived", "timed out", "untested"


@dataclass(frozen=True)
class Outcome:
    """What came of one mistake: NOTICED, SURVIVED, TIMED_OUT or UNTESTED, and how many test files would be asked."""

    mistake: Mistake
    result: str
    files: int


def package(path: str) -> str:
    """The package that a mistake is counted in: tools apart.

    >>> package("profzoo/tools/ncu/estimates.py"), package("profzoo/statistics/percentiles.py")
    ('tools/ncu', 'statistics')
    """
    parts = path.removeprefix("profzoo/").removesuffix(".py").split("/")
    return "/".join(parts[: 2 if parts[0] == "tools" else 1])


def all_mistakes(packages: Sequence[str]) -> list[Mistake]:
    """Every mistake that can safely be planted in these packages of profzoo/, by its place."""
    paths = [path for name in packages for path in sorted(Path("profzoo", name).rglob("*.py"))]
    paths += [Path("profzoo", name) for name in packages if name.endswith(".py")]
    found = (mistake for path in paths for mistake in sites.find(path, str(path)))
    return [
        mistake
        for mistake in found
        if (mistake.path, mistake.function) not in UNSAFE
        and mistake.path.removeprefix("profzoo/") not in WITHOUT_NUMBERS
    ]


def read_equivalent(path: Path) -> dict[tuple[str, str, str, str], str]:
    """Mistakes that change no result, by their key, with the reason; file, function, before, after and why, by tabs."""
    if not path.exists():
        return {}
    with path.open(newline="") as rows:
        return {(row[0], row[1], row[2], row[3]): row[4] for row in csv.reader(rows, delimiter="\t") if len(row) == 5}


def import_libraries() -> None:
    """Import what forks then have, and keep torch to one thread."""
    for name in LIBRARIES:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)


def copy_checkout(folder: Path) -> None:
    """What git tracks or would track, and the compiled modules, with their times: for one worker."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True, capture_output=True
    ).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, names)):
        if not Path(name).is_file():
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(name, folder / name, follow_symlinks=False)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    compiler = [sys.executable, "-m", "compileall", "-q", "profzoo", "tests", "models"]
    subprocess.run(compiler, cwd=folder, check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""})


def ask(mistake: Mistake, files: Sequence[str], folder: Path, seconds: float, limit_s: float) -> str:
    """Say what test files make of a mistake in the copy of the checkout in `folder`, which is then as it was.

    seconds: processor time after which no further file is asked; limit_s: the most that one file may take.
    """
    used_s = 0.0
    for file in files:
        result, file_s = ask_file(mistake, file, folder, limit_s)
        used_s += file_s
        if result != SURVIVED or used_s > seconds:
            return result
    return SURVIVED


def ask_file(mistake: Mistake, file: str, folder: Path, limit_s: float) -> tuple[str, float]:
    """Say what one test file makes of a mistake, and how much processor time that took in seconds."""
    path = folder / mistake.path
    source, state = path.read_bytes(), path.stat()
    failure = folder / "build/first-failure"
    failure.parent.mkdir(exist_ok=True)
    unsound: list[str] = []
    used_s = 0.0
    while True:
        failure.unlink(missing_ok=True)
        left_out = [word for test in unsound for word in ("--deselect", test)]
        try:
            path.write_bytes(mistake.plant(source))
            code, file_s = related.run_in_fork(
                [file], folder, limit_s, related.Failures(failure), ["-x", *related.MARKED, *left_out]
            )
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        used_s += file_s
        # No test of the file may be left, which pytest says by a code of its own.
        if code in (None, 0, pytest.ExitCode.NO_TESTS_COLLECTED):
            return (TIMED_OUT if code is None else SURVIVED), used_s
        if not failure.exists():
            return NOTICED, used_s
        failed = failure.read_text()
        # A test that fails without the mistake too, as on a busy machine, has not noticed it.
        code, again_s = related.run_in_fork([failed], folder, limit_s, related.Failures(failure), ["-x"])
        used_s += again_s
        if code == 0:
            return NOTICED, used_s
        unsound.append(failed)


def work(waiting: "multiprocessing.Queue", done: "multiprocessing.Queue", seconds: float, limit_s: float) -> None:
    """Take mistakes with their test files until there is none, and say what came of each."""
    import_libraries()
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        copy_checkout(Path(name))
        while (task := waiting.get()) is not None:
            at, mistake, files = task
            result = ask(mistake, files, Path(name), seconds, limit_s) if files else UNTESTED
            done.put((at, result))


def try_all(
    drawn: Sequence[Mistake], files: Callable[[Mistake], list[str]], workers: int, seconds: float, limit_s: float
) -> Iterator[Outcome]:
    """The outcome of each mistake, in the order in which they end."""
    context = multiprocessing.get_context("fork")
    waiting, done = context.Queue(), context.Queue()
    asked = [files(mistake) for mistake in drawn]
    for at, mistake in enumerate(drawn):
        waiting.put((at, mistake, asked[at]))
    for _ in range(workers):
        waiting.put(None)
    processes: list[ForkProcess] = [
        context.Process(target=work, args=(waiting, done, seconds, limit_s)) for _ in range(workers)
    ]
    for process in processes:
        process.start()
    for _ in drawn:
        at, result = done.get()
        yield Outcome(drawn[at], result, len(asked[at]))
    for process in processes:
        process.join()


def summarise(outcomes: Iterable[Outcome]) -> list[str]:
    """A line per package with the count of each result and the share that was noticed; the last of all."""
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        for name in (package(outcome.mistake.path), "all"):
            counts.setdefault(name, Counter())[outcome.result] += 1
    lines = []
    for name in sorted(counts, key=lambda name: (name == "all", name)):
        of = counts[name]
        parts = ", ".join(f"{of[result]:3} {result}" for result in (NOTICED, SURVIVED, TIMED_OUT, UNTESTED))
        lines.append(f"{name:16} {parts} of {of.total():3}: {of[NOTICED] / of.total():4.0%} noticed")
    return lines


def describe(outcome: Outcome) -> str:
    """One line of a mistake that no test noticed."""
    mistake = outcome.mistake
    before, after = (" ".join(text.split()) for text in (mistake.before, mistake.after))
    return f"{mistake.path}:{mistake.line} {mistake.function}: {before} -> {after} ({outcome.result}, {outcome.files} test files)"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=None, help="what mistakes are drawn by; drawn afresh and printed if none"
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--packages", nargs="*", default=PACKAGES)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--seconds", type=float, default=40, help="of processor time, after which no further file is asked"
    )
    parser.add_argument("--limit", type=float, default=120, help="seconds of processor time that one file may take")
    parser.add_argument("--files", type=int, default=6, help="the most test files that are asked about a mistake")
    parser.add_argument("--rows", type=Path, help="a file that gets a row per mistake")
    parser.add_argument("--again", type=Path, help="a file of such rows, whose mistakes are planted again, none drawn")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, plant, ask and print."""
    asked = parse(arguments)
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    known = related.read()
    equivalent = read_equivalent(EQUIVALENT)
    every = all_mistakes(asked.packages)
    sound = [mistake for mistake in every if mistake.key not in equivalent]
    if asked.again:
        with asked.again.open(newline="") as rows:
            before = {tuple(row[:4]) for row in csv.reader(rows, delimiter="\t")}
        by_key = {mistake.key: mistake for mistake in sound}
        drawn = [by_key[key] for key in sorted(before & by_key.keys())]
        print(f"{len(before) - len(drawn)} of {len(before)} mistakes of {asked.again} have no place now")
    else:
        drawn = random.Random(seed).sample(sound, min(asked.count, len(sound)))
    print(
        f"seed {seed}: {len(drawn)} of {len(sound)} mistakes; {len(every) - len(sound)} known to change nothing",
        flush=True,
    )
    outcomes = []

    def list_files(mistake: Mistake) -> list[str]:
        return known.list_files(mistake.path, asked.files)

    for outcome in try_all(drawn, list_files, asked.workers, asked.seconds, asked.limit):
        outcomes.append(outcome)
        if outcome.result != NOTICED:
            print(describe(outcome), flush=True)
    print("\n".join(summarise(outcomes)))
    if asked.rows:
        with asked.rows.open("w", newline="") as rows:
            lines = csv.writer(rows, delimiter="\t", lineterminator="\n")
            lines.writerows([*outcome.mistake.key, outcome.mistake.line, outcome.result] for outcome in outcomes)


if __name__ == "__main__":
    main()
