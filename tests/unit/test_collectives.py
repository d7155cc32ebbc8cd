"""Collective operations of several processes: by simulated traces whose bytes, transfer and lateness are known."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo import zoo_tables
from profzoo.errors import DataError
from profzoo.io import csv_tables
from profzoo.io.scripts import write_csv
from profzoo.tables import collectives_across
from profzoo.tools.torch import collective_tables, export_collectives, link_rates, rank_skew
from profzoo.tools.torch.rank_operations import Operations, match_operations
from profzoo.tools.torch.rank_timeline import Timeline
from tests.gpu.programs import every_operation, late_rank
from tests.rank_traces import Sent, read_process, write_trace

PROJECT = Path(__file__).parents[2]
MIB = 1 << 20
# A step takes 1000 us; all-reduces of 4 MiB take 80 us from the moment when the last process comes.
STEP, TRANSFER = 1000.0, 80.0
NO_PROBE = link_rates.TABLE.empty()


def simulated(
    folder: Path,
    late: dict[str, float],
    steps: int = 3,
    clock_us: float = 0,
    hosts: tuple[str, str] = ("a", "a"),
    drop: Sequence[str] = (),
) -> tuple[Operations, dict[int, Timeline]]:
    """Two processes, of which the second spends more time in some parts of each step; late: us by part."""
    made = []
    for rank in (0, 1):
        ranges, sent, kernels = [], [], []
        for step in range(steps):
            zero, more = step * STEP, late if rank else {}
            place = zero
            for part, length in {"data": 50.0, "forward": 100.0, "backward": 200.0}.items():
                begin, place = place, place + length + more.get(part, 0)
                if part == "forward":
                    # The kernel runs for as long as the host is in the part, which is not where its time counts.
                    kernels.append((begin + 1, begin + 1, place))
                ranges.append((part, begin, place))
            together = zero + 350 + sum(late.values())
            sent.append(Sent("allreduce", MIB, place - 5, place, together + TRANSFER))
            ranges += [("optimizer", together + TRANSFER, zero + 900), ("step", zero, zero + 950)]
        path = write_trace(folder / f"{rank}.json", ranges, sent, kernels, clock_us * rank, drop=drop)
        made.append(read_process(path, hosts[rank], rank))
    return match_operations([process for process, _ in made]), {process.rank: timeline for process, timeline in made}


# Traces of torch before 2.5 do not number operations, nor do all later ones.
@pytest.mark.parametrize("drop", [(), ("Seq",)])
def test_bandwidth_is_that_of_the_transfer_without_waiting(drop: Sequence[str], tmp_path: Path) -> None:
    operations, _ = simulated(tmp_path, {"data": 300}, drop=drop)
    table = collective_tables.tabulate_collectives(operations, NO_PROBE)
    row = table.iloc[0]
    assert len(table) == 1 and row["count"] == 3 and row["group_size"] == 2 and row["hosts"] == 1
    assert row["bytes"] == 4 * MIB and row["transfer_ns"] == pytest.approx(80_000, rel=1e-6)
    assert row["algorithm_bytes_per_s"] == pytest.approx(4 * MIB / 80e-6, rel=1e-6)
    # 2(n-1)/n is 1 for two processes.
    assert row["bus_bytes_per_s"] == pytest.approx(row["algorithm_bytes_per_s"])
    # One of two processes waits for 300 us.
    assert row["waiting_ns"] == pytest.approx(150_000, rel=1e-6)
    assert pd.isna(row["probe_bus_bytes_per_s"])


@pytest.mark.parametrize(
    "late", [{"data": 300.0}, {"forward": 120.0}, {"backward": 40.0}, {"data": 30.0, "forward": 60.0}]
)
def test_the_late_process_and_its_part_are_found(late: dict[str, float], tmp_path: Path) -> None:
    operations, timelines = simulated(tmp_path, late)
    table = rank_skew.tabulate_skew(operations, timelines)
    by_part = table[table["late_ns"] != 0].groupby(["rank", "range"])["late_ns"].sum()
    assert by_part.to_dict() == pytest.approx({(1, part): 3e3 * us for part, us in late.items()}, rel=1e-6)
    waited = table.groupby(["rank", "step"])["waiting_ns"].sum()
    assert waited.loc[0].tolist() == pytest.approx([1e3 * sum(late.values())] * 3) and (waited.loc[1] == 0).all()
    assert table.groupby("rank")["last"].sum().to_dict() == {0: 0, 1: 3}
    assert set(table["clock"]) == {"host"} and table["clock_error_ns"].isna().all()


def test_files_are_as_declared(tmp_path: Path) -> None:
    operations, timelines = simulated(tmp_path, {"data": 10.0})
    for made, table in (
        (collective_tables.tabulate_collectives(operations, NO_PROBE), collective_tables.TABLE),
        (rank_skew.tabulate_skew(operations, timelines), rank_skew.TABLE),
    ):
        write_csv(made, tmp_path / "made.csv")
        assert len(csv_tables.read(tmp_path / "made.csv", table)) == len(made)
        assert list(made.columns) == list(table.columns) or set(made.columns) == set(table.columns)


def test_clocks_of_two_hosts_are_aligned_by_the_ends(tmp_path: Path) -> None:
    operations, timelines = simulated(tmp_path, {"forward": 120.0}, clock_us=5_000_000.037, hosts=("a", "b"))
    assert operations.clocks.offsets_ns == pytest.approx({"a": 0, "b": 5_000_000_037}, abs=1)
    assert operations.clocks.error_ns == pytest.approx(0, abs=2)
    table = rank_skew.tabulate_skew(operations, timelines)
    assert table.groupby(["rank"])["late_ns"].sum().to_dict() == pytest.approx({0: 0, 1: 360_000})
    assert set(table["clock"]) == {"ends"}
    row = collective_tables.tabulate_collectives(operations, NO_PROBE).iloc[0]
    assert row["hosts"] == 2 and row["transfer_ns"] == pytest.approx(80_000, rel=1e-6)


def test_the_stated_error_of_aligned_clocks_covers_what_they_are_off(tmp_path: Path) -> None:
    """Two hosts with two processes each. Ends are up to 40 us apart, and one process is a millisecond late."""
    generator, made, ahead = np.random.default_rng(7), [], 3_600e6
    for rank in range(4):
        ranges, sent = [], []
        for step in range(20):
            zero, late = step * 5e3, 1e3 if rank == 2 else 0.0
            ranges += [
                ("step", zero, zero + 4e3),
                ("data", zero, zero + 100 + late),
                ("backward", zero + 200 + late, zero + 3e3),
            ]
            own = [zero + 1500 + 200 * place + generator.uniform(0, 40) for place in range(2)]
            sent.append(Sent("allreduce", 1000, zero + 290 + late, zero + 300 + late, own[0]))
            sent.append(Sent("_reduce_scatter_base", 4000, zero + 1590, zero + 1600, own[1]))
        clock = ahead if rank > 1 else 0.0
        made.append(
            read_process(write_trace(tmp_path / f"{rank}.json", ranges, sent, (), clock, 4), "ab"[rank > 1], rank)
        )
    operations = match_operations([one for one, _ in made])
    error = operations.clocks.error_ns
    assert error is not None and error < 45e3
    assert abs(operations.clocks.offsets_ns["b"] - ahead * 1e3) <= error
    table = rank_skew.tabulate_skew(operations, {one.rank: line for one, line in made})
    late = table[table["range"] == "data"].groupby("rank")["late_ns"].sum() / 20
    assert late[2] == pytest.approx(1e6, rel=0.02) and abs(late.get(3, 0.0)) < error
    rates = collective_tables.tabulate_collectives(operations, NO_PROBE).set_index("collective")
    # 3/2 and 3/4 of the algorithm bandwidth, for four processes.
    ratio = rates["bus_bytes_per_s"] / rates["algorithm_bytes_per_s"]
    assert ratio.to_dict() == pytest.approx({"all_reduce": 1.5, "reduce_scatter": 0.75}) and (rates["hosts"] == 2).all()


def test_groups_of_processes_are_told_apart(tmp_path: Path) -> None:
    """Ranks 0 and 1 exchange something, and so do 2 and 3 at other times; a host that is in no common group is refused."""
    made = []
    for rank in range(4):
        begin = 10 + 100 * (rank > 1) + 5 * (rank % 2)
        sent = [Sent("allreduce", 64, begin, begin, begin + 20, group=((0, 1), (2, 3))[rank > 1])]
        path = write_trace(tmp_path / f"{rank}.json", [("step", 0, 500), ("forward", 0, 400)], sent)
        made.append(read_process(path, "ab"[rank > 1], rank))
    with pytest.raises(DataError, match="the clock of b cannot be compared with that of a: no collective operation"):
        match_operations([one for one, _ in made])
    alike = [replace(one, host="a") for one, _ in made]
    operations = match_operations(alike)
    assert operations.rows.groupby("operation")["rank"].agg(list).tolist() == [[0, 1], [2, 3]]
    table = collective_tables.tabulate_collectives(operations, NO_PROBE)
    assert table[["count", "group_size", "transfer_ns", "waiting_ns"]].to_numpy().tolist() == [[2, 2, 20_000, 2_500]]


def test_a_delay_that_shows_in_several_operations_counts_once(tmp_path: Path) -> None:
    """Two operations are under way when the late process comes, 100 us late to both."""
    made = []
    for rank, late in ((0, 0.0), (1, 100.0)):
        ranges = [("step", 0, 900), ("backward", 10, 300 + late)]
        sent = [
            Sent("allreduce", 100, 90 + late, 100 + late, 260),
            Sent("allreduce", 200, 120 + late, 130 + late, 280),
        ]
        made.append(read_process(write_trace(tmp_path / f"{rank}.json", ranges, sent), "a", rank))
    table = rank_skew.tabulate_skew(match_operations([one for one, _ in made]), {one.rank: line for one, line in made})
    assert table["late_ns"].sum() == pytest.approx(100_000) and set(table["range"]) == {"backward"}
    assert table["waiting_ns"].sum() == pytest.approx(100_000)


def test_an_operation_that_one_process_did_not_record_is_left_out(tmp_path: Path) -> None:
    made = []
    for rank in (0, 1):
        sent = [Sent("allreduce", 64, 10, 20, 30), Sent("_allgather_base", 64, 40, 50, 60, "BFloat16")][: 2 - rank]
        path = write_trace(tmp_path / f"{rank}.json", [("step", 0, 100)], sent)
        made.append(read_process(path, "a", rank)[0])
    operations = match_operations(made)
    assert operations.left_out == ["1 operation that not all processes recorded"]
    assert set(operations.rows["collective"]) == {"all_reduce"}
    assert made[0].collectives.table["bytes"].tolist() == [256, 128]


def test_traces_without_sizes_say_so_in_one_line(tmp_path: Path) -> None:
    sent = [Sent("allreduce", 64, 10, 20, 30)]
    made = [
        read_process(
            write_trace(tmp_path / f"{rank}.json", [("step", 0, 100)], sent, drop=["Collective name"]), "a", rank
        )[0]
        for rank in (0, 1)
    ]
    with pytest.raises(DataError, match=re.escape("2 communication kernels without `Collective name`")):
        match_operations(made)


@pytest.mark.parametrize("batched", [True, False], ids=["both ways", "one way"])
def test_sends_and_receives_are_no_collective_operations(batched: bool, tmp_path: Path) -> None:
    """Two processes that both send and receive did the same operations, yet none of them is one of both together."""
    made = []
    for rank in (0, 1):
        names = ["send", "recv"] if batched else [("send", "recv")[rank]]
        sent = [Sent(name, 64, 10, 20, 30) for name in names]
        path = write_trace(tmp_path / f"{rank}.json", [("step", 0, 100)], [*sent, Sent("allreduce", 64, 40, 50, 60)])
        made.append(read_process(path, "a", rank)[0])
    operations = match_operations(made)
    assert collective_tables.tabulate_collectives(operations, NO_PROBE)["collective"].tolist() == ["all_reduce"]
    assert operations.left_out == [f"{4 if batched else 2} sends and receives, in which only two processes take part"]


def test_kernels_without_an_operation_are_named_beside_others(tmp_path: Path) -> None:
    """batch_isend_irecv launches NCCL's kernel where torch notes nothing of the operation."""
    made = []
    for rank in (0, 1):
        path = write_trace(tmp_path / f"{rank}.json", [("step", 0, 100)], [Sent("allreduce", 64, 10, 20, 30)])
        whole = json.loads(path.read_text())
        kernel = next(event for event in whole["traceEvents"] if event["cat"] == "kernel")
        bare = {key: kernel["args"][key] for key in ("External id", "stream", "device", "context")}
        name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
        whole["traceEvents"].append({**kernel, "name": name, "ts": kernel["ts"] + 40, "args": bare})
        path.write_text(json.dumps(whole))
        made.append(read_process(path, "a", rank)[0])
    (told,) = match_operations(made).left_out
    assert told.startswith("2 communication kernels without `Collective name`") and "batch_isend_irecv" in told


def test_traces_of_sends_alone_say_so(tmp_path: Path) -> None:
    made = [
        read_process(
            write_trace(tmp_path / f"{rank}.json", [("step", 0, 100)], [Sent(name, 64, 10, 20, 30)]), "a", rank
        )[0]
        for rank, name in enumerate(("send", "recv"))
    ]
    with pytest.raises(DataError, match="no other communication than 2 sends and receives") as raised:
        match_operations(made)
    assert "window" not in str(raised.value)


@pytest.mark.slow
def test_every_operation_of_real_processes_is_counted_with_its_bytes(tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launcher, "-m", every_operation.__name__, "cpu", str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = [read_process(tmp_path / f"host.{rank}.trace.json.gz", "host", rank)[0] for rank in (0, 1)]
    operations = match_operations(made)
    table = collective_tables.tabulate_collectives(operations, NO_PROBE).set_index("collective")
    right = {name: 4 * elements for name, elements in every_operation.WHOLE.items()}
    assert table["bytes"].drop("barrier", errors="ignore").to_dict() == right
    # The profiler may begin or stop before a thread of gloo has noted an operation.
    assert table.loc[list(right), "count"].between(every_operation.STEPS - 1, every_operation.STEPS).all()
    exchanged = 2 * every_operation.STEPS * (every_operation.SENDS + every_operation.RECEIVES)
    assert f"{exchanged} sends and receives, in which only two processes take part" in operations.left_out


def test_a_window_without_operations_leaves_tables_without_rows(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    for rank in (0, 1):
        path = write_trace(tmp_path / "ranks" / f"n.{rank}.trace.json.gz", [("step", 0, 500)], [])
        # As gloo's last one is where the profiler stopped too early.
        cut = {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": 1, "tid": 2, "ts": 1e6 + 9}
        whole = json.loads(path.read_text())
        whole["traceEvents"].append({**cut, "dur": 5, "args": {"External id": 513, "finished": False}})
        path.write_text(json.dumps(whole))
    (tmp_path / "s.json").write_text('{"ranks": [{"rank": 0}, {"rank": 1}]}')
    outputs = {name: str(tmp_path / f"{name}.csv") for name in ("collectives", "skew")}
    told: list[str] = []
    export_collectives.main(str(tmp_path / "ranks"), str(tmp_path / "s.json"), [], outputs, told.append)
    assert len(told) == 1 and "has no rows: the steps of the traces hold no collective operation" in told[0]
    assert csv_tables.read(outputs["collectives"], collective_tables.TABLE).empty
    assert csv_tables.read(outputs["skew"], rank_skew.TABLE).empty


def test_tables_of_several_cells_are_joined(tmp_path: Path) -> None:
    """A cell without operations leaves no row, and the types of the others' columns as they are."""
    paths: dict[str, list[str]] = {"collectives": [], "skew": []}
    for model, late in (("a", 10.0), ("b", None), ("c", 20.0)):
        made = {"collectives": collective_tables.TABLE.empty(), "skew": rank_skew.TABLE.empty()}
        (tmp_path / model).mkdir()
        if late:
            operations, timelines = simulated(tmp_path / model, {"data": late})
            made["collectives"] = collective_tables.tabulate_collectives(operations, NO_PROBE)
            made["skew"] = rank_skew.tabulate_skew(operations, timelines)
        for name, frame in made.items():
            paths[name].append(str(tmp_path / model / f"train.torch-{name}.csv"))
            write_csv(frame, paths[name][-1])
    outputs = {name: str(tmp_path / f"{name}.csv") for name in paths}
    collectives_across.main(paths, outputs)
    joined = {name: zoo_tables.read_table(name, path) for name, path in outputs.items()}
    assert joined["collectives"]["model"].tolist() == ["a", "c"] and set(joined["skew"]["model"]) == {"a", "c"}
    assert joined["collectives"]["bytes"].tolist() == [4 * MIB] * 2
    assert joined["skew"].groupby("model")["late_ns"].sum().to_dict() == pytest.approx({"a": 30_000, "c": 60_000})
    collectives_across.main({name: [] for name in paths}, outputs)
    assert all(zoo_tables.read_table(name, path).empty for name, path in outputs.items())


def test_the_probe_is_interpolated_by_size() -> None:
    sizes = [1 << 10, 1 << 20, 1 << 24]
    # 10 us of latency, and 100 GB/s.
    rows = [["all_reduce", size, 2, 1, 1e4 + size / 100, 0, 0, "NV18"] for size in sizes]
    probe = pd.DataFrame(rows, columns=link_rates.COLUMNS)
    assert link_rates.expected_time(probe, "all_reduce", 1 << 20, 2) == pytest.approx(1e4 + (1 << 20) / 100)
    assert link_rates.expected_time(probe, "all_reduce", 16, 2) == pytest.approx(1e4, rel=0.01)
    assert link_rates.reached_bus_rate(probe, "all_reduce", 1 << 30, 2) == pytest.approx(100e9, rel=0.1)
    assert pd.isna(link_rates.reached_bus_rate(probe, "all_reduce", 1 << 20, 4))
    assert pd.isna(link_rates.reached_bus_rate(probe, "broadcast", 1 << 20, 2))


def test_the_export_reads_a_folder_of_traces_and_the_probe(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    for rank in (0, 1):
        sent = [Sent("allreduce", MIB, 10, 20 + 100 * rank, 220)]
        write_trace(tmp_path / "ranks" / f"n.{rank}.trace.json.gz", [("step", 0, 500), ("data", 0, 100 * rank)], sent)
    (tmp_path / "s.json").write_text('{"ranks": [{"rank": 0}, {"rank": 1}]}')
    probe = pd.DataFrame([["all_reduce", 4 * MIB, 2, 1, 50_000, 0, 0, "NV18"]], columns=link_rates.COLUMNS)
    write_csv(probe, tmp_path / "links.csv")
    outputs = {name: str(tmp_path / f"{name}.csv") for name in ("collectives", "skew")}
    told: list[str] = []
    export_collectives.main(
        str(tmp_path / "ranks"), str(tmp_path / "s.json"), [str(tmp_path / "links.csv")], outputs, told.append
    )
    row = csv_tables.read(outputs["collectives"], collective_tables.TABLE).iloc[0]
    # The transfer took 100 us, where the probe took 50.
    assert row["probe_share"] == pytest.approx(0.5) and row["link"] == "NV18" and not told
    skew = csv_tables.read(outputs["skew"], rank_skew.TABLE)
    assert skew["late_ns"].sum() == pytest.approx(100_000)
    (tmp_path / "ranks" / "n.1.trace.json.gz").unlink()
    with pytest.raises(DataError, match=re.escape("2 processes, but no trace of rank 1")):
        export_collectives.main(str(tmp_path / "ranks"), str(tmp_path / "s.json"), [], outputs, told.append)


@pytest.mark.slow
def test_a_process_that_sleeps_is_found_among_real_ones(tmp_path: Path) -> None:
    """Two processes with gloo, of which the second sleeps in the transfer of each step."""
    (tmp_path / "ranks").mkdir()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "models.run"]
    words = [
        "late",
        "train",
        f"module={late_rank.__name__}",
        "device=cpu",
        "gpus=2",
        "warmup=2",
        "window=9",
        "width=64",
    ]
    names = {"--trace": "t.json.gz", "--operators": "o.csv", "--facts": "facts.json", "--ranks": "ranks"}
    files = [word for option, name in names.items() for word in (option, str(tmp_path / name))]
    own = {**os.environ, late_rank.FOLDER: str(tmp_path)}
    done = subprocess.run(
        [*launcher, *words, *files], cwd=PROJECT, env=own, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    outputs = {name: str(tmp_path / f"{name}.csv") for name in ("collectives", "skew")}
    export_collectives.main(str(tmp_path / "ranks"), str(tmp_path / "facts.json"), [], outputs)
    (row,) = csv_tables.read(outputs["collectives"], collective_tables.TABLE).to_dict("records")
    assert (row["collective"], row["bytes"], row["group_size"]) == ("all_reduce", 4 * 64 * 64, 2)
    # The profiler may begin or stop before a thread of gloo has noted an operation.
    assert 7 <= row["count"] <= 9
    skew = csv_tables.read(outputs["skew"], rank_skew.TABLE)
    slept = json.loads((tmp_path / "1.json").read_text())["transfer"]
    late = skew[(skew["rank"] == 1) & (skew["range"] == "transfer")]["late_ns"]
    assert late.median() == pytest.approx(np.median(slept), rel=0.02)
    assert skew.groupby("rank")["last"].sum().to_dict() == {0: 0, 1: row["count"]}
