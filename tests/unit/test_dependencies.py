"""What each call and each operation of a trace waited for, and how long: on traces whose times are worked out by hand."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.what_if import dependencies
from profzoo.what_if.dependencies import ALL, BEFORE, NOTHING, OPERATION, STREAM
from profzoo.what_if.trace_events import CONTEXT_SYNC, EVENT_SYNC, NONE, STREAM_SYNC, STREAM_WAIT, Events
from tests.written_traces import calls, events, work

SIDE = {"stream": 20}


def found(
    rows: list[Any], gpu: list[Any], told: Events | None = None, issued: list[float] | None = None
) -> pd.DataFrame:
    """What is found of these calls and operations; issued: when each found room, if not at its call's start."""
    host, table = calls(rows), work(gpu)
    starts = host["start"].to_numpy(dtype=float)[table["host"]]
    return dependencies.add_dependencies(
        host, table.assign(issued=starts if issued is None else issued), told or events()
    )[0]


def columns(table: pd.DataFrame) -> list[tuple[float, ...]]:
    return list(table[["latency", "gap", "dep", "dep_gap"]].itertuples(index=False, name=None))


def test_what_held_an_operation_is_as_measured_and_the_rest_as_usual() -> None:
    """Usual are 1.8 us from a call's end and 1.1 us on a stream: where less was measured it is less."""
    rows = [(0, 1_000), (2_000, 3_000), (4_000, 5_000), (50_000, 51_000), (53_000, 54_000)]
    gpu = [(0, 2_500, 10_000), (1, 10_700, 20_000), (2, 30_000, 40_000), (3, 54_000, 55_900), (4, 56_500, 57_000)]
    assert columns(found(rows, gpu)) == [
        # By its call alone, 300 ns sooner than usual.
        (2_500, 1_100, -1, 0),
        # 700 ns after what is before; its call would have let it begin at 4,800.
        (2_800, 700, -1, 0),
        # 10 us after that.
        (2_800, 10_000, -1, 0),
        # By its call, 1.2 us later than usual.
        (4_000, 1_100, -1, 0),
        # By its call, at 55,800, or by its stream, at 57,000: by the latter, sooner than usual.
        (2_800, 600, -1, 0),
    ]


def test_where_both_would_have_held_it_it_was_the_stream() -> None:
    """Call and stream let it begin at 12,800."""
    rows = [(0, 1_000), (10_000, 11_000)]
    assert columns(found(rows, [(0, 2_800, 11_700), (1, 13_000, 14_000)]))[1] == (2_800, 1_300, -1, 0)


def test_a_call_that_waited_gives_the_gpu_its_work_before() -> None:
    """It ends at 90,000, 1.8 us after it was issued is when it would have; the operation began 3.6 us after that."""
    waited = {"waited": 80_000.0}
    assert columns(found([(0, 90_000, waited)], [(0, 5_000, 80_000)])) == [(5_000, 1_100, -1, 0)]
    # What it found room for at 40,000 may begin 3.6 us after that, of which the stream is free at 43,300.
    rows = [(0, 1_000), (10_000, 90_000, waited)]
    table = found(rows, [(0, 2_800, 42_200), (1, 43_500, 44_000)], issued=[0, 40_000])
    assert columns(table)[1] == (3_500, 1_100, -1, 0)


def after(begins: list[float], **other: Any) -> tuple[pd.DataFrame, float]:
    """Launches of 1 us each, 100 us apart, of which the GPU begins so many ns after the call's end."""
    rows = [(100_000 * place, 100_000 * place + 1_000) for place in range(len(begins))]
    gpu = [(place, 100_000 * place + 1_000 + ns, 100_000 * place + 9_000, other) for place, ns in enumerate(begins)]
    host, table = calls(rows), work(gpu)
    return dependencies.add_dependencies(host, table.assign(issued=host["start"].astype(float)), events())


def test_five_that_found_the_gpu_idle_tell_what_is_usual() -> None:
    table, usual = after([1_000, 1_100, 1_200, 1_300, 5_000])
    assert usual == 1_200 and table["latency"].tolist() == [2_000, 2_100, 2_200, 2_300, 6_000]
    assert after([1_000, 1_100, 1_200, 1_300])[1] == 1_800
    # Of other kinds than kernels nothing is told of these.
    assert after([1_000, 1_100, 1_200, 1_300, 5_000], kind=1)[1] == 1_800


def test_medians_are_of_each_kind_by_those_that_tell() -> None:
    """Five of kind 0 tell surely; of kind 1 five perhaps, of which a tenth is below 4; of kind 2 four."""
    values = np.array([9.0, 1, 2, 3, 100, 0, 10, 20, 30, 40, 5, 6, 7, 8, 500, 600])
    kinds = np.array([0] * 5 + [1] * 5 + [2] * 4 + [0, 1])
    surely = (kinds == 0) & (values < 500) | (np.arange(16) >= 10) & (np.arange(16) < 14)
    perhaps = (values < 500) & (np.arange(16) != 10)
    found = dependencies._medians(values, kinds, surely, perhaps, 77.0)
    assert found.tolist() == [3.0] * 5 + [4.0] * 5 + [77.0] * 4 + [3.0, 4.0]


def test_an_idle_gpu_is_one_that_has_done_all_and_a_stream_one_that_has_done_its_own() -> None:
    """Five tell surely by 1,000 ns; those behind another stream's work, or a graph's nodes, do not count."""
    begins, ends = np.arange(6) * 100.0, np.arange(6) * 100.0 + 50
    called, issued = begins - 1_000, begins - 50
    before = np.concatenate(([-np.inf], ends[:-1]))
    kinds, node = np.zeros(6, dtype=int), np.zeros(6, dtype=bool)
    assert dependencies._after(begins, ends, called, issued, before, kinds, node).tolist() == [1_000] * 6
    # One ns sooner, and all but the first found work before them on their stream.
    assert dependencies._after(begins, ends, called, issued - 1, before, kinds, node).tolist() == [1_800] * 6
    # Where another stream's work was there, a low one tells: the tenth of 1,000 to 1,500.
    far = np.full(6, -np.inf)
    varied = called - np.arange(6) * 100
    assert dependencies._after(begins, ends, varied, issued - 1, far, kinds, node) == pytest.approx([1_050] * 6)
    assert dependencies._after(begins, ends, called, issued, before, kinds, ~node).tolist() == [1_800] * 6


def test_gaps_are_of_operations_that_were_in_the_queue() -> None:
    """Those whose call came 3 us before their stream was free, and that began within 10 us of that."""
    before, kinds, node = np.full(5, 50_000.0), np.zeros(5, dtype=int), np.zeros(5, dtype=bool)
    begins, by_call = before + np.array([100, 200, 300, 400, 10_000]), np.full(5, 46_999.0)
    assert dependencies._gaps(begins, before, by_call, kinds, node).tolist() == [300] * 5
    usual = [1_100] * 5
    assert dependencies._gaps(begins, before, by_call + 1, kinds, node).tolist() == usual
    assert dependencies._gaps(begins + np.array([0, 0, 0, 0, 1]), before, by_call, kinds, node).tolist() == usual
    assert dependencies._gaps(begins, np.array([-np.inf, *before[1:]]), by_call, kinds, node).tolist() == usual
    assert dependencies._gaps(begins, before, by_call, kinds, ~node).tolist() == usual


def test_five_waits_that_nothing_else_explains_tell_how_long_another_stream_takes() -> None:
    late = np.array([True] * 5 + [False] * 3)
    gaps = np.array([0.0, 100, 200, 5_000, 10_000, 1, 1, 1])
    assert dependencies._lag(gaps, late) == 200
    for other in (-1.0, 10_001.0):
        assert dependencies._lag(np.where(gaps == 0, other, gaps), late) == 2_200
    assert dependencies._lag(gaps, late & (gaps > 0)) == 2_200


def test_what_is_late_waited_for_what_ended_on_another_stream_shortly_before() -> None:
    """100 us of stream 20 until 101,000; a kernel of stream 7 begins 2 us after that, and was expected long before."""
    rows = [(0, 1_000), (10_000, 11_000)]
    assert columns(found(rows, [(0, 1_000, 101_000, SIDE), (1, 103_000, 104_000)])) == [
        (1_000, 1_100, -1, 0), (2_800, 1_100, 0, 2_000),
    ]  # fmt: skip
    # Of one stream, or more than 10 us after it, nothing explains it but the call.
    assert columns(found(rows, [(0, 1_000, 20_000), (1, 103_000, 104_000)]))[1][2] == -1
    assert columns(found(rows, [(0, 1_000, 93_000, SIDE), (1, 103_000, 104_000)]))[1] == (2_800, 1_100, 0, 10_000)
    assert columns(found(rows, [(0, 1_000, 92_999, SIDE), (1, 103_000, 104_000)]))[1] == (93_000, 1_100, -1, 0)
    # What begins within 3 us of when its call lets it is not late.
    assert columns(found(rows, [(0, 1_000, 15_000, SIDE), (1, 15_800, 16_000)]))[1] == (5_800, 1_100, -1, 0)
    assert columns(found(rows, [(0, 1_000, 15_000, SIDE), (1, 15_801, 16_000)]))[1] == (2_800, 1_100, 0, 801)


def inferred(gpu: list[Any], *late: int) -> list[int]:
    table = work(gpu)
    where = np.isin(np.arange(len(gpu)), late)
    return dependencies._inferred(table, where, table["node"].to_numpy(dtype=bool)).tolist()


def test_what_waits_takes_the_last_end_on_another_stream_else_the_next() -> None:
    gpu = [(0, 0, 50, SIDE), (1, 0, 60, {"stream": 21}), (2, 0, 100), (3, 100, 200)]
    # Of what is over by 100, that of stream 21 ended last, but for its own stream's.
    assert inferred(gpu, 3) == [-1, -1, -1, 1]
    # Where none is over, what runs and ends next: at 300 rather than 400.
    running = [(0, 0, 400, SIDE), (1, 0, 300, {"stream": 21}), (2, 0, 100), (3, 100, 200)]
    assert inferred(running, 3) == [-1, -1, -1, 1]
    # What begins with it or later does not run.
    assert inferred([(0, 100, 400, SIDE), (1, 0, 100), (2, 100, 200)], 2) == [-1, -1, -1]
    assert inferred([(0, 99, 400, SIDE), (1, 0, 100), (2, 100, 200)], 2) == [-1, -1, 0]
    # What is over as it begins is what it waited for.
    assert inferred([(0, 0, 100, SIDE), (1, 0, 300, {"stream": 21}), (2, 100, 200)], 2) == [-1, -1, 0]


def test_a_graphs_node_waits_for_the_last_before_it_that_was_over() -> None:
    node = {"node": True}
    gpu = [(0, 0, 90), (1, 0, 50, node), (1, 10, 80, node), (1, 60, 95, node), (1, 85, 99, node), (2, 85, 87)]
    # At 60 the first was over, at 85 the second; at 10 none, so that it begins with the first.
    assert inferred(gpu, 2, 3, 4) == [-1, -1, 1, 1, 2, -1]
    # One that is listed later is none that it waits for.
    assert inferred([(1, 0, 50, node), (1, 60, 95, node), (1, 51, 55, node)], 1) == [-1, 0, -1]


def test_nodes_of_a_graph_wait_for_each_other_alone() -> None:
    """The second begins 900 ns after the first, and the third with it: 10,000 ns before that is over."""
    node = {"node": True}
    gpu = [(0, 3_000, 13_000, node), (0, 13_900, 23_900, node), (0, 13_900, 24_000, node), (1, 30_000, 31_000)]
    table = found([(0, 1_000), (28_000, 29_000)], gpu)
    assert columns(table)[:3] == [(3_000, 1_100, -1, 0), (0, -np.inf, 0, 900), (0, -np.inf, 0, 900)]
    assert columns(table)[3] == (2_000, 1_100, -1, 0)


def waiting_for(
    waits: list[tuple[int, ...]], records: list[tuple[int, ...]], gpu: list[Any] | None = None
) -> list[int]:
    """What operations wait for by events; calls 0 and 1 launch on stream 20, 4 and 5 on 7, unless said otherwise."""
    gpu = gpu or [(0, 10, 100, SIDE), (1, 100, 300, SIDE), (4, 400, 500), (5, 500, 600)]
    return dependencies._by_events(work(gpu), events(waits, records), calls([(at, at + 1) for at in range(6)])).tolist()


def test_a_stream_that_waits_for_an_event_waits_for_what_was_recorded() -> None:
    record, wait = (20, 20, 5, 0), (30, STREAM_WAIT, 7, 5, 0)
    assert waiting_for([wait], [record]) == [-1, -1, 1, -1]
    # An event of another number, a wait of the CPU's, one that is not a call of these, a stream without work.
    for other in ((30, STREAM_WAIT, 7, 6, 0), (30, EVENT_SYNC, 7, 5, 0), (31, STREAM_WAIT, 7, 5, 0),
                  (30, STREAM_WAIT, 9, 5, 0)):  # fmt: skip
        assert waiting_for([other], [record]) == [-1] * 4
    # Of several the one that ends last, in whatever order.
    first = (10, 20, 4, 0), (30, STREAM_WAIT, 7, 4, 0)
    for waits in ([first[1], wait], [wait, first[1]]):
        assert waiting_for(waits, [first[0], record]) == [-1, -1, 1, -1]
    # What is launched before the wait does not wait; nor does anything where nothing follows.
    assert waiting_for([(40, STREAM_WAIT, 7, 5, 0)], [record]) == [-1, -1, -1, 1]
    assert waiting_for([(50, STREAM_WAIT, 7, 5, 0)], [record]) == [-1] * 4


def test_the_very_first_operation_can_be_waited_for() -> None:
    assert waiting_for([(30, STREAM_WAIT, 7, 5, 0)], [(10, 20, 5, 0)]) == [-1, -1, 0, -1]
    assert waiting_for([(30, STREAM_WAIT, 7, 5, 0)], []) == [-1] * 4 == waiting_for([], [(10, 20, 5, 0)])


def test_a_record_is_told_from_others_of_its_event() -> None:
    host, gpu = calls([(at, at + 1) for at in range(6)]), work([(0, 0, 1, SIDE), (2, 0, 1, SIDE), (4, 0, 1)])
    told = events(records=[(10, 20, 5, 81), (30, 20, 5, 82), (50, 7, 5, 83), (0, 20, 6, 84), (77, 20, 5, 85)])
    records = dependencies.Records(told, host, gpu)
    # By the event it is the last record before the call, by the record's number that one.
    assert [records.meant(5, none, row) for row, none in ((2, 0), (4, NONE), (6, 0), (1, 0))] == [0, 1, 2, -1]
    assert [records.meant(5, record, 6) for record in (81, 82, 83, 99)] == [0, 1, 2, -1]
    assert records.meant(5, 82, 3) == -1
    # Before the first launch on the stream there is nothing; a record of no call of these is none.
    assert records.meant(6, 0, 6) == -1 and records.meant(5, 85, 6) == -1
    found = dependencies.last_before(gpu, np.array([20, 20, 20, 7, 9]), np.array([0, 1, 3, 4, 5]))
    assert found.tolist() == [-1, 0, 1, -1, -1]


def test_an_event_that_explains_an_operation_is_what_it_waited_for() -> None:
    """Stream 7 is told to wait for 100 us of stream 20 until 101,000, and begins 1.5 us after that."""
    rows = [(0, 1_000), (2_000, 2_100), (3_000, 3_100), (10_000, 11_000)]
    told = events([(20, STREAM_WAIT, 7, 5, 0)], [(10, 20, 5, 0)])
    gpu = [(0, 1_000, 101_000, SIDE), (3, 102_500, 104_000)]
    assert columns(found(rows, gpu, told))[1] == (2_800, 1_100, 0, 1_500)
    # What was over long before the call let the kernel begin did not hold it: usual is 2.2 us after it.
    early = [(0, 1_000, 2_000, SIDE), (3, 12_500, 14_000)]
    assert columns(found(rows, early, told))[1] == (2_500, 1_100, 0, 2_200)
    # One that ends 2.2 us before that did, and one that ends sooner did not.
    for end, expected in ((10_600, (2_800, 1_100, 0, 2_900)), (10_599, (3_500, 1_100, 0, 2_200))):
        even = [(0, 1_000, end, SIDE), (3, 13_500, 14_000)]
        assert columns(found(rows, even, told))[1] == expected


SYNC = {"name": "cudaStreamSynchronize_v3020", "syncs": True}


COPY = {"name": "cudaMemcpyAsync_v3020", "copies": True}


def queue(room: int, every: float, own: float, before: float, until: float = 0.0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """200 launches into a queue of so many; the GPU begins one every so many ns, the CPU makes one in `before` + `own`.

    until: when the last row ends, which is not a launch.
    """
    rows, at = [], 0.0
    for number in range(200):
        start = at + before
        free = 10 + every * (number - room) if number >= room else 0.0
        at = max(start, free) + own
        rows.append((start, at))
    kernels = [(number, 10 + every * number, 10 + every * (number + 1)) for number in range(200)]
    return calls([*rows, (max(at, until), max(at, until), {"name": ""})]), work(kernels)


def test_a_queue_that_is_full_has_as_much_room_as_it_holds() -> None:
    """Of 70: launch 71 finds room as launch 1 begins, at 1,010. Until then the queue holds up to 70, and takes as many."""
    host, gpu = queue(70, 1_000, 5, 5)
    _, found = dependencies.add_waits(host, gpu, events())
    assert found["room"].tolist() == [70] * 70 + [71] + [70] * 129
    assert found["issued"].tolist()[:3] == [5, 15, 25] and found["issued"].tolist()[70:73] == [705, 1_010, 2_010]


@pytest.mark.parametrize(("room", "known"), [(64, True), (63, False)])
def test_a_queue_of_fewer_than_64_is_never_full(room: int, known: bool) -> None:
    _, found = dependencies.add_waits(*queue(room, 1_000, 5, 5), events())
    assert found["room"].iloc[-1] == (room if known else 1_024)


@pytest.mark.parametrize(("every", "known"), [(211, True), (210, False)])
def test_calls_that_waited_took_more_than_twice_as_long(every: float, known: bool) -> None:
    """100 ns without a wait, 10 ns apart; 201 or 200 with one."""
    _, found = dependencies.add_waits(*queue(70, every, 100, 10), events())
    assert found["room"].iloc[-1] == (70 if known else 1_024)


@pytest.mark.parametrize(("part", "known"), [(0.021, True), (0.019, False)])
def test_a_queue_is_full_where_waits_for_it_are_a_fiftieth_of_the_steps(part: float, known: bool) -> None:
    """129 calls, those of launches 71 to 199, last from 710 to 129,015 ns; 10 ns of each are the CPU's own."""
    host, gpu = queue(70, 1_000, 5, 5)
    took = (host["end"] - host["start"]).iloc[71:200].sum() - 129 * 5
    assert took == 129_015 - 710 - 129 * 10
    host, gpu = queue(70, 1_000, 5, 5, until=5 + took / part)
    _, found = dependencies.add_waits(host, gpu, events())
    assert found["room"].iloc[-1] == (70 if known else 1_024)


@pytest.mark.parametrize(("part", "known"), [(0.021, True), (0.019, False)])
def test_of_several_steps_three_in_four_count(part: float, known: bool) -> None:
    """In the first of two waits come to 29,015 - 710 - 290 ns, in the second to 100,000 - 1,000: 81,253.75 between."""
    host, gpu = queue(70, 1_000, 5, 5, until=5 + 2 * 81_253.75 / part)
    _, found = dependencies.add_waits(host.assign(step=[0] * 100 + [1] * 101), gpu, events())
    assert found["room"].iloc[-1] == (70 if known else 1_024)


def test_what_waited_for_room_is_blocked_until_it_found_it() -> None:
    host, _ = dependencies.add_waits(*queue(70, 1_000, 5, 5), events())
    assert host["waited"].tolist()[69:73] == [0, 0, 1_010 - 715, 2_010 - 1_020] and (host["own"].iloc[:200] == 5).all()


def staged(start: float, end: float, left: float, done: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A copy that leaves the buffer at a time, and the call of the next, which is done later."""
    crossing = {"crossing": True}
    return dependencies.add_waits(calls([(0, 10, COPY), (start, end, COPY)]),
                         work([(0, 5, left, crossing), (1, left + 1, done, crossing)]), events())  # fmt: skip


@pytest.mark.parametrize(
    ("start", "end", "left", "done", "waits"),
    [
        (20, 200_050, 200_000, 300_000, BEFORE),
        # 100 us and no more are not a wait.
        (20, 200_050, 100_020, 300_000, NOTHING),
        (20, 200_050, 100_021, 300_000, BEFORE),
        # What returns as the one before is done waited for no buffer.
        (20, 200_000, 200_000, 300_000, NOTHING),
        (20, 200_001, 200_000, 300_000, BEFORE),
        # What returns as its own copy is done waited for that.
        (20, 300_000, 200_000, 300_000, OPERATION),
        (20, 299_999, 200_000, 300_000, BEFORE),
    ],
)
def test_a_copy_waits_for_the_buffer(start: float, end: float, left: float, done: float, waits: int) -> None:
    host, gpu = staged(start, end, left, done)
    assert host["wait"].tolist() == [NOTHING, waits]
    assert host["target"].tolist() == [-1, {BEFORE: 0, NOTHING: -1, OPERATION: 1}[waits]]
    if waits == BEFORE:
        assert gpu["issued"].tolist() == [0, left]
        assert host["own"].tolist() == [10, end - left] and host["waited"].tolist() == [0, left - start]


@pytest.mark.parametrize(("begun", "waits"), [(500_100, BEFORE), (900_000, NOTHING)])
def test_a_copy_that_began_before_its_call_returned_waited_for_what_was_before_it(begun: float, waits: int) -> None:
    """A kernel until 500,000; the call takes from 100 to 900,000, and its copy is done at 900,010."""
    rows = [(0, 10, COPY), (20, 30), (100, 900_000, COPY)]
    crossing = {"crossing": True}
    gpu = work([(0, 5, 50, crossing), (1, 50, 500_000), (2, begun, 900_010, crossing)])
    host, _ = dependencies.add_waits(calls(rows), gpu, events())
    assert (host["wait"].iloc[2], host["target"].iloc[2]) == (waits, 1 if waits else -1)


def test_copies_of_other_streams_or_on_the_gpu_have_other_buffers() -> None:
    rows = [(0, 10, COPY), (20, 200_050, COPY)]
    for first, second in (({"crossing": True}, {"crossing": True, "stream": 20}), ({"crossing": True}, {}),
                          ({}, {"crossing": True})):  # fmt: skip
        gpu = work([(0, 5, 200_000, first), (1, 200_001, 300_000, second)])
        host, _ = dependencies.add_waits(calls(rows), gpu, events())
        assert (host["wait"] == NOTHING).all()
    # A kernel whose call is none of a copy's goes through no buffer.
    host, _ = dependencies.add_waits(calls([rows[0], (20, 200_050)]), work([(0, 5, 200_000, {"crossing": True}),
                            (1, 200_001, 300_000, {"crossing": True})]), events())  # fmt: skip
    assert (host["wait"] == NOTHING).all()


def synchronised(name: str, told: Events | None = None, end: float = 310, launched: int = 3) -> tuple[int, int]:
    """What a call waits for that starts at 50, behind work on streams 7, 20 and 7 until 100, 300 and 200.

    launched: how many of these come before it.
    """
    rows = [(place, place + 1) for place in range(3)]
    rows.insert(launched, (50, end, {"name": name, "syncs": True}))  # type: ignore[arg-type]
    places = [place for place in range(4) if place != launched]
    gpu = work([(places[0], 10, 100), (places[1], 10, 300, {"stream": 20}), (places[2], 100, 200)])
    host, _ = dependencies.add_waits(calls(rows), gpu, told or events())
    return host["wait"].iloc[launched], host["target"].iloc[launched]


def test_what_a_call_synchronises_with_is_what_the_trace_says() -> None:
    for name in ("cudaDeviceSynchronize", "cuCtxSynchronize", "cudaFree_v3020", "cuMemFree_v2"):
        assert synchronised(name) == (ALL, -1)
    assert synchronised("cudaOther", events([(30, CONTEXT_SYNC, NONE, NONE, NONE)])) == (ALL, -1)
    assert synchronised("cudaOther", events([(30, STREAM_SYNC, 7, NONE, NONE)])) == (STREAM, 7)
    # Event 5 was recorded on stream 7 by the second call, after the first kernel.
    assert synchronised("cudaEventSynchronize", events([(30, EVENT_SYNC, NONE, 5, 0)], [(10, 7, 5, 0)])) == (
        OPERATION, 0,
    )  # fmt: skip
    # Of other kinds the event says nothing.
    assert synchronised("cudaEventSynchronize", events([(30, 9, NONE, 5, 0)], [(10, 7, 5, 0)])) == (OPERATION, 1)


def test_what_the_trace_does_not_say_is_what_ended_last_before() -> None:
    assert synchronised("cudaStreamSynchronize") == (STREAM, 20)
    assert synchronised("cudaEventSynchronize") == (OPERATION, 1)
    # What ends with it counts, and what ends later does not.
    assert synchronised("cudaStreamSynchronize", end=300) == (STREAM, 20)
    assert synchronised("cudaStreamSynchronize", end=299) == (STREAM, 7)
    # The first kernel is not the last on its stream.
    assert synchronised("cudaStreamSynchronize", end=199) == (OPERATION, 0)
    assert synchronised("cudaStreamSynchronize", end=99) == (NOTHING, -1)
    # What is launched later is not waited for: the first alone, or nothing at all.
    assert synchronised("cudaStreamSynchronize", launched=1) == (STREAM, 7)
    assert synchronised("cudaStreamSynchronize", launched=0) == (NOTHING, -1)
    assert synchronised("cudaDeviceSynchronize", launched=0) == (NOTHING, -1)
    # A stream that has had nothing yet, and one that is unknown.
    assert synchronised("cudaStreamSynchronize", events([(10, STREAM_SYNC, 20, NONE, NONE)]), launched=1) == (
        STREAM, 7,
    )  # fmt: skip
    assert synchronised("cudaStreamSynchronize", events([(30, STREAM_SYNC, 9, NONE, NONE)])) == (STREAM, 20)


def test_a_wait_is_what_a_call_takes_beyond_others_of_its_name() -> None:
    """One of 20 ns that has nothing to wait for; one from 50 to 310, until 300; one of 15 for what is long over."""
    rows = [(0, 20, SYNC), (25, 30), (50, 310, SYNC), (320, 335, SYNC), (340, 343)]
    host, _ = dependencies.add_waits(calls(rows), work([(1, 40, 300)]), events())
    assert host["wait"].tolist() == [NOTHING, NOTHING, STREAM, STREAM, NOTHING]
    assert host["own"].tolist() == [20, 5, 20, 15, 3]
    assert host["tail"].tolist() == [0, 0, 10, 10, 0]
    assert host["waited"].tolist() == [0, 0, 240, 0, 0]


def test_a_wait_of_which_no_other_call_tells_takes_the_usual_time() -> None:
    """5 us are its own, and the rest of 100 is wait; a call that is shorter than that did not wait for long."""
    for end, own in ((100_050, 5_000), (3_050, 3_000)):
        rows = [(25, 30), (50, end, {"name": "cudaDeviceSynchronize", "syncs": True})]
        host, _ = dependencies.add_waits(calls(rows), work([(0, 40, end - 50)]), events())
        assert host["own"].tolist() == [5, own] and host["waited"].tolist() == [0, end - 50 - own]
        assert host["tail"].tolist() == [0, 50]


def test_where_none_waited_a_tail_is_what_a_call_takes() -> None:
    rows = [(25, 30), (50, 65, {"name": "cudaDeviceSynchronize", "syncs": True})]
    host, _ = dependencies.add_waits(calls(rows), work([(0, 40, 45)]), events())
    assert (host["own"].iloc[1], host["tail"].iloc[1], host["waited"].iloc[1]) == (15, 15, 0)


def test_a_copy_that_was_done_as_its_call_returned_was_waited_for() -> None:
    rows = [(0, 10, COPY), (20, 100, COPY), (110, 130, COPY)]
    gpu = work([(0, 5, 11), (1, 30, 100), (2, 131, 140)])
    host, _ = dependencies.add_waits(calls(rows), gpu, events())
    assert host["wait"].tolist() == [NOTHING, OPERATION, NOTHING]
    assert host["target"].tolist() == [-1, 1, -1]
    # A kernel that was over in its call was not.
    host, _ = dependencies.add_waits(calls([(0, 90)]), work([(0, 30, 90)]), events())
    assert host["wait"].tolist() == [NOTHING]


def test_waits_for_streams_and_for_all_end_with_what_was_launched_before() -> None:
    """Streams 7 and 20 until 100 and 300; a kernel on 7 until 150 is launched later."""
    rows = [(0, 1), (2, 3), (50, 120), (125, 126)]
    gpu = work([(0, 10, 100), (1, 10, 300, {"stream": 20}), (3, 130, 150)])
    wait, target = np.zeros(4, dtype=np.int64), np.full(4, -1)
    for what, aim, end, expected in ((STREAM, 7, 120, 100), (STREAM, 20, 320, 300), (ALL, -1, 320, 300),
                                     (OPERATION, 0, 120, 100), (ALL, -1, 300, 300),
                                     (ALL, -1, 299, -np.inf)):  # fmt: skip
        wait[2], target[2] = what, aim
        rows[2] = (50, end)
        assert dependencies._until(calls(rows), gpu, wait, target).tolist() == [-np.inf, -np.inf, expected, -np.inf]
