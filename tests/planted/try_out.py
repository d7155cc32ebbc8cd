"""Tries planted cases out on a GPU in seconds each: what a step takes, what mending gains, whether a graph captures it.

python -m tests.planted.try_out --half development [--cases a,b] [--device cpu]

No tool runs and no verdict is made, so that sizes may be chosen by this in either half. Each case runs in a child that is
forked before CUDA is used: a capture that fails leaves nothing behind, and imports are paid for once.
"""

import argparse
import importlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from profzoo.cell import settings
from profzoo.cell.cell_types import CellSettings
from profzoo.config import configuration
from profzoo.errors import first_error_line
from profzoo.harness import interface
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import step_loop
from profzoo.harness.step.batches import iterate_batches
from tests.planted import configuration as planted
from tests.planted.cases import GROUPS, Case
from tests.planted.collect import choose_cases

# What a case should be: ms of a step, what mending gains at least, and bytes of memory.
STEP_MS, LEAST_GAIN, MOST_BYTES = (5.0, 60.0), 1.1, 20 << 30
# Children that try a capture at a time.
CAPTURING = 6
# Seconds after which a child is ended.
PATIENCE_S = 90.0


@dataclass(frozen=True)
class Tried:
    """Median step in ms, peak of the allocator in bytes (0 on a CPU), and the last loss; nan if there is none."""

    step_ms: float
    peak_bytes: int
    loss: float


def resolve(case: Case, name: str, device: str) -> CellSettings:
    """The cell of a case or its twin; on a CPU of the tiny size."""
    tiny = device == "cpu"
    config = configuration.normalise_config(planted.given([case], tiny))
    return settings.resolve_cell(name, case.phase, "time", config) | {"device": device}


def run_steps(cell: CellSettings) -> Tried:
    """Run the steps of a cell as a job of `time` would, without its recorder."""
    device, model = torch.device(cell["device"]), interface.load_functions(cell["module"])
    network = step_loop.make_network(cell, model, device, None)
    repeated = step_loop.make_step(cell, model, network, device, Ranges())
    batches, marks, last = iter(iterate_batches(cell, model)), [mark(device)], None
    for _ in range(cell["steps"]):
        last = repeated.step(repeated.transfer(next(batches), device))
        marks.append(mark(device))
    if device.type == "cuda":
        torch.cuda.synchronize()
    steps = [between(one, other) for one, other in pairwise(marks)][cell["warmup"] :]
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    loss = float(last) if isinstance(last, torch.Tensor) and last.numel() == 1 else float("nan")
    return Tried(float(np.median(steps)), peak, loss)


def mark(device: torch.device) -> float | torch.cuda.Event:
    """A moment on the device: of the clock in ms, or an event."""
    if device.type == "cpu":
        return time.perf_counter() * 1e3
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between(one: float | torch.cuda.Event, other: float | torch.cuda.Event) -> float:
    """Milliseconds from one moment to another."""
    if isinstance(one, torch.cuda.Event) and isinstance(other, torch.cuda.Event):
        return one.elapsed_time(other)
    return float(other) - float(one)


def time_case(case: Case, device: str) -> tuple[Tried, Tried] | str:
    """What a case and its twin take, or why they do not run."""
    try:
        one = run_steps(resolve(case, case.name, device))
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        return one, run_steps(resolve(case, case.twin, device))
    except Exception as error:
        return f"{type(error).__name__}: {first_error_line(error)}"


def capture_case(case: Case, device: str) -> str:
    """Empty if a graph captures the step as it stands, else why it does not."""
    try:
        run_steps(resolve(case, case.name, device) | {"graph": True})
    except Exception as error:
        return f"{type(error).__name__}: {first_error_line(error)}"
    return ""


def answer(sending: Connection, what: Callable[[Case], Any], case: Case) -> None:
    sending.send(what(case))


def in_a_child(what: Callable[[Case], Any], start: str, case: Case) -> Any:
    """What comes of a case in a child of its own, which may have children itself; start: method of multiprocessing."""
    context = multiprocessing.get_context(start)
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=answer, args=(sending, what, case))
    child.start()
    sending.close()
    found = "it took too long"
    if receiving.poll(PATIENCE_S):
        try:
            found = receiving.recv()
        except EOFError:
            found = "its process died"
    else:
        child.kill()
    child.join()
    return found


def try_each(cases: Sequence[Case], what: Callable[[Case], Any], at_a_time: int, start: str = "fork") -> Iterator[Any]:
    """What comes of each case, in order."""
    with ThreadPoolExecutor(at_a_time) as pool:
        yield from pool.map(partial(in_a_child, what, start), cases)


def judge(case: Case, found: tuple[Tried, Tried] | str) -> str:
    """A line about the times of a case, and what is not as it should be."""
    if isinstance(found, str):
        return f"{case.name}: FAILED {found}"
    one, other = found
    gain, peak = one.step_ms / other.step_ms, max(one.peak_bytes, other.peak_bytes)
    wrong = [] if STEP_MS[0] <= one.step_ms <= STEP_MS[1] else ["step"]
    wrong += ["gain"] if gain < LEAST_GAIN else []
    wrong += ["memory"] if peak > MOST_BYTES else []
    wrong += ["loss"] if abs(one.loss - other.loss) > 0.05 * abs(other.loss) else []
    said = f"{one.step_ms:.2f} ms, mended {other.step_ms:.2f} ms, {gain:.2f} times, {peak / 2**30:.1f} GiB"
    return (
        f"{case.name}: {said}, loss {one.loss:.4g} and {other.loss:.4g}{'  CHECK ' if wrong else ''}{', '.join(wrong)}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.planted.try_out")
    parser.add_argument("--half", choices=GROUPS, required=True)
    parser.add_argument("--cases", default="", help="names, separated by commas")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--start", choices=["fork", "spawn"], default="fork", help="spawn imports anew for each case")
    options = parser.parse_args(arguments)
    # A parent that counts GPUs by the driver could not have children that use them.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    cases = choose_cases(options.half, options.cases)
    # What the first optimizer imports; children would each do it again.
    importlib.import_module("torch._dynamo")
    for case in cases:
        interface.load_functions(case.module)
    for case, found in zip(
        cases, try_each(cases, partial(time_case, device=options.device), 1, options.start), strict=True
    ):
        print(judge(case, found), flush=True)
    if options.device == "cuda":
        for case, why in zip(
            cases, try_each(cases, partial(capture_case, device="cuda"), CAPTURING, options.start), strict=True
        ):
            agrees = case.graph_possible is None or case.graph_possible == (not why)
            print(f"{case.name}: {why or 'captured'}{'' if agrees else '  CHECK graph_possible'}", flush=True)


if __name__ == "__main__":
    main()
