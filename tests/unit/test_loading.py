"""What workers, and the cores that they share with the step, take at least: against loaders run event by event."""

import heapq
from math import inf

import pytest

from profzoo.what_if.loading import BYTE_NS, HANDOVER_NS, Loading


def run_loader(workers: int, load_ns: float, rest_ns: float, steps: int = 400) -> float:
    """Return ns per step of a process whose workers load batches in turn, each asked for two at a time."""
    free, taken = [0.0] * workers, [0.0] * steps
    now = 0.0
    for batch in range(steps):
        # A worker is asked for a batch when its batch before last is taken.
        asked = taken[batch - 2 * workers] if batch >= 2 * workers else 0.0
        free[batch % workers] = max(free[batch % workers], asked) + load_ns
        taken[batch] = max(now, free[batch % workers])
        now = taken[batch] + rest_ns
    return (now - taken[steps // 4]) / (steps - steps // 4)


def run_cores(cores: int, works: list[float]) -> float:
    """Return the time per round in which cores do these works over and over, whatever core is free takes the next."""
    busy, rounds = [0.0] * cores, 2000
    for _ in range(rounds):
        for work in works:
            heapq.heappush(busy, heapq.heappop(busy) + work)
    return max(busy) / rounds


@pytest.mark.parametrize(("load_ns", "rest_ns"), [(49e6, 4e6), (49e6, 30e6), (5e6, 30e6), (8e6, 1e6)])
@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_a_step_waits_for_the_slower_of_its_workers_and_its_rest(load_ns: float, rest_ns: float, workers: int) -> None:
    known = Loading(load_ns, rest_ns, cores=1e6)
    assert max(rest_ns, known.least_step_ns(workers)) == pytest.approx(run_loader(workers, load_ns, rest_ns), rel=0.02)


@pytest.mark.parametrize(
    ("cores", "load_ns", "rest_ns"), [(1, 8e6, 3e6), (2, 40e6, 4e6), (2, 40e6, 60e6), (4, 79e6, 4e6)]
)
def test_cores_do_the_work_of_all_processes(cores: int, load_ns: float, rest_ns: float) -> None:
    known = Loading(load_ns, rest_ns, cores=cores)
    assert known.least_step_ns(10**6) == pytest.approx(run_cores(cores, [load_ns, rest_ns, HANDOVER_NS]), rel=0.02)


def test_a_large_batch_goes_through_shared_memory_twice() -> None:
    """Each side copies 32 MB: 6.4 ms at 0.2 ns per byte; what keeps three cores busy takes one worker thrice as long."""
    size = 32e6
    large = Loading(40e6, 20e6, batch_bytes=size, cores=2.0)
    assert large.handover_ns == HANDOVER_NS + size * BYTE_NS == 7.4e6
    assert large.least_step_ns(8) == (40e6 + 20e6 + 7.4e6 + 6.4e6) / 2 and large.least_step_ns(1) == 46.4e6
    threads = Loading(40e6, 20e6, loading_cores=3.0, cores=64.0)
    assert threads.least_step_ns(2) == 60e6 and threads.resize("workers=4") == "workers=6"


@pytest.mark.parametrize(
    ("given", "words", "found"),
    [
        ({}, "workers=4 pin_memory=true", "workers=4 pin_memory=true"),
        ({"rest_ns": 40e6}, "workers=4 pin_memory=true", "workers=2 pin_memory=true"),
        ({"cores": 64.0}, "workers=4", "workers=20"),
        # As many as keep four cores busy, the step included; of loading that waits, as many as it takes, but not any.
        ({"cores": 4.0}, "workers=4", "workers=4"),
        ({"cores": 4.0, "loading_cores": 0.1}, "workers=4", "workers=20"),
        ({"cores": 4.0, "loading_cores": 0.1, "rest_ns": 1e6}, "workers=4", "workers=32"),
        ({"workers": 4, "cores": 4.0}, "workers=8", None),
        ({"workers": 4, "cores": 8.0}, "workers=8", "workers=8"),
        ({}, "pin_memory=true", "pin_memory=true"),
    ],
)
def test_as_many_workers_are_offered_as_help(given: dict[str, float], words: str, found: str | None) -> None:
    known = {"batch_ns": 79e6, "rest_ns": 4e6, **given}
    assert Loading(**known).resize(words) == found  # type: ignore[arg-type]


def test_with_workers_on_a_batch_takes_at_most_a_step_for_each() -> None:
    """A step of 20 ms that waits for four workers: each takes 80 ms; how much of a core they use is not known."""
    known = Loading(workers=4, loading_cores=0.01, cores=inf).of_step(20e6, 0.75)
    assert (known.batch_ns, known.rest_ns) == (80e6, 5e6) and known.least_step_ns(8) == 10e6
    assert known.describe().startswith("loading a batch takes at most 80 ms and the rest of the step 5 ms, so input")
    assert Loading(workers=4, loading_cores=0.01, cores=4.0).of_step(20e6, 0.75).least_step_ns(8) > 20e6
