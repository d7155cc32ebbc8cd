"""Which calls of a trace waited, for what and how long, on calls whose times are worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from profzoo.what_if import blocking_calls
from profzoo.what_if.trace_events import CONTEXT_SYNC, EVENT_SYNC, NONE, STREAM_SYNC, Events
from tests.written_traces import calls, events, work

SYNC = {"name": "cudaStreamSynchronize_v3020", "syncs": True}
COPY = {"name": "cudaMemcpyAsync_v3020", "copies": True}


def queue(room: int, every: float, own: float, before: float, until: float = 0.0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """200 launches into a queue of so many; the GPU begins one every so many ns, the CPU makes one in `before` + `own`.

    until: when the last row ends, which is no launch.
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
    _, found = blocking_calls.add_waits(host, gpu, events())
    assert found["room"].tolist() == [70] * 70 + [71] + [70] * 129
    assert found["issued"].tolist()[:3] == [5, 15, 25] and found["issued"].tolist()[70:73] == [705, 1_010, 2_010]


@pytest.mark.parametrize(("room", "known"), [(64, True), (63, False)])
def test_a_queue_of_fewer_than_64_is_never_full(room: int, known: bool) -> None:
    _, found = blocking_calls.add_waits(*queue(room, 1_000, 5, 5), events())
    assert found["room"].iloc[-1] == (room if known else 1_024)


@pytest.mark.parametrize(("every", "known"), [(211, True), (210, False)])
def test_calls_that_waited_took_more_than_twice_as_long(every: float, known: bool) -> None:
    """100 ns without a wait, 10 ns apart; 201 or 200 with one."""
    _, found = blocking_calls.add_waits(*queue(70, every, 100, 10), events())
    assert found["room"].iloc[-1] == (70 if known else 1_024)


@pytest.mark.parametrize(("part", "known"), [(0.021, True), (0.019, False)])
def test_a_queue_is_full_where_waits_for_it_are_a_fiftieth_of_the_steps(part: float, known: bool) -> None:
    """129 calls, those of launches 71 to 199, last from 710 to 129,015 ns; 10 ns of each are the CPU's own."""
    host, gpu = queue(70, 1_000, 5, 5)
    took = (host["end"] - host["start"]).iloc[71:200].sum() - 129 * 5
    assert took == 129_015 - 710 - 129 * 10
    host, gpu = queue(70, 1_000, 5, 5, until=5 + took / part)
    _, found = blocking_calls.add_waits(host, gpu, events())
    assert found["room"].iloc[-1] == (70 if known else 1_024)


@pytest.mark.parametrize(("part", "known"), [(0.021, True), (0.019, False)])
def test_of_several_steps_three_in_four_count(part: float, known: bool) -> None:
    """In the first of two waits come to 29,015 - 710 - 290 ns, in the second to 100,000 - 1,000: 81,253.75 between."""
    host, gpu = queue(70, 1_000, 5, 5, until=5 + 2 * 81_253.75 / part)
    _, found = blocking_calls.add_waits(host.assign(step=[0] * 100 + [1] * 101), gpu, events())
    assert found["room"].iloc[-1] == (70 if known else 1_024)


def test_what_waited_for_room_is_blocked_until_it_found_it() -> None:
    host, _ = blocking_calls.add_waits(*queue(70, 1_000, 5, 5), events())
    assert host["waited"].tolist()[69:73] == [0, 0, 1_010 - 715, 2_010 - 1_020] and (host["own"].iloc[:200] == 5).all()


def staged(start: float, end: float, left: float, done: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A copy that leaves the buffer at a time, and the call of the next, which is done later."""
    crossing = {"crossing": True}
    return blocking_calls.add_waits(calls([(0, 10, COPY), (start, end, COPY)]),
                         work([(0, 5, left, crossing), (1, left + 1, done, crossing)]), events())  # fmt: skip


@pytest.mark.parametrize(
    ("start", "end", "left", "done", "waits"),
    [
        (20, 200_050, 200_000, 300_000, blocking_calls.BEFORE),
        # 100 us and no more are no wait.
        (20, 200_050, 100_020, 300_000, blocking_calls.NOTHING),
        (20, 200_050, 100_021, 300_000, blocking_calls.BEFORE),
        # What returns as the one before is done waited for no buffer.
        (20, 200_000, 200_000, 300_000, blocking_calls.NOTHING),
        (20, 200_001, 200_000, 300_000, blocking_calls.BEFORE),
        # What returns as its own copy is done waited for that.
        (20, 300_000, 200_000, 300_000, blocking_calls.OPERATION),
        (20, 299_999, 200_000, 300_000, blocking_calls.BEFORE),
    ],
)
def test_a_copy_waits_for_the_buffer(start: float, end: float, left: float, done: float, waits: int) -> None:
    host, gpu = staged(start, end, left, done)
    assert host["wait"].tolist() == [blocking_calls.NOTHING, waits]
    assert host["target"].tolist() == [
        -1,
        {blocking_calls.BEFORE: 0, blocking_calls.NOTHING: -1, blocking_calls.OPERATION: 1}[waits],
    ]
    if waits == blocking_calls.BEFORE:
        assert gpu["issued"].tolist() == [0, left]
        assert host["own"].tolist() == [10, end - left] and host["waited"].tolist() == [0, left - start]


@pytest.mark.parametrize(("begun", "waits"), [(500_100, blocking_calls.BEFORE), (900_000, blocking_calls.NOTHING)])
def test_a_copy_that_began_before_its_call_returned_waited_for_what_was_before_it(begun: float, waits: int) -> None:
    """A kernel until 500,000; the call takes from 100 to 900,000, and its copy is done at 900,010."""
    rows = [(0, 10, COPY), (20, 30), (100, 900_000, COPY)]
    crossing = {"crossing": True}
    gpu = work([(0, 5, 50, crossing), (1, 50, 500_000), (2, begun, 900_010, crossing)])
    host, _ = blocking_calls.add_waits(calls(rows), gpu, events())
    assert (host["wait"].iloc[2], host["target"].iloc[2]) == (waits, 1 if waits else -1)


def test_copies_of_other_streams_or_on_the_gpu_have_other_buffers() -> None:
    rows = [(0, 10, COPY), (20, 200_050, COPY)]
    for first, second in (({"crossing": True}, {"crossing": True, "stream": 20}), ({"crossing": True}, {}),
                          ({}, {"crossing": True})):  # fmt: skip
        gpu = work([(0, 5, 200_000, first), (1, 200_001, 300_000, second)])
        host, _ = blocking_calls.add_waits(calls(rows), gpu, events())
        assert (host["wait"] == blocking_calls.NOTHING).all()
    # A kernel whose call is none of a copy's goes through no buffer.
    host, _ = blocking_calls.add_waits(calls([rows[0], (20, 200_050)]), work([(0, 5, 200_000, {"crossing": True}),
                            (1, 200_001, 300_000, {"crossing": True})]), events())  # fmt: skip
    assert (host["wait"] == blocking_calls.NOTHING).all()


def synchronised(name: str, told: Events | None = None, end: float = 310, launched: int = 3) -> tuple[int, int]:
    """What a call waits for that starts at 50, behind work on streams 7, 20 and 7 until 100, 300 and 200.

    launched: how many of these come before it.
    """
    rows = [(place, place + 1) for place in range(3)]
    rows.insert(launched, (50, end, {"name": name, "syncs": True}))  # type: ignore[arg-type]
    places = [place for place in range(4) if place != launched]
    gpu = work([(places[0], 10, 100), (places[1], 10, 300, {"stream": 20}), (places[2], 100, 200)])
    host, _ = blocking_calls.add_waits(calls(rows), gpu, told or events())
    return host["wait"].iloc[launched], host["target"].iloc[launched]


def test_what_a_call_synchronises_with_is_what_the_trace_says() -> None:
    for name in ("cudaDeviceSynchronize", "cuCtxSynchronize", "cudaFree_v3020", "cuMemFree_v2"):
        assert synchronised(name) == (blocking_calls.ALL, -1)
    assert synchronised("cudaOther", events([(30, CONTEXT_SYNC, NONE, NONE, NONE)])) == (blocking_calls.ALL, -1)
    assert synchronised("cudaOther", events([(30, STREAM_SYNC, 7, NONE, NONE)])) == (blocking_calls.STREAM, 7)
    # Event 5 was recorded on stream 7 by the second call, after the first kernel.
    assert synchronised("cudaEventSynchronize", events([(30, EVENT_SYNC, NONE, 5, 0)], [(10, 7, 5, 0)])) == (
        blocking_calls.OPERATION, 0,
    )  # fmt: skip
    # Of other kinds the event says nothing.
    assert synchronised("cudaEventSynchronize", events([(30, 9, NONE, 5, 0)], [(10, 7, 5, 0)])) == (
        blocking_calls.OPERATION,
        1,
    )


def test_what_the_trace_does_not_say_is_what_ended_last_before() -> None:
    assert synchronised("cudaStreamSynchronize") == (blocking_calls.STREAM, 20)
    assert synchronised("cudaEventSynchronize") == (blocking_calls.OPERATION, 1)
    # What ends with it counts, and what ends later does not.
    assert synchronised("cudaStreamSynchronize", end=300) == (blocking_calls.STREAM, 20)
    assert synchronised("cudaStreamSynchronize", end=299) == (blocking_calls.STREAM, 7)
    # The first kernel is not the last on its stream.
    assert synchronised("cudaStreamSynchronize", end=199) == (blocking_calls.OPERATION, 0)
    assert synchronised("cudaStreamSynchronize", end=99) == (blocking_calls.NOTHING, -1)
    # What is launched later is not waited for: the first alone, or nothing at all.
    assert synchronised("cudaStreamSynchronize", launched=1) == (blocking_calls.STREAM, 7)
    assert synchronised("cudaStreamSynchronize", launched=0) == (blocking_calls.NOTHING, -1)
    assert synchronised("cudaDeviceSynchronize", launched=0) == (blocking_calls.NOTHING, -1)
    # A stream that has had nothing yet, and one that is unknown.
    assert synchronised("cudaStreamSynchronize", events([(10, STREAM_SYNC, 20, NONE, NONE)]), launched=1) == (
        blocking_calls.STREAM, 7,
    )  # fmt: skip
    assert synchronised("cudaStreamSynchronize", events([(30, STREAM_SYNC, 9, NONE, NONE)])) == (
        blocking_calls.STREAM,
        20,
    )


def test_a_wait_is_what_a_call_takes_beyond_others_of_its_name() -> None:
    """One of 20 ns that has nothing to wait for; one from 50 to 310, until 300; one of 15 for what is long over."""
    rows = [(0, 20, SYNC), (25, 30), (50, 310, SYNC), (320, 335, SYNC), (340, 343)]
    host, _ = blocking_calls.add_waits(calls(rows), work([(1, 40, 300)]), events())
    assert host["wait"].tolist() == [
        blocking_calls.NOTHING,
        blocking_calls.NOTHING,
        blocking_calls.STREAM,
        blocking_calls.STREAM,
        blocking_calls.NOTHING,
    ]
    assert host["own"].tolist() == [20, 5, 20, 15, 3]
    assert host["tail"].tolist() == [0, 0, 10, 10, 0]
    assert host["waited"].tolist() == [0, 0, 240, 0, 0]


def test_a_wait_of_which_no_other_call_tells_takes_the_usual_time() -> None:
    """5 us are its own, and the rest of 100 is wait; a call that is shorter than that did not wait for long."""
    for end, own in ((100_050, 5_000), (3_050, 3_000)):
        rows = [(25, 30), (50, end, {"name": "cudaDeviceSynchronize", "syncs": True})]
        host, _ = blocking_calls.add_waits(calls(rows), work([(0, 40, end - 50)]), events())
        assert host["own"].tolist() == [5, own] and host["waited"].tolist() == [0, end - 50 - own]
        assert host["tail"].tolist() == [0, 50]


def test_where_none_waited_a_tail_is_what_a_call_takes() -> None:
    rows = [(25, 30), (50, 65, {"name": "cudaDeviceSynchronize", "syncs": True})]
    host, _ = blocking_calls.add_waits(calls(rows), work([(0, 40, 45)]), events())
    assert (host["own"].iloc[1], host["tail"].iloc[1], host["waited"].iloc[1]) == (15, 15, 0)


def test_a_copy_that_was_done_as_its_call_returned_was_waited_for() -> None:
    rows = [(0, 10, COPY), (20, 100, COPY), (110, 130, COPY)]
    gpu = work([(0, 5, 11), (1, 30, 100), (2, 131, 140)])
    host, _ = blocking_calls.add_waits(calls(rows), gpu, events())
    assert host["wait"].tolist() == [blocking_calls.NOTHING, blocking_calls.OPERATION, blocking_calls.NOTHING]
    assert host["target"].tolist() == [-1, 1, -1]
    # A kernel that was over in its call was not.
    host, _ = blocking_calls.add_waits(calls([(0, 90)]), work([(0, 30, 90)]), events())
    assert host["wait"].tolist() == [blocking_calls.NOTHING]


def test_waits_for_streams_and_for_all_end_with_what_was_launched_before() -> None:
    """Streams 7 and 20 until 100 and 300; a kernel on 7 until 150 is launched later."""
    rows = [(0, 1), (2, 3), (50, 120), (125, 126)]
    gpu = work([(0, 10, 100), (1, 10, 300, {"stream": 20}), (3, 130, 150)])
    wait, target = np.zeros(4, dtype=np.int64), np.full(4, -1)
    for what, aim, end, expected in ((blocking_calls.STREAM, 7, 120, 100), (blocking_calls.STREAM, 20, 320, 300), (blocking_calls.ALL, -1, 320, 300),
                                     (blocking_calls.OPERATION, 0, 120, 100), (blocking_calls.ALL, -1, 300, 300),
                                     (blocking_calls.ALL, -1, 299, -np.inf)):  # fmt: skip
        wait[2], target[2] = what, aim
        rows[2] = (50, end)
        assert blocking_calls._until(calls(rows), gpu, wait, target).tolist() == [-np.inf, -np.inf, expected, -np.inf]
