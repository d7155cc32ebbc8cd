"""Collective operations of several processes: by simulated traces whose bytes, transfer and lateness are known."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.catalog import csv_files
from profzoo.errors import DataError
from profzoo.io import csv_tables
from profzoo.io.scripts import write_csv
from profzoo.tables import across_cells
from profzoo.tools.torch import collective_events, collective_tables
from profzoo.tools.torch.collective_tables import Operations, Process, Timeline, match_operations
from tests.rank_traces import Sent, read_process, write_trace

PROJECT = Path(__file__).parents[2]
MIB = 1 << 20
# A step takes 1000 us; all-reduces of 4 MiB take 80 us from the moment when the last process comes.
STEP, TRANSFER = 1000.0, 80.0
NO_PROBE = collective_events.TABLE.empty()


def simulated(folder: Path, late: dict[str, float], drop: Sequence[str] = ()) -> tuple[Operations, dict[int, Timeline]]:
    """Two processes, of which the second spends more time in some parts of each step; late: us by part."""
    made = []
    for rank in (0, 1):
        ranges, sent, kernels = [], [], []
        for step in range(3):
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
        path = write_trace(folder / f"{rank}.json", ranges, sent, kernels, drop=drop)
        made.append(read_process(path, "a", rank))
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


@pytest.mark.parametrize("late", [{"backward": 40.0}, {"data": 30.0, "forward": 60.0}])
def test_the_late_process_and_its_part_are_found(late: dict[str, float], tmp_path: Path) -> None:
    operations, timelines = simulated(tmp_path, late)
    table = collective_tables.tabulate_skew(operations, timelines)
    by_part = table[table["late_ns"] != 0].groupby(["rank", "range"])["late_ns"].sum()
    assert by_part.to_dict() == pytest.approx({(1, part): 3e3 * us for part, us in late.items()}, rel=1e-6)
    waited = table.groupby(["rank", "step"])["waiting_ns"].sum()
    assert waited.loc[0].tolist() == pytest.approx([1e3 * sum(late.values())] * 3) and (waited.loc[1] == 0).all()
    assert table.groupby("rank")["last"].sum().to_dict() == {0: 0, 1: 3}
    assert set(table["clock"]) == {"host"} and table["clock_error_ns"].isna().all()


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
        sent = [Sent("allreduce", 100, 90 + late, 100 + late, 260), Sent("allreduce", 200, 120 + late, 130 + late, 280)]
        made.append(read_process(write_trace(tmp_path / f"{rank}.json", ranges, sent), "a", rank))
    table = collective_tables.tabulate_skew(
        match_operations([one for one, _ in made]), {one.rank: line for one, line in made}
    )
    assert table["late_ns"].sum() == pytest.approx(100_000) and set(table["range"]) == {"backward"}
    assert table["waiting_ns"].sum() == pytest.approx(100_000)


def alike(folder: Path, *each: list[Sent], drop: Sequence[str] = ()) -> list[Process]:
    """Processes of one host that did these operations in a step."""
    paths = (
        write_trace(folder / f"{rank}.json", [("step", 0, 100)], sent, drop=drop) for rank, sent in enumerate(each)
    )
    return [read_process(path, "a", rank)[0] for rank, path in enumerate(paths)]


ONE = Sent("allreduce", 64, 10, 20, 30)


def test_an_operation_that_one_process_did_not_record_is_left_out(tmp_path: Path) -> None:
    made = alike(tmp_path, [ONE, Sent("_allgather_base", 64, 40, 50, 60, "BFloat16")], [ONE])
    operations = match_operations(made)
    assert operations.left_out == ["1 operation that not all processes recorded"]
    assert set(operations.rows["collective"]) == {"all_reduce"}
    assert made[0].collectives.table["bytes"].tolist() == [256, 128]


def test_traces_without_operations_of_all_say_so_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape("2 communication kernels without `Collective name`")):
        match_operations(alike(tmp_path, [ONE], [ONE], drop=["Collective name"]))
    with pytest.raises(DataError, match="no other communication than 2 sends and receives"):
        match_operations(alike(tmp_path, *([Sent(name, 64, 10, 20, 30)] for name in ("send", "recv"))))


@pytest.mark.parametrize("batched", [True, False], ids=["both ways", "one way"])
def test_sends_and_receives_are_no_collective_operations(batched: bool, tmp_path: Path) -> None:
    """Two processes that both send and receive did the same operations, yet none of them is one of both together."""
    each = [["send", "recv"] if batched else [name] for name in ("send", "recv")]
    all_ = Sent("allreduce", 64, 40, 50, 60)
    operations = match_operations(
        alike(tmp_path, *([*(Sent(name, 64, 10, 20, 30) for name in names), all_] for names in each))
    )
    assert collective_tables.tabulate_collectives(operations, NO_PROBE)["collective"].tolist() == ["all_reduce"]
    assert operations.left_out == [f"{4 if batched else 2} sends and receives, in which only two processes take part"]


def test_kernels_without_an_operation_are_named_beside_others(tmp_path: Path) -> None:
    """batch_isend_irecv launches NCCL's kernel where torch notes nothing of the operation."""
    made = []
    for rank in (0, 1):
        path = write_trace(tmp_path / f"{rank}.json", [("step", 0, 100)], [ONE])
        whole = json.loads(path.read_text())
        kernel = next(event for event in whole["traceEvents"] if event["cat"] == "kernel")
        bare = {key: kernel["args"][key] for key in ("External id", "stream", "device", "context")}
        whole["traceEvents"].append(
            {**kernel, "name": "ncclDevKernel_SendRecv(x)", "ts": kernel["ts"] + 40, "args": bare}
        )
        path.write_text(json.dumps(whole))
        made.append(read_process(path, "a", rank)[0])
    (told,) = match_operations(made).left_out
    assert told.startswith("2 communication kernels without `Collective name`") and "batch_isend_irecv" in told


def exported(folder: Path, probe: list[str]) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """What is exported of the traces of two processes in a folder, and what is said."""
    (folder / "s.json").write_text('{"ranks": [{"rank": 0}, {"rank": 1}]}')
    outputs, told = {name: str(folder / f"{name}.csv") for name in ("collectives", "skew")}, list[str]()
    collective_tables.export_collectives(str(folder / "ranks"), str(folder / "s.json"), probe, outputs, told.append)
    calls = csv_tables.read(outputs["collectives"], collective_tables.CALL_TABLE)
    return calls, csv_tables.read(outputs["skew"], collective_tables.TABLE), told


def test_a_window_without_operations_leaves_tables_without_rows(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    for rank in (0, 1):
        path = write_trace(tmp_path / "ranks" / f"n.{rank}.trace.json.gz", [("step", 0, 500)], [])
        # As gloo's last one is where the profiler stopped too early.
        cut = {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": 1, "tid": 2, "ts": 1e6 + 9}
        whole = json.loads(path.read_text())
        whole["traceEvents"].append({**cut, "dur": 5, "args": {"External id": 513, "finished": False}})
        path.write_text(json.dumps(whole))
    calls, skew, (told,) = exported(tmp_path, [])
    assert "has no rows: the steps of the traces hold no collective operation" in told and calls.empty and skew.empty


def test_tables_of_several_cells_are_joined(tmp_path: Path) -> None:
    """A cell without operations leaves no row, and the types of the others' columns as they are."""
    paths: dict[str, list[str]] = {"collectives": [], "skew": []}
    for model, late in (("a", 10.0), ("b", None), ("c", 20.0)):
        made = [collective_tables.CALL_TABLE.empty(), collective_tables.TABLE.empty()]
        (tmp_path / model).mkdir()
        if late:
            operations, lines = simulated(tmp_path / model, {"data": late})
            made = [
                collective_tables.tabulate_collectives(operations, NO_PROBE),
                collective_tables.tabulate_skew(operations, lines),
            ]
        for name, frame in zip(paths, made, strict=True):
            paths[name].append(str(tmp_path / model / f"train.torch-{name}.csv"))
            write_csv(frame, paths[name][-1])
    outputs = {name: str(tmp_path / f"{name}.csv") for name in paths}
    across_cells.tabulate_collectives(paths, outputs)
    calls, skew = (csv_files.read_table(name, path) for name, path in outputs.items())
    assert calls["model"].tolist() == ["a", "c"] and calls["bytes"].tolist() == [4 * MIB] * 2
    assert skew.groupby("model")["late_ns"].sum().to_dict() == pytest.approx({"a": 30_000, "c": 60_000})
    across_cells.tabulate_collectives({name: [] for name in paths}, outputs)
    assert all(csv_files.read_table(name, path).empty for name, path in outputs.items())


def test_the_export_reads_a_folder_of_traces_and_the_probe(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    for rank in (0, 1):
        sent = [Sent("allreduce", MIB, 10, 20 + 100 * rank, 220)]
        write_trace(tmp_path / "ranks" / f"n.{rank}.trace.json.gz", [("step", 0, 500), ("data", 0, 100 * rank)], sent)
    probe = pd.DataFrame([["all_reduce", 4 * MIB, 2, 1, 50_000, 0, 0, "NV18"]], columns=collective_events.LINK_COLUMNS)
    write_csv(probe, tmp_path / "links.csv")
    calls, skew, told = exported(tmp_path, [str(tmp_path / "links.csv")])
    # The transfer took 100 us, where the probe took 50.
    assert calls["probe_share"].tolist() == pytest.approx([0.5]) and calls["link"].tolist() == ["NV18"] and not told
    assert skew["late_ns"].sum() == pytest.approx(100_000)
    (tmp_path / "ranks" / "n.1.trace.json.gz").unlink()
    with pytest.raises(DataError, match=re.escape("2 processes, but no trace of rank 1")):
        exported(tmp_path, [])


NCCL = {"Collective name": "allreduce", "In msg nelems": 6, "Out msg nelems": 8, "dtype": "Float", "Group size": 4}


def test_what_a_kernel_of_nccl_says_of_its_operation() -> None:
    """The larger side times 4 bytes; nothing is numbered unless it says so."""
    event = {"cat": "kernel", "ts": 2.5, "dur": 1.25}

    def found(**changed: object) -> tuple | None:
        args = {**NCCL, **{name.replace("_", " "): value for name, value in changed.items()}}
        return collective_events._row({**event, "args": args})

    def right(dtype: str, size: int, group: str = "", number: int = -1, call: int = -1) -> tuple:
        return "all_reduce", dtype, size, group, 4, number, call, 2500, 3750

    assert found() == found(Seq="x") == right("Float", 32) and found(In_msg_nelems=9) == right("Float", 36)
    assert found(Seq=0, correlation=5) == right("Float", 32, "", 0, 5)
    assert found(Process_Group_Ranks="[0, 1]", dtype="BFloat16") == right("BFloat16", 16, "[0, 1]")
    assert found(Process_Group_Name="dp") == right("Float", 32, "dp")
    assert found(dtype="unheard") is found(Group_size="4") is None
    for more in ({"cat": "cpu_op"}, {"ts": "2.5"}, {"dur": None}, {"args": {"correlation": 5}}):
        assert collective_events._row({**event, "args": NCCL, **more}) is None


def test_what_a_range_of_gloo_says_of_its_operation() -> None:
    def found(name: str, kinds: list[str], shapes: list[list[int]]) -> tuple | None:
        args = {"Input type": kinds, "Input Dims": shapes}
        return collective_events._row({"cat": "user_annotation", "name": name, "ts": 1, "dur": 2, "args": args})

    rest = ("", 0, -1, -1, 1000, 3000)
    assert found("gloo:all_reduce", ["float", "float"], [[2, 3], [4]]) == ("all_reduce", "float", 40, *rest)
    assert found("gloo:barrier", [], []) == ("barrier", "", 0, *rest) and found("gloo:all_reduce", [], [[2]]) is None


def test_a_probe_holds_below_between_and_beyond_its_sizes() -> None:
    """1 KiB takes 10 us and 4 KiB 40 us: half way in the logarithms 2 KiB take 20; 8 KiB at the last rate 80."""
    rows = [[name, size, count, 1, ns, 0, 0, ""] for name, count in (("all_reduce", 2), ("all_reduce", 4), ("reduce_scatter", 4))
            for size, ns in ((4096, 4e4), (1024, 1e4))]  # fmt: skip
    probe = pd.DataFrame(rows, columns=collective_events.LINK_COLUMNS)
    sizes = {1: 1e4, 1024: 1e4, 2048: 2e4, 4096: 4e4, 8192: 8e4}
    found = {size: collective_events.expected_time(probe, "all_reduce", size, 2) for size in sizes}
    assert found == pytest.approx(sizes)
    assert np.isnan(collective_events.expected_time(probe, "all_reduce", 0, 2))
    # Of n processes an all-reduce moves its bytes 2(n-1)/n times over the bus, a reduce-scatter half as often.
    for name, count, factor in (("all_reduce", 2, 1.0), ("all_reduce", 4, 1.5), ("reduce_scatter", 4, 0.75)):
        assert collective_events.reached_bus_rate(probe, name, 8192, count) == pytest.approx(factor * 8192 / 80e-6)
    assert np.isnan(collective_events.reached_bus_rate(probe, "all_reduce", 8192, 8))
    assert np.isnan(collective_events.reached_bus_rate(probe, "broadcast", 8192, 2))


def test_time_in_parts_until_a_moment() -> None:
    """Outside of parts until 10, in the second until 30, and in the first from there on."""
    spent = np.array([[0, 0, 0], [10, 0, 0], [10, 0, 20]])
    line = Timeline(np.array([0, 10, 30]), np.array([0, 2, 1]), spent, 0)
    right = {-5: [-5, 0, 0], 0: [0, 0, 0], 10: [10, 0, 0], 15: [10, 0, 5], 30: [10, 0, 20], 34: [10, 4, 20]}
    assert line.until([*right]).tolist() == [*right.values()]
    # What is asked changes nothing of the sums.
    assert line.until([34, 34]).tolist() == [right[34]] * 2 and spent.sum() == 40


def ends(*rows: tuple[int, str, int, int], collective: str = "all_reduce") -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=["operation", "host", "rank", "end_ns"])
    return table.assign(collective=collective)


def test_clocks_of_hosts_by_the_ends_of_their_operations() -> None:
    """The clock of b is ahead by 50, 50 and 53 ns; that of c, which only b shares an operation with, by 100 of b's."""
    base = 1_700_000_000_000_000_000
    rows = [(number, "a", 0, base + 100 * number) for number in range(3)]
    rows += [(number, "b", 1, base + 100 * number + late) for number, late in enumerate((50, 50, 53))]
    found = collective_tables.align_clocks(ends(*rows))
    assert found.offsets_ns == {"a": 0, "b": 50} and found.kind == collective_tables.ENDS
    # In the third they are 1.5 ns from their middle, either way.
    assert found.error_ns == pytest.approx(3.0)
    further = ends(*rows, (7, "b", 1, base + 1000), (7, "c", 2, base + 1100))
    assert collective_tables.align_clocks(further).offsets_ns == {"a": 0, "b": 50, "c": 150}
    one = collective_tables.align_clocks(ends(*rows[:3]))
    assert (one.offsets_ns, one.kind, one.error_ns) == ({"a": 0}, collective_tables.SHARED, None)
    with pytest.raises(DataError, match="the clock of c cannot be compared with that of a"):
        collective_tables.align_clocks(ends(*rows, (9, "c", 2, base)))
    # The first rank's host counts, wherever it stands.
    assert collective_tables.align_clocks(ends(*rows[::-1])).offsets_ns == {"a": 0, "b": 50}


def test_what_surrounds_the_events_of_a_rank() -> None:
    known = {"baseTimeNanoseconds": 7, "distributedInfo": {"world_size": 4}}
    assert collective_events._surroundings(known) == (7, 4)
    strings = {"baseTimeNanoseconds": "7", "distributedInfo": {"world_size": "4"}}
    for others in (strings, {"distributedInfo": 4}, {}):
        assert collective_events._surroundings(others) == (0, 0)
