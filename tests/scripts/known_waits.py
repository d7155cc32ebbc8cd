"""A program whose steps wait for known times: it sleeps, waits for a lock, reads a pipe, polls, and computes.

It writes what its own clocks measured to a file, per step in ns: the wall time of each wait, the CPU time of the thread
that runs the steps, how often it left the CPU, and the numbers of its threads. With `--device cuda` it launches a
kernel after each wait, and autograd's thread sleeps in a backward pass before it launches.
"""

import argparse
import json
import os
import resource
import select
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nvtx

SLEEP_S, LOCK_S, READ_S, POLL_MS, SPIN_NS, BACKWARD_S = 0.05, 0.03, 0.02, 10, 20_000_000, 0.04
PIPE = "requests"


def count_switches() -> int:
    """How often this thread has left the CPU, as the kernel counts it."""
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_nvcsw + used.ru_nivcsw


class Helper(threading.Thread):
    """A thread that does something each time it is told to."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.told, self.work = threading.Event(), work

    def run(self) -> None:
        while True:
            self.told.wait()
            self.told.clear()
            self.work()


class Steps:
    """The steps, and what they measured.

    device: `cpu`, or the device that kernels and backward passes run on.
    """

    def __init__(self, device: str) -> None:
        self.measured: dict[str, list[int]] = defaultdict(list)
        self.autograd = 0
        launch, self.backward = on_gpu(device, self.sleep_in_backward) if device != "cpu" else ((lambda: None), None)
        self.lock, self.held, self.launch = threading.Lock(), threading.Event(), launch
        # A pipe with a name, which nsys may tell; opened for both, as opening it for one would wait for the other.
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(f"{folder}/{PIPE}")
            self.pipe = os.open(f"{folder}/{PIPE}", os.O_RDWR)
        self.holder, self.writer = Helper(self.hold), Helper(self.write)
        self.holder.start()
        self.writer.start()
        self.poll = select.poll()
        self.poll.register(self.pipe, select.POLLIN)

    def hold(self) -> None:
        with self.lock:
            self.held.set()
            time.sleep(LOCK_S)

    def write(self) -> None:
        time.sleep(READ_S)
        os.write(self.pipe, b"x")

    def sleep_in_backward(self) -> None:
        begin, self.autograd = time.perf_counter_ns(), threading.get_native_id()
        time.sleep(BACKWARD_S)
        self.measured["backward"].append(time.perf_counter_ns() - begin)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        begin = time.perf_counter_ns()
        yield
        self.measured[name].append(time.perf_counter_ns() - begin)
        self.launch()

    def run(self) -> None:
        begin, left = time.thread_time_ns(), count_switches()
        with self.timed("sleep"):
            time.sleep(SLEEP_S)
        self.holder.told.set()
        with self.timed("lock"):
            self.held.wait()
            self.held.clear()
            with self.lock:
                pass
        self.writer.told.set()
        with self.timed("read"):
            os.read(self.pipe, 1)
        with self.timed("poll"):
            self.poll.poll(POLL_MS)
        with self.timed("spin"):
            end = time.perf_counter_ns() + SPIN_NS
            while time.perf_counter_ns() < end:
                pass
        if self.backward:
            self.backward()
        self.measured["cpu"].append(time.thread_time_ns() - begin)
        self.measured["switches"].append(count_switches() - left)


def on_gpu(device: str, sleep: Callable[[], object]) -> tuple[Callable[[], object], Callable[[], object]]:
    """What launches a kernel, and what runs a backward pass in which autograd's thread sleeps, then launches."""
    import torch

    class SlowBackward(torch.autograd.Function):
        @staticmethod
        def forward(context: object, given: torch.Tensor) -> torch.Tensor:
            return given * 2

        @staticmethod
        def backward(context: object, gradient: torch.Tensor) -> torch.Tensor:
            sleep()
            return gradient * 2

    numbers = torch.ones(1024, device=device)
    weights = torch.ones(1024, device=device, requires_grad=True)

    def backward() -> None:
        weights.grad = None
        SlowBackward.apply(weights).sum().backward()

    return (lambda: numbers.add_(1)), backward


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=0, help="go on for so long instead")
    parser.add_argument("--measured", type=Path)
    given = parser.parse_args()
    steps = Steps(given.device)
    # Threads, CUDA and its kernels are started before anything counts.
    steps.run()
    time.sleep(SLEEP_S)
    steps.measured.clear()
    until = time.monotonic() + given.seconds
    with nvtx.annotate("profzoo_window", domain="profzoo"):
        done = 0
        while done < given.steps or time.monotonic() < until:
            with nvtx.annotate("profzoo_step", domain="profzoo"):
                steps.run()
            done += 1
    # All kernels have run by now.
    time.sleep(SLEEP_S)
    if given.measured:
        threads = {"holder": steps.holder.native_id, "writer": steps.writer.native_id, "main": os.getpid()}
        threads |= {"autograd": steps.autograd} if given.device != "cpu" else {}
        given.measured.write_text(json.dumps(steps.measured | {"threads": threads}))


if __name__ == "__main__":
    main()
