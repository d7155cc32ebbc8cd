"""Where the time of a token goes on a GPU, against times that know nothing of parts: batches, contexts, planted causes.

python -m tests.benchmarks.token_parts FOLDER                  measures into FOLDER and prints; ten minutes on an H100
python -m tests.benchmarks.token_parts FOLDER --only narrow    only cells whose name holds one of these words

Each cell runs in one process, which first times steps without a profiler. `parts` add up to these times by construction;
`trace` is the sum over launches and idle time, and `wall` the time between the last launch of the prompt and the last
one of the step. A planted cause costs what the decoder takes longer with it than without. Of the wide decoder, the GPU
is the limit; of the narrow one, the host. A CUDA graph of the step launches the same kernels without the host: what it
saves is held against the idle time that is told.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from profzoo.io import csv_tables
from profzoo.io.scripts import write_csv
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
NARROW = ("hidden=1024", "heads=8", "layers=12")
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
    launches = owners.tabulate_launches(read_trace(files["trace.json.gz"]))
    write_csv(launches, str(folder / f"{name}.launches.csv"))
    return divide(folder, name, launches)


def divide(folder: Path, name: str, launches: pd.DataFrame) -> Seen:
    """Divide the tokens of a measured cell."""
    measured = tokens.measure_tokens(csv_tables.read(folder / f"{name}.time.csv", TABLE))
    assert measured is not None
    rates = measure_peaks(folder)
    rows = tokens.divide_tokens(launches, measured, tokens.Roofs(rates["dram"], rates))
    return Seen(rows, measured, wall_of(launches, measured.further))


def wall_of(launches: pd.DataFrame, further: float) -> float:
    """Return the ns per token between the last launch of the prompt and the last one of its step, a mean of steps."""
    ends = launches.assign(end=launches["start_ns"] + launches["ns"])[launches["step"].notna()]
    steps = [step.groupby("range", observed=True)["end"].max() for _, step in ends.groupby("step")][1:]
    return sum(step[DECODE] - step[PREFILL] for step in steps) / len(steps) / further


def told_of(cause: str, seen: Seen) -> float:
    """Return the ns per token that are told of a cause; of small kernels, with those that are needed.

    One kernel may take longer than the longest of its pieces, which is what is taken for needed.
    """
    causes = tokens.rank_causes(seen.decode)
    return float(causes.reindex([cause, *([tokens.BETWEEN] if cause == tokens.SMALL else [])]).sum())


def time_step(folder: Path, name: str, *words: str) -> float:
    """Return the ns of an unprofiled step of a cell."""
    file = folder / f"{name}.csv"
    command = [sys.executable, "-m", "models.run", words[0], "inference", "warmup=4", "window=6", *words[1:]]
    subprocess.run([*command, "--steps", str(file)], check=True)
    return float(csv_tables.read(file, TABLE)["gpu_ns"].median())


def describe(name: str, seen: Seen) -> Iterator[str]:
    """Yield the lines on a cell: sums against measured times, parts, and causes."""
    ns, first = seen.measured.further_ns, seen.rows.loc[seen.rows["range"] == PREFILL, "ns"].sum()
    sums = {"parts": seen.decode["ns"].sum(), "trace": seen.decode["traced_ns"].sum(), "wall": seen.wall_ns}
    yield f"{name}: first token {seen.measured.first_ns / 1e6:.3f} ms (parts {first / 1e6:.3f}), token {ns / 1e6:.3f} ms"
    yield "  " + ", ".join(f"{key} {value / 1e6:.3f}" for key, value in sums.items())
    for said, values in (("parts", tokens.list_parts(seen.decode)), ("causes", tokens.rank_causes(seen.decode))):
        yield f"  {said}: " + ", ".join(f"{part} {value / 1e6:.3f}" for part, value in values.items() if value)


@dataclass
class Cells:
    """The cells in a folder, each measured once."""

    folder: Path
    seen: dict[tuple[str, ...], Seen] = field(default_factory=dict)

    def show(self, *words: str) -> Seen:
        """Return a cell by model and settings, measured and described at its first use."""
        if words not in self.seen:
            name = "-".join(word for word in words if not word.startswith("module="))
            self.seen[words] = measure(self.folder, name, *words)
            print(*describe(name, self.seen[words]), sep="\n", flush=True)
        return self.seen[words]

    def plant(self, cause: str, planted: str, *words: str) -> None:
        """Print what a planted cause costs, and what is told of it."""
        plain, slow = self.show(*words), self.show(*words, planted)
        cost = slow.measured.further_ns - plain.measured.further_ns
        told, named = told_of(cause, slow) - told_of(cause, plain), tokens.rank_causes(slow.decode).index[0]
        print(
            f"  {planted}: {cause} cost {cost / 1e6:.3f} ms, told {told / 1e6:.3f} ms more; first: {named}", flush=True
        )

    def capture(self, *words: str) -> None:
        """Print what a CUDA graph of the step saves per token, and the idle time that is told."""
        seen = self.show(*words)
        eager, graph = (
            time_step(self.folder, f"graph-{asked}", *words, f"graph={asked}") for asked in ("false", "true")
        )
        saved, idle = (eager - graph) / (1 + seen.measured.further), seen.decode[["gap_ns", "host_ns"]].sum()
        told = ", ".join(f"{name} {ns / 1e6:.3f}" for name, ns in idle.items())
        print(f"  graph: saves {saved / 1e6:.3f} ms per token, told {told}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="such as narrow, or gpt-64-8k")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    cells = Cells(options.folder)
    print({name: f"{rate:.0f}" for name, rate in measure_peaks(options.folder).items()}, flush=True)
    for width, more in (("wide", ()), ("narrow", NARROW)):
        for cause, (settings, planted) in PLANTED.items():
            if any(word in f"{width}-{planted}" for word in options.only):
                cells.plant(cause, planted, *DECODER, *more, *settings)
    if any(word in "narrow-graph" for word in options.only):
        cells.capture(*DECODER, *NARROW)
    if any(word in "gpt-1-1k-graph" for word in options.only):
        cells.capture("gpt", *GPT, "batch=1", "context=1k")
    for context in ("1k", "8k"):
        for batch in (1, 8, 64):
            if any(word in f"gpt-{batch}-{context}" for word in options.only):
                cells.show("gpt", *GPT, f"batch={batch}", f"context={context}")


if __name__ == "__main__":
    main()
