"""Time and memory that the owners of a trace's launches take, of one that is enlarged from a recording.

    python -m tests.benchmarks.torch_export [COPIES]
    python -m tests.benchmarks.torch_export ranks RANKS

A copy is a step of BERT's training: 908 launches, 10,431 events. 1,100 copies are a million launches. `ranks` takes the
collective operations of so many simulated processes, eight on a node: of each 10 steps of 100 kernels and 50 operations.
"""

import gzip
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from profzoo.io.scripts import write_csv, write_json
from profzoo.tables import layers
from profzoo.tools.torch import owners
from profzoo.tools.torch import trace as torch_trace
from profzoo.tools.torch.collective_tables import export_collectives
from profzoo.tools.torch.command import OF_PROCESS
from tests.rank_traces import Sent, write_trace

RECORDED = Path(__file__).parents[1] / "data/torch/bert.train.trace.json.gz"
IDS = ("External id", "correlation", "Sequence number")


def enlarge(path: Path, copies: int) -> int:
    """Write a trace of so many steps, one after another, each with IDs of its own; returns how many events it has."""
    events = json.loads(gzip.decompress(RECORDED.read_bytes()))["traceEvents"]
    span = max(event["ts"] + event.get("dur", 0) for event in events) + 1000
    beyond = 1 + max(event["args"].get(key, 0) for event in events if "args" in event for key in IDS)
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write('{"traceEvents": [')
        for copy in range(copies):
            several = (json.dumps(moved(event, copy, span, beyond)) for event in events)
            file.write(("," if copy else "") + ",\n".join(several))
        file.write("]}")
    return copies * len(events)


def moved(event: dict[str, Any], copy: int, span: float, beyond: int) -> dict[str, Any]:
    arguments = event.get("args", {})
    arguments = arguments | {key: arguments[key] + copy * beyond for key in IDS if key in arguments}
    again = {**event, "ts": round(event["ts"] + copy * span, 3), "args": arguments}
    return again | ({"id": event["id"] + copy * beyond} if "id" in event else {})


def write_ranks(folder: Path, ranks: int) -> None:
    """Write the traces of simulated processes, and their sidecar."""
    for rank in range(ranks):
        steps = [(name, 1e5 * step, 9e4) for step in range(10) for name in ("step", "backward")]
        kernels = [(at + 800 * n, at + 800 * n + 10, at + 800 * n + 400) for _, at, _ in steps[::2] for n in range(100)]
        sent = [
            Sent("allreduce", 1000 + n, at + 1600 * n + rank, at + 1600 * n + 20 + rank, at + 1600 * n + 700)
            for _, at, _ in steps[::2]
            for n in range(50)
        ]
        path = folder / f"node{rank // 8}.{rank}{OF_PROCESS['trace']}"
        plain = write_trace(folder / "plain.json", [(n, at, at + ns) for n, at, ns in steps], sent, kernels, 0.0, ranks)
        path.write_bytes(gzip.compress(plain.read_bytes(), 1))
    write_json({"ranks": [{"host": f"node{rank // 8}", "rank": rank} for rank in range(ranks)]}, folder / "s.json")


def make_clock() -> Callable[[str], None]:
    """Return what prints, behind a name, wall and CPU seconds from now on, and peak memory."""
    start, cpu = time.perf_counter(), time.process_time()

    def say(what: str) -> None:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        wall, used = time.perf_counter() - start, time.process_time() - cpu
        print(f"{what:24} {wall:7.1f} s {used:7.2f} s CPU {most:6.0f} MiB", flush=True)

    return say


def export_ranks(ranks: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_ranks(folder, ranks)
        say = make_clock()
        made = {table: str(folder / f"{table}.csv") for table in ("collectives", "skew")}
        export_collectives(name, str(folder / "s.json"), [], made)
        rows = len(Path(made["skew"]).read_text().splitlines()) - 1
        say(f"{ranks} ranks, {rows} of skew")


def unpacked_bytes(path: Path) -> int:
    with gzip.open(path) as file:
        return sum(len(chunk) for chunk in iter(lambda: file.read(1 << 20), b""))


def main() -> None:
    if sys.argv[1:2] == ["ranks"]:
        export_ranks(int(sys.argv[2]))
        return
    copies = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events = enlarge(folder / "trace.json.gz", copies)
        megabytes = unpacked_bytes(folder / "trace.json.gz") / 1e6
        say = make_clock()
        say(f"{events:,} events, {megabytes:,.0f} MB")
        trace = torch_trace.read_trace(folder / "trace.json.gz")
        say("read")
        table = owners.tabulate_launches(trace)
        say(f"{len(table):,} owners")
        write_csv(table, folder / "launches.csv")
        write_csv(owners.tabulate_modules(trace), folder / "modules.csv")
        say("written")
        del table, trace
        made = {name: str(folder / f"{name}.csv") for name in ("layers", "operators", "kernels", "coverage")}
        write_json({"cell": {"window": copies}}, folder / "s.json")
        files = [str(folder / name) for name in ("launches.csv", "modules.csv", "s.json")]
        layers.write_layers(*files, layers.Others(), made)
        say("layers and operators")


if __name__ == "__main__":
    main()
