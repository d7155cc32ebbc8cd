"""Collects a half of the planted cases on a machine with a GPU, within some minutes; the next call goes on.

python -m tests.planted.collect --half development --results FOLDER --minutes 9 [--cases a,b] [--counters] [--pack FOLDER]

`--pack` puts what tables are made of into archives that another machine without a GPU can derive tables from
(`python -m tests.planted.derive`). Reports of nsys stay behind: their exports hold all that is read.
"""

import argparse
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.planted import configuration, packing, running, scoring
from tests.planted.cases import GROUPS, Case, find_cases

# Cases whose programs start up beside each other; one program at a time has the GPU.
SIDE_BY_SIDE = 3
# Programs of a case that may start beside each other: three tools, and the baseline of its twin.
PROGRAMS = 4
# How often runs are looked at, in seconds.
POLL_S = 0.2
# What archives take at the end, in minutes.
PACKING = 0.7


def choose_cases(half: str, names: str) -> list[Case]:
    wanted = [name for name in names.split(",") if name]
    found = [case for case in find_cases(half) if not wanted or case.name in wanted]
    if unknown := set(wanted) - {case.name for case in found}:
        raise SystemExit(f"--cases: the half {half} has no {', '.join(sorted(unknown))}")
    return found


def missing_files(case: Case, results: Path, tiny: bool, counters: bool = False) -> list[str]:
    """Files of a case and its twin that are not there."""
    wanted = [file for files in configuration.files_of(case, tiny, counters).values() for file in files]
    return [str(results / file) for file in wanted if not (results / file).is_file()]


def begin_case(case: Case, folder: Path, tiny: bool, counters: bool) -> subprocess.Popen[bytes] | None:
    """Start the snakemake that makes what is missing of a case and its twin; None where nothing is."""
    if not (targets := missing_files(case, folder / "results", tiny, counters)):
        return None
    words = [*targets, f"-j{PROGRAMS}", "--resources", f"gpu={PROGRAMS}"]
    return running.begin_snakemake(folder, [case], tiny, words, case.name, counters)


def collect(
    cases: Sequence[Case], folder: Path, until: float, side_by_side: int, tiny: bool, counters: bool = False
) -> dict[str, int | None]:
    """Have snakemake make what is missing, case by case, so that cases are complete however early time is up.

    Returns: exit codes of those that failed, by the name of the case, and None for those that were ended.
    """
    shared = [] if tiny else [str(folder / "results" / file) for file in configuration.shared_files()]
    if targets := [file for file in shared if not Path(file).is_file()]:
        code = running.wait_for(running.begin_snakemake(folder, cases, tiny, [*targets, "-j1"]), until)
        if code != 0:
            return {"snakemake": code}
    waiting, runs, codes = list(cases), {}, {}
    while (waiting or runs) and time.monotonic() < until:
        while waiting and len(runs) < side_by_side:
            case = waiting.pop(0)
            if run := begin_case(case, folder, tiny, counters):
                runs[case.name] = run
        time.sleep(POLL_S)
        for name in [name for name, run in runs.items() if run.poll() is not None]:
            codes[name] = runs.pop(name).returncode
    codes |= {name: running.wait_for(run, until) for name, run in runs.items()}
    return {name: code for name, code in codes.items() if code != 0}


def report(cases: Sequence[Case], folder: Path, tiny: bool, counters: bool = False) -> list[Case]:
    """Say how many cases are complete, and what the others lack; returns the complete ones."""
    lacking = {case.name: missing_files(case, folder / "results", tiny, counters) for case in cases}
    complete = [case for case in cases if not lacking[case.name]]
    for case in cases:
        # Without a verdict: sizes may be chosen by this, in either half.
        if timed := scoring.measure_case(case, folder / "results"):
            steps = f"{timed.faulty_ns / 1e6:.1f} ms, mended {timed.mended_ns / 1e6:.1f} ms"
            print(f"{case.name}: {steps}, {timed.gain:.2f} times [{timed.low:.2f}, {timed.high:.2f}]")
    print(f"{len(complete)} of {len(cases)} cases are complete")
    for name, files in lacking.items():
        if files:
            first = Path(files[0])
            print(f"  {name}: {len(files)} files are missing, such as {first.name} of {first.parent.name}")
    if left := [name for name, files in lacking.items() if files]:
        print(f"--cases {','.join(left)}")
    return complete


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.planted.collect")
    parser.add_argument("--half", choices=GROUPS, required=True)
    parser.add_argument("--results", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=9.0, help="when to end, counted from the start")
    parser.add_argument("--cases", default="", help="names, separated by commas; all of the half by default")
    parser.add_argument(
        "--side-by-side", type=int, default=SIDE_BY_SIDE, help="cases whose programs start up at a time"
    )
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="where archives of complete cases go")
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU, under time and torch alone")
    parser.add_argument("--counters", action="store_true", help="have ncu count the launches, too")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    cases, folder = choose_cases(options.half, options.cases), options.results.absolute()
    until = began + 60 * (options.minutes - (PACKING if options.pack else 0.0)) - running.ENDING_S
    failed = collect(cases, folder, until, options.side_by_side, options.tiny, options.counters)
    complete = report(cases, folder, options.tiny, options.counters)
    if options.pack:
        names = [name for case in complete for name in (case.name, case.twin)]
        for archive in packing.pack(folder / "results", names, options.pack, options.half):
            print(f"packed {archive.name}: {archive.stat().st_size / 2**20:.1f} MiB")
    print(f"{time.monotonic() - began:.0f} s")
    for name in [name for name, code in failed.items() if code is not None]:
        print(f"snakemake failed for {name}:\n{running.last_lines(folder, name)}")
    if any(code is not None for code in failed.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
