"""Draws mistakes by a seed, plants them one by one, runs the related tests and prints the share that was noticed.

`make mutants SEED=7 COUNT=300`, or `python -m tests.mutation.run --seed 7 --count 300`. Tests run in forks of a process
that has imported torch, pandas and scipy, each in a copy of the checkout with one mistake, so that the processes which
tests start have it too. The first run records which tests call which functions, in build/mutants/, which takes as long
as the unit tests do; later runs take that record until a source or a test changes.
"""

import argparse
import contextlib
import csv
import hashlib
import importlib
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from pathlib import Path

from tests.mutation import related, sites
from tests.mutation.sites import Mistake

# Packages of profzoo/ in which numbers are derived.
PACKAGES = (
    "compare",
    "harness",
    "kernels",
    "launches",
    "machine",
    "op_costs",
    "statistics",
    "tables",
    "tools",
    "trials",
    "verdicts",
    "what_if",
)
MODULES = ()
# Functions in which a mistake would reach beyond the tests: mounts over the machine's own /proc, where this is run by
# root, or kills other processes of this user.
UNSAFE = {
    ("profzoo/machine/namespace.py", "_unshare"),
    ("profzoo/machine/namespace.py", "_mount"),
    ("profzoo/machine/scratch_folder.py", "_marked"),
}
EQUIVALENT = Path("tests/mutation/equivalent.tsv")
RECORD = Path("build/mutants")
# What tests and package take from elsewhere, in one process for all forks.
LIBRARIES = ("numpy", "pandas", "scipy.stats", "torch", "torchvision", "matplotlib.pyplot", "seaborn", "pytest", "yaml")
PYTEST = (
    sys.executable, "-m", "pytest", "-q", "tests/unit", "tests/faults/test_readers.py", "-m", "not faults and not gpu"
)  # fmt: skip
NOTICED, SURVIVED, UNTESTED, HANGS = "noticed", "survived", "untested", "noticed (hangs)"


@dataclass(frozen=True)
class Outcome:
    """What came of one mistake: NOTICED, HANGS, SURVIVED or UNTESTED, and how many tests were asked."""

    mistake: Mistake
    result: str
    tests: int


def package(path: str) -> str:
    """The package that a mistake is counted in: tools apart.

    >>> package("profzoo/tools/ncu/strata.py"), package("profzoo/statistics/steady_state.py")
    ('tools/ncu', 'statistics')
    """
    parts = path.removeprefix("profzoo/").removesuffix(".py").split("/")
    return "/".join(parts[: 2 if parts[0] == "tools" else 1])


def all_mistakes(packages: Sequence[str]) -> list[Mistake]:
    """Every mistake that can safely be planted in these packages of profzoo/, by its place."""
    paths = [path for name in packages for path in sorted(Path("profzoo", name).rglob("*.py"))]
    paths += [Path("profzoo", name) for name in packages if name.endswith(".py")]
    found = (mistake for path in paths for mistake in sites.find(path, str(path)))
    return [mistake for mistake in found if (mistake.path, mistake.function) not in UNSAFE]


def read_equivalent(path: Path) -> dict[tuple[str, str, str, str], str]:
    """Mistakes that change no result, by their key, with the reason; file, function, before, after and why, by tabs."""
    if not path.exists():
        return {}
    with path.open(newline="") as rows:
        return {(row[0], row[1], row[2], row[3]): row[4] for row in csv.reader(rows, delimiter="\t") if len(row) == 5}


def record(folder: Path) -> Path:
    """The record of which tests call which functions, made where sources or tests are not those that it was made of."""
    digest = hashlib.sha256()
    for path in sorted([*Path("profzoo").rglob("*"), *Path("tests").rglob("*.py"), *Path("models").rglob("*.py")]):
        if path.is_file() and "__pycache__" not in path.parts and "mutation" not in path.parts:
            digest.update(f"{path}\0".encode() + path.read_bytes())
    made = folder / f"{digest.hexdigest()[:16]}.jsonl"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        making = made.with_suffix(".making")
        making.unlink(missing_ok=True)
        print("mutants: recording which tests call which functions, once", flush=True)
        calls = ["-n", "2", "-p", "tests.mutation.related", "--calls", str(making)]
        if subprocess.run([*PYTEST, *calls]).returncode not in (0, 1):
            sys.exit("mutants: the tests could not be run; see above")
        making.rename(made)
    return made


def collected() -> set[str]:
    """The tests that there are now: pytest ends with an error where it is asked for others, as if one had failed."""
    printed = subprocess.run([*PYTEST, "--collect-only"], check=True, capture_output=True, text=True).stdout
    return {line for line in printed.splitlines() if "::" in line}


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


def ask(mistake: Mistake, tests: Sequence[str], folder: Path, limit_s: float) -> str:
    """What the tests make of a mistake in the copy of the checkout in `folder`, which is then as it was."""
    path = folder / mistake.path
    source, state = path.read_bytes(), path.stat()
    try:
        path.write_bytes(mistake.plant(source))
        return _run(tests, folder, limit_s)
    finally:
        path.write_bytes(source)
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def _run(tests: Sequence[str], folder: Path, limit_s: float) -> str:
    """Run the tests in a fork, in a group of its own that ends with it."""
    child = os.fork()
    if not child:
        _be_pytest(tests, folder)
    ends = time.monotonic() + limit_s
    status = None
    while status is None and time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        status = status if done else None
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
        return HANGS
    return SURVIVED if status == 0 else NOTICED


def _be_pytest(tests: Sequence[str], folder: Path) -> None:
    os.setpgid(0, 0)
    sys.path[:] = [str(folder), *(entry for entry in sys.path if Path(entry).resolve() != related.ROOT)]
    for name in [name for name in sys.modules if name.partition(".")[0] in {"profzoo", "tests", "models"}]:
        del sys.modules[name]
    os.chdir(folder)
    importlib.invalidate_caches()
    sys.dont_write_bytecode = True
    os.environ["PYTHONPATH"] = str(folder)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    import pytest

    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(folder)]
    os._exit(int(pytest.main([*options, *tests])))


def work(waiting: "multiprocessing.Queue", done: "multiprocessing.Queue", limit_s: float) -> None:
    """One worker: takes mistakes with their tests until there is none, and says what came of each."""
    for name in LIBRARIES:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        copy_checkout(Path(name))
        while (task := waiting.get()) is not None:
            at, mistake, tests = task
            result = ask(mistake, tests, Path(name), limit_s) if tests else UNTESTED
            done.put((at, result))


def try_all(
    drawn: Sequence[Mistake], tests: Callable[[Mistake], list[str]], workers: int, limit_s: float
) -> Iterator[Outcome]:
    """The outcome of each mistake, in the order in which they end."""
    context = multiprocessing.get_context("fork")
    waiting, done = context.Queue(), context.Queue()
    asked = [tests(mistake) for mistake in drawn]
    for at, mistake in enumerate(drawn):
        waiting.put((at, mistake, asked[at]))
    for _ in range(workers):
        waiting.put(None)
    processes: list[ForkProcess] = [context.Process(target=work, args=(waiting, done, limit_s)) for _ in range(workers)]
    for process in processes:
        process.start()
    for _ in drawn:
        at, result = done.get()
        yield Outcome(drawn[at], result, len(asked[at]))
    for process in processes:
        process.join()


def summarise(outcomes: Iterable[Outcome]) -> list[str]:
    """A line per package: mistakes that tests noticed, of how many; the last of all."""
    drawn: Counter[str] = Counter()
    noticed: Counter[str] = Counter()
    for outcome in outcomes:
        for name in (package(outcome.mistake.path), "all"):
            drawn[name] += 1
            noticed[name] += outcome.result in (NOTICED, HANGS)
    names = [*sorted(name for name in drawn if name != "all"), *(["all"] if drawn else [])]
    return [
        f"{name:12} {noticed[name]:4} of {drawn[name]:4} noticed, {noticed[name] / drawn[name]:4.0%}" for name in names
    ]


def describe(outcome: Outcome) -> str:
    """One line of a mistake that no test noticed."""
    mistake = outcome.mistake
    before, after = (" ".join(text.split()) for text in (mistake.before, mistake.after))
    return f"{mistake.path}:{mistake.line} {mistake.function}: {before} -> {after} ({outcome.result}, {outcome.tests} tests)"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=None, help="what mistakes are drawn by; drawn afresh and printed if none"
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--packages", nargs="*", default=PACKAGES)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=40, help="of tests for each mistake, the most specific first")
    parser.add_argument("--record", type=Path, help="which tests call which functions, of a run before")
    parser.add_argument("--rows", type=Path, help="a file that gets a row per mistake")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, plant, ask and print."""
    asked = parse(arguments)
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    known = related.read(asked.record, collected()) if asked.record else related.read(record(RECORD))
    equivalent = read_equivalent(EQUIVALENT)
    every = all_mistakes(asked.packages)
    sound = [mistake for mistake in every if mistake.key not in equivalent]
    drawn = random.Random(seed).sample(sound, min(asked.count, len(sound)))
    print(
        f"seed {seed}: {len(drawn)} of {len(sound)} mistakes; {len(every) - len(sound)} known to change nothing",
        flush=True,
    )
    outcomes = []
    for outcome in try_all(
        drawn, lambda mistake: known.of(mistake, asked.seconds), asked.workers, 3 * asked.seconds + 30
    ):
        outcomes.append(outcome)
        if outcome.result in (SURVIVED, UNTESTED):
            print(describe(outcome), flush=True)
    print("\n".join(summarise(outcomes)))
    if asked.rows:
        with asked.rows.open("w", newline="") as rows:
            lines = csv.writer(rows, delimiter="\t", lineterminator="\n")
            lines.writerows([*outcome.mistake.key, outcome.mistake.line, outcome.result] for outcome in outcomes)


if __name__ == "__main__":
    main()
