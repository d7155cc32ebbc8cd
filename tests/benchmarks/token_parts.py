"""Where the time of a token goes on a GPU, against times that know nothing of parts: batches, contexts, planted causes.

python -m tests.benchmarks.token_parts FOLDER      measures into FOLDER and prints; about five minutes on an H100

Each cell runs in one process, which first times steps without a profiler. `parts` add up to these times by construction;
`trace` is the sum over launches and idle time, and `wall` the time between the last launch of the prompt and the last
one of the step. A planted cause costs what the decoder takes longer with it than without.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from profzoo.io import csv_tables
from profzoo.range_names import DECODE, PREFILL
from profzoo.tables import tokens
from profzoo.tables.roofline import read_peaks
from profzoo.tools.time.tables import TABLE
from profzoo.tools.torch import owners
from profzoo.tools.torch.trace import read_trace

DECODER = ("decoder", "module=tests.gpu.programs.decoder")
# Each planted cause, with the settings under which it is the largest, and what plants it.
PLANTED: Mapping[str, tuple[Sequence[str], str]] = {
    tokens.TRAFFIC: (["tokens=2048"], "copies=true"),
    tokens.SMALL: ([], "pieces=true"),
    tokens.WAITS: ([], "waits=true"),
}
SHORT = ("warmup=2", "window=2", "profiler.baseline=4")
GPT = ("precision=bf16", "generated=32")


class Seen(NamedTuple):
    """A measured cell: rows of the table of tokens, and ns per token of the unprofiled run and of the trace's wall."""

    rows: pd.DataFrame
    measured: tokens.Measured
    wall_ns: float

    @property
    def decode(self) -> pd.DataFrame:
        """The rows of tokens after the first."""
        return self.rows[self.rows["range"] == DECODE]


def measure_peaks(folder: Path) -> dict[str, float]:
    """Return measured peaks by name, per ns."""
    file = folder / "peaks.csv"
    if not file.exists():
        subprocess.run([sys.executable, "-m", "profzoo.calibration.peaks", "--out", str(file)], check=True)
    return {name: rate / 1e9 for name, rate in read_peaks(file).items()}


def measure(folder: Path, name: str, *words: str) -> Seen:
    """Run a cell as jobs do, and divide its tokens. name: of its files; words: model and settings."""
    model, *settings = words
    files = {end: folder / f"{name}.{end}" for end in ("time.csv", "trace.json.gz", "torch.csv")}
    asked = zip(("--steps", "--trace", "--operators"), map(str, files.values()), strict=True)
    command = [sys.executable, "-m", "models.run", model, "inference", *SHORT, *settings]
    subprocess.run([*command, *(word for pair in asked for word in pair)], check=True)
    measured = tokens.measure_tokens(csv_tables.read(files["time.csv"], TABLE))
    assert measured is not None
    launches, rates = owners.tabulate_launches(read_trace(files["trace.json.gz"])), measure_peaks(folder)
    rows = tokens.divide_tokens(launches, measured, tokens.Roofs(rates["dram"], rates))
    return Seen(rows, measured, wall_of(launches, measured.further))


def wall_of(launches: pd.DataFrame, further: int) -> float:
    """Return the ns per token between the last launch of the prompt and the last one of its step, a mean of steps."""
    ends = launches.assign(end=launches["start_ns"] + launches["ns"])[launches["step"].notna()]
    steps = [step.groupby("range", observed=True)["end"].max() for _, step in ends.groupby("step")][1:]
    return sum(step[DECODE] - step[PREFILL] for step in steps) / len(steps) / further


def describe(name: str, seen: Seen) -> Iterator[str]:
    """Yield the lines on a cell: sums against measured times, parts, and causes."""
    ns, first = seen.measured.further_ns, seen.rows.loc[seen.rows["range"] == PREFILL, "ns"].sum()
    sums = {"parts": seen.decode["ns"].sum(), "trace": seen.decode["traced_ns"].sum(), "wall": seen.wall_ns}
    yield f"{name}: first token {seen.measured.first_ns / 1e6:.3f} ms (parts {first / 1e6:.3f}), token {ns / 1e6:.3f} ms"
    yield "  " + ", ".join(f"{key} {value / 1e6:.3f}" for key, value in sums.items())
    for said, values in (("parts", tokens.list_parts(seen.decode)), ("causes", tokens.rank_causes(seen.decode))):
        yield f"  {said}: " + ", ".join(f"{part} {value / 1e6:.3f}" for part, value in values.items() if value)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    print({name: f"{rate:.0f}" for name, rate in measure_peaks(folder).items()}, flush=True)
    plains: dict[tuple[str, ...], Seen] = {}
    for cause, (settings, planted) in PLANTED.items():
        key = tuple(settings)
        if key not in plains:
            plains[key] = measure(folder, f"plain-{len(plains)}", *DECODER, *settings)
            print(*describe("decoder", plains[key]), sep="\n", flush=True)
        plain, with_cause = plains[key], measure(folder, planted, *DECODER, *settings, planted)
        cost = with_cause.measured.further_ns - plain.measured.further_ns
        before, after = (tokens.rank_causes(seen.decode).get(cause, 0.0) for seen in (plain, with_cause))
        print(*describe(f"decoder {planted}", with_cause), sep="\n")
        named = tokens.rank_causes(with_cause.decode).index[0]
        print(
            f"  {cause}: costs {cost / 1e6:.3f} ms, told {(after - before) / 1e6:.3f} ms more; first: {named}",
            flush=True,
        )
    for context in ("1k", "8k"):
        for batch in (1, 8, 64):
            seen = measure(folder, f"gpt-{batch}-{context}", "gpt", *GPT, f"batch={batch}", f"context={context}")
            print(*describe(f"gpt batch {batch} context {context}", seen), sep="\n", flush=True)


if __name__ == "__main__":
    main()
