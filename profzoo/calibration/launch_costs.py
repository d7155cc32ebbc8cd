"""Measures what one kernel launch costs under a profiler.

`python -m profzoo.calibration.launch_costs --facts facts.json` launches a few kernels.

ncu repeats a launch within the launching call, so the host's clock measures all passes. Between profiler start and
stop, LAUNCHES kernels are launched, alternating between matrix products and elementwise kernels.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from profzoo.calibration import peaks
from profzoo.errors import ConfigError
from profzoo.harness.observers import recorders
from profzoo.machine import job_child

LAUNCHES = 8
# The first profiled launches also set up what is collected.
SET_UP = 2
# Size of a matrix product that takes some 0.1 ms; memory as of a small network is saved and restored with it.
ORDER, MEMORY_BYTES = 1024, 1 << 28


def time_launches(device: torch.device) -> list[float]:
    """Return the seconds of each of LAUNCHES launches, from the call until the device has finished."""
    small = device.type != "cuda"
    left = torch.rand(ORDER // 8 if small else ORDER, ORDER // 8 if small else ORDER, device=device)
    held = torch.zeros(1 if small else MEMORY_BYTES, dtype=torch.uint8, device=device)
    result, clock = torch.empty_like(left), recorders.timer_of(device)
    works = (lambda: torch.mm(left, left, out=result), lambda: torch.add(left, result, out=result))
    for work in works:
        work()
    clock.wait()
    if device.type == "cuda":
        torch.cuda.profiler.start()
    times = []
    for number in range(LAUNCHES):
        began = clock.now()
        works[number % 2]()
        clock.wait()
        times.append((clock.now() - began) / 1e9)
    if device.type == "cuda":
        torch.cuda.profiler.stop()
    assert held.numel()
    return times


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    job_child.enter_job()
    parser = argparse.ArgumentParser(prog="python -m profzoo.calibration.launch_costs", description=__doc__)
    parser.add_argument("--facts", type=Path, required=True, metavar="FILE", help="JSON: seconds per launch, versions")
    try:
        options, device = peaks.parse_with_device(parser, arguments)
    except ConfigError as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 2
    times = time_launches(device)
    facts = {
        **peaks.describe_run(options.device, device),
        "launches_s": [round(time, 6) for time in times],
        "launch_s": round(statistics.median(times[SET_UP:]), 6),
    }
    options.facts.write_text(json.dumps(facts, indent=1) + "\n")
    print(f"on {facts['device']}: {facts['launch_s']} s per launch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
