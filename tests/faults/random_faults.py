"""Breaks runs at random: `python -m tests.faults.random_faults [--seed 0] [--minutes 60 | --count 100] [--kinds kill]`.

Each step begins with results that are whole, does one fault of a kind that the seed draws, and types `snakemake all`
until that ends well; of other commands it types only those that a run has printed for a damaged measurement. All tables
must then be those of an undisturbed run, byte for byte, as cells leave what was recorded once. The first step that ends
otherwise ends all, with the words that repeat it.
"""

import argparse
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults import family
from tests.workflow import forked
from tests.workflow.project import ONE_MODEL, Project, copy

TARGETS = ["all"]
# A cell waits for this time, so that kills can hit it while it runs.
PAUSE = "train 0.3"
# Largest number of runs after a fault until one succeeds.
TRIES = 3
# The command in a message about a damaged measurement, which makes it again.
PRINTED = re.compile(r"`(snakemake [^`]+)`")
# Options that no user should need.
BY_HAND = ("--unlock", "--rerun-incomplete", "--cleanup-metadata")
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
VICTIMS = ("snakemake", "snakemake", "all", "wrapper", "supervisor", "model")
# Files written within this time before a power loss may not be on the disk.
UNWRITTEN_S = 5.0
# Files of cells; without them a cell runs again.
MEASURED = ("train.time.csv", "inference.time.csv", "train.trace.json.gz", "inference.trace.json.gz")
# Note on a fault that had no effect, because the run had ended.
TOO_LATE = ", too late"
DAY_S = 24 * 3600


class DifferenceError(Exception):
    """A step ended in a way that is not allowed."""


@dataclass
class Bench:
    """A project in which faults happen, and what it is to look like after each.

    tables: what those of an undisturbed run hold, by their places. full_s: how long that took. output: what a step's runs
    have said. lost: files that a step has taken away itself; those that nothing needs any longer are not made again.
    """

    folder: Path
    recording: Path | None = None
    tables: dict[str, bytes] = field(default_factory=dict)
    full_s: float = 20.0
    targets: list[str] = field(default_factory=lambda: [*TARGETS])
    output: str = ""
    lost: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.root, self.whole = self.folder / "project", self.folder / "whole"
        self.project = Project(self.root)
        self.project.variables = {"MARK": str(self.folder / "mark"), "PYTHON_PAUSE": PAUSE}

    def prepare(self) -> None:
        """Record a run if there is no recording, and make the tables with which all others are compared."""
        made = copy(self.root)
        made.draw_one()
        made.write("config/config.yaml", f"{ONE_MODEL}variables: [MARK]\n")
        if not self.recording:
            self.must()
            self.recording = self.folder / "recording"
            (self.root / "results").rename(self.recording)
            shutil.rmtree(self.root / ".snakemake")
        self.project.recording = self.recording
        began = time.monotonic()
        self.must()
        self.full_s = time.monotonic() - began
        self.tables = self.told()
        subprocess.run(["cp", "-a", str(self.root), str(self.whole)], check=True)

    def must(self) -> None:
        """Run snakemake, which must succeed."""
        code = self.run(self.targets)
        if code:
            raise DifferenceError(f"an undisturbed run ended with {code}: {self.output}")

    def run(self, words: Sequence[str]) -> int:
        """Run snakemake with these words, keep its output and return its exit code."""
        done = forked.snakemake(words, self.root, self.project.environment())
        self.output += f"$ snakemake {shlex.join(words)}\n{done.stdout}{done.stderr}"
        return done.returncode

    def restore(self) -> None:
        """Restore complete results."""
        for path in self.folder.iterdir():
            if path.name in ("project", "moved", "second"):
                shutil.rmtree(path)
        subprocess.run(["cp", "-a", str(self.whole), str(self.root)], check=True)
        self.output, self.lost = "", set()

    def told(self) -> dict[str, bytes]:
        results = self.root / "results"
        return {str(path.relative_to(results)): path.read_bytes() for path in tables(results)}

    def some_lost(self, draw: random.Random) -> float:
        """Take away some of the results, or all, or change what they are made of; seconds that the next run may take."""
        results = self.root / "results"
        if draw.random() < 0.4:
            shutil.rmtree(results)
            return self.full_s * 0.9
        files = sorted(path for path in results.glob("lstm/*") if path.is_file() and path.suffix != ".json")
        measured = [path for path in files if path.name in MEASURED]
        again = draw.sample(measured, min(len(measured), draw.randint(1, 2)))
        for path in {*draw.sample(files, draw.randint(0, 2)), *again}:
            path.unlink()
            self.lost.add(str(path.relative_to(results)))
        # What is asked for is made again.
        for path in (results / "report.html", *map(self.root.joinpath, self.targets)):
            path.unlink(missing_ok=True)
        return self.full_s / 2

    def begun(self) -> subprocess.Popen[str]:
        """Start a run in the background, in a process group of its own."""
        return self.project.begun(*self.targets)


def tables(results: Path) -> list[Path]:
    """Those that are compared: times that a run takes for itself are in sidecars, logs and benchmarks."""
    return sorted(
        path
        for path in results.rglob("*.csv")
        if path.is_file() and not {"logs", "benchmarks", ".records"} & set(path.relative_to(results).parts[:-1])
    )


def kill(bench: Bench, draw: random.Random) -> str:
    """Kill one process of a run, or all, at a random moment by a random signal."""
    victim, number = draw.choice(VICTIMS), draw.choice(SIGNALS)
    after = draw.random() * (bench.some_lost(draw) if victim in ("snakemake", "all") else 0.4)
    if victim not in ("snakemake", "all"):
        bench.some_lost(draw)
    run = bench.begun()
    try:
        process: int | None = run.pid
        if victim not in ("snakemake", "all"):
            process = seen(
                run, bench, victim, draw.randint(0, len(MEASURED)) if not (bench.root / "results").exists() else 0
            )
        with suppress(subprocess.TimeoutExpired):
            run.wait(after) if process == run.pid else time.sleep(after)
        with suppress(ProcessLookupError):
            if victim == "all":
                os.killpg(run.pid, number)
            elif process and (process != run.pid or run.poll() is None):
                os.kill(process, number)
    finally:
        ended(run, bench)
    return f"{victim} by {number.name}" + ("" if run.returncode else TOO_LATE)


def seen(run: subprocess.Popen[str], bench: Bench, kind: str, nth: int) -> int | None:
    """The process of that kind of the nth job that has one; None where the run ends before."""
    known: list[int] = []
    word = f"MARK={bench.folder / 'mark'}"
    while run.poll() is None:
        with suppress(StopIteration):
            process = family.member(word, kind)
            if process not in known:
                known.append(process)
            if len(known) > nth:
                return process
        time.sleep(0.01)
    return None


def ended(run: subprocess.Popen[str], bench: Bench) -> None:
    """Wait for a run and all its processes; processes that outlive it must end by themselves."""
    try:
        printed, _ = run.communicate(timeout=240)
    finally:
        run.kill()
    bench.output += f"$ snakemake {shlex.join(bench.targets)}  # which was disturbed\n{printed}"
    word = f"MARK={bench.folder / 'mark'}"
    family.until(lambda: not family.marked(word), 60)


def power(bench: Bench, draw: random.Random) -> str:
    """Lose the machine's power: all processes are killed, and some recent files are cut off, empty or contain NUL."""
    span = bench.some_lost(draw) + 2
    run = bench.begun()
    with suppress(subprocess.TimeoutExpired):
        run.wait(draw.random() * span)
    with suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    now = time.time()
    ended(run, bench)
    places = [bench.root / "results", bench.root / ".snakemake"]
    files = sorted(path for place in places for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    late = [path for path in files if now - path.stat().st_mtime < UNWRITTEN_S]
    lost = draw.sample(late, min(len(late), draw.randint(1, 5)))
    return f"{len([damage(path, draw) for path in lost])} files"


def damage(path: Path, draw: random.Random) -> str:
    """Damage a file as a power loss may, with its old modification time."""
    content, when = path.read_bytes(), path.stat().st_mtime_ns
    kept = draw.randrange(len(content)) if content else 0
    how = draw.choice(("empty", "cut", "nul"))
    path.write_bytes({"empty": b"", "cut": content[:kept], "nul": content[:kept] + bytes(len(content) - kept)}[how])
    os.utime(path, ns=(when, when))
    return how


def damaged(bench: Bench, draw: random.Random) -> str:
    """Damage a file of the results as a power loss or an editor may."""
    files = [path for path in tables(bench.root / "results") if path.stat().st_size]
    path = draw.choice(
        [*files, *sorted((bench.root / "results").glob("lstm/*.gz")), bench.root / "results/report.html"]
    )
    return f"{path.relative_to(bench.root)} {damage(path, draw)}"


def digit(bench: Bench, draw: random.Random) -> str:
    """Change one digit of a table, with the same size, and with or without the same modification time."""
    path = draw.choice([path for path in tables(bench.root / "results") if re.search(rb"[0-9]", path.read_bytes())])
    content, when = path.read_bytes(), path.stat().st_mtime_ns
    at = draw.choice([one.start() for one in re.finditer(rb"[0-9]", content)])
    other = draw.choice([one for one in b"0123456789" if one != content[at]])
    path.write_bytes(content[:at] + bytes([other]) + content[at + 1 :])
    if draw.random() < 0.5:
        os.utime(path, ns=(when, when))
    return f"{path.relative_to(bench.root)}, byte {at}"


def record(bench: Bench, draw: random.Random) -> str:
    """Damage, exchange or remove a sidecar or a record."""
    results = bench.root / "results"
    files = sorted(path for path in results.rglob("*.json") if path.is_file())
    path, how = draw.choice(files), draw.choice(("gone", "another's", "damaged", "value"))
    if how == "gone":
        path.unlink()
    elif how == "another's":
        path.write_bytes(draw.choice(files).read_bytes())
    elif how == "damaged":
        damage(path, draw)
    else:
        with suppress(ValueError, AttributeError):
            held = json.loads(path.read_text())
            held[draw.choice(sorted(held))] = draw.choice((None, 0, "x", [], {}))
            path.write_text(json.dumps(held))
    return f"{path.relative_to(bench.root)} {how}"


def full(bench: Bench, draw: random.Random) -> str:
    """Limit the disk of the results to some KB for one run."""
    bench.some_lost(draw)
    results, kept = bench.root / "results", bench.folder / "kept"
    results.mkdir(exist_ok=True)
    taken = sum(path.stat().st_size for path in results.rglob("*") if path.is_file()) // 1024
    room = taken + 64 + draw.randrange(2000)
    subprocess.run(["cp", "-a", str(results), str(kept)], check=True)
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={room}k", "none", str(results)]
    subprocess.run(mounted, check=True)
    try:
        subprocess.run(["cp", "-a", f"{kept}/.", str(results)], check=False, capture_output=True)
        shutil.rmtree(kept)
        code = bench.run(bench.targets)
        subprocess.run(["cp", "-a", str(results), str(kept)], check=True)
    finally:
        subprocess.run(["umount", "-l", str(results)], check=True)
    shutil.rmtree(results)
    kept.rename(results)
    return f"{room} KB" + ("" if code else TOO_LATE)


def forgotten(bench: Bench, draw: random.Random) -> str:
    """Delete Snakemake's own folder, or a part of it."""
    folder = bench.root / ".snakemake"
    parts = sorted(folder.iterdir())
    for path in draw.choice((parts, draw.sample(parts, len(parts) // 2))):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if draw.random() < 0.5:
        bench.some_lost(draw)
    return ""


def moved(bench: Bench, draw: random.Random) -> str:
    """Move the project's folder, or copy it with other modification times."""
    away = bench.folder / "moved"
    if draw.random() < 0.5:
        bench.root.rename(away)
    else:
        shutil.copytree(bench.root, away, symlinks=True, copy_function=shutil.copy)
        shutil.rmtree(bench.root)
    if draw.random() < 0.5:
        # The old path is now another folder.
        away.rename(bench.root)
        return "there and back"
    bench.root, bench.project.root = away, away
    return "away"


def second(bench: Bench, draw: random.Random) -> str:
    """Make the same results from a second checkout with other settings."""
    other = Project(bench.folder / "second", variables=bench.project.variables, recording=bench.recording)
    subprocess.run(["cp", "-a", str(bench.whole), str(other.root)], check=True)
    shutil.rmtree(other.root / "results")
    (other.root / "results").symlink_to(bench.root / "results")
    if draw.random() < 0.5:
        shutil.rmtree(other.root / ".snakemake")
    given = draw.choice(("time={window: 3}", "seed=7", "figures={top: 3}", "batch=7"))
    done = forked.snakemake([*bench.targets, "--config", given], other.root, other.environment())
    bench.output += f"$ snakemake {shlex.join(bench.targets)} --config {given}  # in the second checkout\n{done.stdout}{done.stderr}"
    return given.partition("=")[0]


def clock(bench: Bench, draw: random.Random) -> str:
    """Give some files times of a clock that was ahead or behind by at most a day."""
    shift = draw.choice((-1, 1)) * draw.choice((60, 3600, DAY_S))
    files = sorted(path for path in bench.root.rglob("*") if path.is_file() and not path.is_symlink())
    for path in draw.choice((files, draw.sample(files, len(files) // 3))):
        when = path.stat().st_mtime + shift
        os.utime(path, (when, when))
    if draw.random() < 0.5:
        bench.some_lost(draw)
    return f"{shift} s"


KINDS: dict[str, Callable[[Bench, random.Random], str]] = {
    "kill": kill, "power": power, "damaged": damaged, "digit": digit, "record": record, "full": full,
    "forgotten": forgotten, "moved": moved, "second": second, "clock": clock,
}  # fmt: skip
# After these faults, a run may print the command for a damaged measurement.
NAMED = {"power", "damaged", "digit", "record", "full", "second", "clock"}


def step(bench: Bench, kind: str, draw: random.Random) -> tuple[int, int, str]:
    """Cause one fault; return the number of runs until one succeeded, further commands, and the fault.

    Raises:
        DifferenceError: no run ended well, or something is not as it would be undisturbed.
    """
    bench.root = bench.project.root = bench.folder / "project"
    bench.restore()
    what = KINDS[kind](bench, draw)
    tries = typed = 0
    while True:
        tries += 1
        before = len(bench.output)
        code = bench.run(bench.targets)
        said = bench.output[before:]
        if any(word in said for word in BY_HAND):
            raise DifferenceError(f"{what}: asks for work by hand: {said}")
        commands = list(dict.fromkeys(PRINTED.findall(said))) if kind in NAMED else []
        for command in commands:
            typed += 1
            bench.run(shlex.split(command)[1:])
        if not code and not commands:
            break
        if tries == TRIES:
            raise DifferenceError(f"{what}: no run of {TRIES} ended well: {bench.output}")
    now = bench.told()
    for name in sorted({*now} | {*bench.tables}):
        if now.get(name) != bench.tables.get(name) and (name in now or name not in bench.lost):
            raise DifferenceError(f"{what}: results/{name} differs from that of an undisturbed run: {bench.output}")
    left = [*bench.root.glob("results/**/.*.making"), *bench.root.glob(".snakemake/locks/*")]
    if left:
        raise DifferenceError(f"{what}: {left} are left: {bench.output}")
    return tries, typed, what


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.random_faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--count", type=int, help="so many steps, however long they take")
    parser.add_argument("--kinds", default=",".join(KINDS), help="a comma-separated list")
    parser.add_argument("--step", type=int, help="that step alone")
    parser.add_argument("--targets", default="all", help="of one word or several, which make fewer tables in less time")
    parser.add_argument("--recording", type=Path, help="results of a real run of this, to save making one")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        parser.error(f"--kinds {unknown[0]}: there are {', '.join(KINDS)}")
    bench = Bench(Path(tempfile.mkdtemp(prefix="faults-")), options.recording and options.recording.absolute())
    bench.targets = options.targets.split()
    counts: dict[str, Counter[str]] = {}
    began, number = time.monotonic(), options.step or 0
    try:
        bench.prepare()
        while not over(options, number, time.monotonic() - began):
            draw = random.Random(f"{options.seed}:{number}")
            kind = draw.choice(kinds)
            try:
                tries, typed, what = step(bench, kind, draw)
            except (DifferenceError, TimeoutError, subprocess.SubprocessError, OSError) as error:
                again = f"--seed {options.seed} --step {number} --kinds {options.kinds} --targets '{options.targets}'"
                print(f"{error}\nstep {number}, {kind}: python -m tests.faults.random_faults {again}", flush=True)
                return 1
            counted = counts.setdefault(kind, Counter())
            counted.update(
                {
                    "faults": 1,
                    "met nothing": int(what.endswith(TOO_LATE)),
                    f"{tries} runs" if tries > 1 else "1 run": 1,
                    "commands typed": typed,
                }
            )
            print(f"{number:5}  {kind:10} {what}; {tries} run(s), {typed} command(s)", flush=True)
            number += 1
    finally:
        print(told(counts))
        shutil.rmtree(bench.folder, ignore_errors=True)
    return 0


def over(options: argparse.Namespace, number: int, seconds: float) -> bool:
    """Return whether no further step follows."""
    if options.step is not None:
        return number > options.step
    return number >= options.count if options.count else seconds > 60 * options.minutes


def told(counts: dict[str, Counter[str]]) -> str:
    """Return a table of the number of faults by kind and their results."""
    heads = ["faults", "met nothing", "1 run", "2 runs", "3 runs", "commands typed"]
    rows = [["kind", *heads], *([kind, *(str(found[head]) for head in heads)] for kind, found in counts.items())]
    return "\n".join("  ".join(f"{cell:>14}" for cell in row) for row in rows)


if __name__ == "__main__":
    sys.exit(main())
