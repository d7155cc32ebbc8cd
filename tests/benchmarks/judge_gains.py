"""How many true gains of 3 % `judge` finds within a budget, and how often it calls a state faster than itself.

python -m tests.benchmarks.judge_gains [--device cuda] [--gains 20] [--nulls 5] [--budget 15s] [--long 20s]
    [--shape width=512,batch=8192] [--threads 0] [--turn 0]

A gain is a chain of 33 equal products (tests/benchmarks/judged_chain.py) against the chain that makes one more, whose
result counts nothing: 3 % less work with the same results. Its place in the chain is another one in each case. A null is
the chain against itself. The size of the gain is measured besides, by rounds that go on for the time of --long.

Processes of both sides live for several rounds, as a process takes seconds to import torch and to begin with CUDA. That
is fair: the sides take turns within a second, in an order that alternates, and only one of them works at a time. What
differs from process to process by chance, such as where its memory lies, stays the same for that pair of processes. So a
pair is replaced by a new one after some rounds, and a gain of less than 10 % is called one only after two pairs. On a
CPU, where processes stay on cores that others use, each round has a pair of its own.
"""

import argparse
import math
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from profzoo.cli.judge import parse_shape
from profzoo.experiments.forked_runs import ProcessStarter
from profzoo.machine.job_limits import parse_seconds
from profzoo.referee.exchange import COMMAND
from profzoo.referee.judge import Judgement, Options, judge, open_rounds
from profzoo.statistics.speedup import EQUIVALENT, FASTER

CHAIN = Path(__file__).with_name("judged_chain.py")
LAYERS, NOWHERE = 33, -1


def write_state(folder: Path, after: int) -> str:
    """Write a chain into a new folder; after: place of the product that counts nothing, NOWHERE for none."""
    folder.mkdir()
    shutil.copy(CHAIN, folder / "model.py")
    (folder / "plan.py").write_text(f"AFTER = {after}\n")
    return str(folder)


def measure_long(home: Path, options: Options, seconds: float, starter: ProcessStarter) -> list[float]:
    """Return the logarithms of rounds that go on for so long, of a gain."""
    sides = write_state(home / "long-a", LAYERS // 2), write_state(home / "long-b", NOWHERE)
    found: list[float] = []
    with open_rounds(*sides, options, starter) as play:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            found.append(play())
    return found


def describe_long(found: list[float]) -> str:
    """Describe the size of a gain, with Student's interval."""
    mean = statistics.mean(found)
    error = 2 * statistics.stdev(found) / math.sqrt(len(found)) if len(found) > 1 else math.nan
    return f"{-np.expm1(mean):.2%} +- {error:.2%} of the time, by {len(found)} rounds"


def show(name: str, found: Judgement, seconds: float) -> None:
    """Print one case."""
    size = f"{found.ratio:.4f} ({found.low:.4f} to {found.high:.4f})" if found.ratio else found.why
    device = found.candidate_device_s / found.reference_device_s if found.reference_device_s else None
    own = f", by the device's clock {device:.4f}" if device else ""
    notes = "; ".join(found.notes)
    print(f"{name}: {found.outcome} in {seconds:.1f} s ({notes}), {len(found.rounds)} rounds, {size}{own}", flush=True)


def main() -> None:
    """Judge, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--gains", type=int, default=20)
    parser.add_argument("--nulls", type=int, default=5)
    parser.add_argument("--budget", default="15s")
    parser.add_argument("--long", default="20s")
    parser.add_argument("--shape", default="")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--turn", type=float, default=0.0, metavar="S", help="seconds of a turn; a part of the budget")
    given = parser.parse_args()
    options = Options(
        module="model.py", device=given.device, shape=parse_shape(given.shape), threads=given.threads,
        budget_s=parse_seconds(given.budget, "--budget"), turn_s=given.turn,
    )  # fmt: skip
    starter = ProcessStarter(fork=True)
    # What imports torch is there before the first case, and serves all.
    starter.prepare(COMMAND)
    began, gains, nulls = time.monotonic(), list[Judgement](), list[Judgement]()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for number in range(given.gains + given.nulls):
            is_gain = number < given.gains
            after = (number * 7 + 3) % LAYERS if is_gain else NOWHERE
            sides = write_state(home / f"{number}-a", after), write_state(home / f"{number}-b", NOWHERE)
            at = time.monotonic()
            found = judge(*sides, options, starter=starter)
            (gains if is_gain else nulls).append(found)
            show(f"{'gain' if is_gain else 'null'} {number}", found, time.monotonic() - at)
        long = measure_long(home, options, parse_seconds(given.long, "--long"), starter)
    starter.close()
    count = sum(one.outcome == FASTER for one in gains)
    wrong = sum(one.outcome == FASTER for one in nulls)
    same = sum(one.outcome == EQUIVALENT for one in nulls)
    print(f"true size of the gain: {describe_long(long)}")
    print(f"found {count} of {len(gains)} gains within {given.budget} each")
    print(f"called {wrong} of {len(nulls)} nulls faster, and {same} equivalent")
    print(f"all of it took {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
