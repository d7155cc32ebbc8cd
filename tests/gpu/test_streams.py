"""Streams, copies, Perfetto's trace, percentiles and tokens of programs whose every copy and kernel is known."""

import gzip
import itertools
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from models import gpt
from profzoo.io import csv_tables
from profzoo.tools.time.tables import TABLE, read_token_times
from tests.gpu.programs import streamed, uneven
from tests.gpu.running import make_results

CELL = "streamed/inference"
WITHIN = 0.02
TIMED = 2000
GENERATES = "gpt"
GIVEN: Mapping[str, Any] = {
    "models": {
        "streamed": {"module": streamed.__name__},
        "uneven": {"module": uneven.__name__, "window": TIMED},
        GENERATES: {},
    },
    "phases": ["inference"],
    "tool": ["nsys"],
    "nsys": {"window": 6},
}
TARGETS = (f"{CELL}.nsys-streams.csv", f"{CELL}.nsys.csv", f"{CELL}.nsys.trace.json.gz", "tables/latency.csv")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What snakemake makes of both programs."""
    folder = tmp_path_factory.mktemp("results")
    return make_results(GIVEN, folder, *(folder / target for target in TARGETS))


@pytest.fixture(scope="module")
def copies(results: Path) -> pd.DataFrame:
    return pd.read_csv(results / f"{CELL}.nsys-copies.csv")


def of(copies: pd.DataFrame, kind: str, source: str, target: str) -> pd.DataFrame:
    rows = copies[(copies["kind"] == kind) & (copies["source"] == source) & (copies["target"] == target)]
    assert len(rows), f"no copy {kind} from {source} to {target} memory, but:\n{copies.to_string()}"
    return rows


@pytest.fixture(scope="module")
def streams(results: Path) -> pd.DataFrame:
    return pd.read_csv(results / f"{CELL}.nsys-streams.csv", dtype={"stream": "str"}).set_index("stream")


def operations(results: Path) -> list[tuple[str, int, int, int, int]]:
    """All work of the export, which holds the window: table, stream, start, end and bytes."""
    with closing(sqlite3.connect(results / f"{CELL}.nsys.sqlite")) as database:
        there = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        return [
            (kind, *row)
            for kind, size in (("KERNEL", "0"), ("MEMCPY", "bytes"), ("MEMSET", "bytes"))
            if (table := f"CUPTI_ACTIVITY_KIND_{kind}") in there
            for row in database.execute(f"SELECT streamId, start, end, {size} FROM {table}")
        ]


def overlap(one: tuple[str, int, int, int, int], other: tuple[str, int, int, int, int]) -> int:
    return max(min(one[3], other[3]) - max(one[2], other[2]), 0)


def test_copies_have_their_bytes_kinds_and_memory(copies: pd.DataFrame) -> None:
    """The input is copied too, from pageable memory, and is small."""
    pinned = of(copies, "host to device", "pinned", "device")
    assert pinned["copies"].to_list() == [1] and pinned["bytes"].to_list() == [streamed.PINNED]
    within = of(copies, "device to device", "device", "device")
    assert within["largest_bytes"].max() == streamed.WITHIN
    assert within["bytes"].sum() == pytest.approx(streamed.WITHIN, rel=WITHIN)
    back = of(copies, "device to host", "device", "pageable")
    assert back["bytes"].sum() == pytest.approx(streamed.PAGEABLE, rel=WITHIN)


def test_a_copy_beside_a_kernel_is_beside_it_all_the_time(copies: pd.DataFrame, streams: pd.DataFrame) -> None:
    (pinned,) = of(copies, "host to device", "pinned", "device").to_dict("records")
    assert pinned["beside_kernel_ns"] == pytest.approx(pinned["total_ns"], rel=WITHIN)
    assert streams.loc["all", "copy_beside_kernel_ns"] == pytest.approx(pinned["total_ns"], rel=WITHIN)
    for kind in (("device to device", "device", "device"), ("device to host", "device", "pageable")):
        assert of(copies, *kind)["beside_kernel_ns"].sum() == 0


def test_kernels_of_two_streams_run_beside_each_other_as_the_trace_has_it(results: Path, streams: pd.DataFrame) -> None:
    """By pairs of operations, without any of the code that made the table."""
    work = [one for one in operations(results) if one[0] == "KERNEL"]
    pairs = sum(overlap(one, other) for one, other in itertools.combinations(work, 2) if one[1] != other[1])
    # All steps of the window but the first are in the table.
    steps = streams.loc["all", "steps"]
    assert steps == GIVEN["nsys"]["window"] - 1
    assert streams.loc["all", "kernel_beside_kernel_ns"] == pytest.approx(pairs / (steps + 1), rel=WITHIN)
    # The second stream's kernel runs beside the first's all the time.
    side = streams.drop(index="all").sort_values("kernel_ns").iloc[0]
    assert side["kernels"] == 1
    assert side["kernel_beside_kernel_ns"] == pytest.approx(side["kernel_ns"], rel=WITHIN)
    main = streams.drop(index="all").sort_values("kernel_ns").iloc[-1]
    cycles = (streamed.COVER + streamed.FIRST) / streamed.SECOND
    assert main["kernel_ns"] / side["kernel_ns"] == pytest.approx(cycles, rel=WITHIN)


def test_the_streams_add_up(results: Path, streams: pd.DataFrame) -> None:
    (whole,) = pd.read_csv(results / f"{CELL}.nsys-steps.csv").to_dict("records")
    assert streams.loc["all", "busy_ns"] == pytest.approx(whole["busy_ns"], rel=1e-6)
    assert streams.drop(index="all")["part_ns"].sum() == pytest.approx(whole["busy_ns"], rel=1e-6)
    assert len(streams) >= 3


def test_the_bandwidth_is_that_of_a_copy_without_a_profiler(copies: pd.DataFrame) -> None:
    pinned = torch.zeros(streamed.PINNED, dtype=torch.uint8, pin_memory=True)
    received = torch.empty(streamed.PINNED, dtype=torch.uint8, device="cuda")
    rates = []
    for _ in range(10):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        received.copy_(pinned, non_blocking=True)
        end.record()
        torch.cuda.synchronize()
        rates.append(streamed.PINNED / begin.elapsed_time(end) * 1e3)
    seen = of(copies, "host to device", "pinned", "device")["bytes_per_s"].item()
    # A link that other machines share varies by more than two percent.
    assert min(rates) * 0.9 <= seen <= max(rates) * 1.1


def test_perfetto_gets_every_operation_and_arrow(results: Path) -> None:
    events = json.loads(gzip.decompress((results / f"{CELL}.nsys.trace.json.gz").read_bytes()))["traceEvents"]
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    on_streams = [event for event in events if event["ph"] == "X" and "stream" in names[event["pid"], event["tid"]]]
    work = operations(results)
    assert len(on_streams) == len(work)
    assert sum(event["dur"] for event in on_streams) * 1000 == pytest.approx(
        sum(end - start for _, _, start, end, _ in work)
    )
    assert sum(event["ph"] == "f" for event in events) == len(work)
    pinned = [event for event in on_streams if event.get("args", {}).get("bytes") == streamed.PINNED]
    assert {(event["args"]["from"], event["args"]["to"]) for event in pinned} == {("pinned", "device")}
    calls = {
        event["name"] for event in events if event["ph"] == "X" and "CUDA calls" in names[event["pid"], event["tid"]]
    }
    assert "cudaLaunchKernel" in calls and "cudaMemcpyAsync" in calls


def test_the_slowest_steps_are_as_slow_as_they_were_made(results: Path) -> None:
    table = pd.read_csv(results / "tables/latency.csv")
    own = table[(table["model"] == "uneven") & (table["of"] == "step")].set_index("percentile")
    assert own.loc[50, "steps"] >= TIMED / 3
    assert own.loc[[50, 90, 99], "needed_steps"].eq(0).all()
    assert own.loc[90, "ns"] / own.loc[50, "ns"] == pytest.approx(1, rel=WITHIN)
    assert own.loc[99, "ns"] / own.loc[50, "ns"] == pytest.approx(uneven.SLOWER, rel=WITHIN)
    # Of one in a thousand, nothing is known of so few steps.
    assert own.loc[99.9, "needed_steps"] > TIMED and pd.isna(own.loc[99.9, "ns"])


def test_tokens_add_up_to_their_steps(results: Path) -> None:
    steps = csv_tables.read(results / GENERATES / "inference.time.csv", TABLE)
    tokens = read_token_times(steps)
    assert tokens.shape == (len(steps), gpt.WORKLOADS["trimmed"]["inference"]["generated"])
    # Behind the last token of a step there is little more than putting all together.
    assert tokens[1:].sum() == pytest.approx(steps["gpu_ns"][1:].sum(), rel=WITHIN)
    # The first reads the prompt, and each is the work of all layers, so none is nothing.
    assert tokens.min() > 0.2 * np.median(tokens)
    table = pd.read_csv(results / "tables/latency.csv")
    median = table[(table["model"] == GENERATES) & (table["percentile"] == 50)].set_index("of")["ns"]
    assert median["token"] == pytest.approx(np.median(tokens[:, 1:]), rel=0.1)
