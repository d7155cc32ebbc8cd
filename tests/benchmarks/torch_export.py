"""Time and memory that the owners of a trace's launches take, of one that is enlarged from a recording.

python -m tests.benchmarks.torch_export [COPIES]

A copy is a step of BERT's training: 908 launches, 10,431 events. 1,100 copies are a million launches.
"""

import gzip
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from profzoo.io.scripts import write_csv, write_json
from profzoo.tables import layers
from profzoo.tools.torch import owners
from profzoo.tools.torch import trace as torch_trace

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


def main() -> None:
    copies = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events = enlarge(folder / "trace.json.gz", copies)
        start = time.perf_counter()

        def say(what: str) -> None:
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"{what:24} {time.perf_counter() - start:7.1f} s {most:6.0f} MiB", flush=True)

        say(f"{events:,} events")
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
