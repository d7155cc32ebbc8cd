"""Runs a resolved cell: its network, its steps, what watches them, and what a reader of the numbers wants to know."""

import argparse
import platform
import resource
from collections.abc import Mapping
from typing import Any

import torch

from profzoo.cell.spread import processes
from profzoo.harness import devices, distributed, fitting, interface, loop, recorders


def fitted(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The cell with the largest batch that fits into memory, by halving; ConfigError where not even one sample does."""
    device, model = loop.device_of(cell), interface.load(cell["module"])
    return fitting.fit(cell, lambda smaller: loop.rehearse(smaller, model, device))


def run(cell: Mapping[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Run the cell and return what a reader of its numbers wants to know; only the first rank says it, and writes."""
    # Here, so that a mistyped command line is answered without the seconds that importing torch takes.
    if cell["threads"]:
        torch.set_num_threads(cell["threads"])
    rank, device = distributed.rank(cell), loop.device_of(cell)
    cuda = device.type == "cuda"
    model = interface.load(cell["module"])
    with distributed.group(cell, device):
        network = loop.network_of(cell, model, device, options.load)
        recorder = recorders.Recorder(device)
        if options.steps and not rank:
            recorder = recorders.StepTimer(device, options.steps)
        elif options.trace and not rank:
            profiler = cell["profiler"]
            recorder = recorders.TorchProfiler(device, profiler, cell["window"], options.operators, options.trace)
        outcome = loop.run(cell, network, device, recorder)
        memory = torch.cuda.max_memory_allocated(device) if cuda else None
        own = {"rank": rank, "host": platform.node(), "step_ns": recorder.step_ns, "peak_memory_bytes": memory}
        own["device_uuid"] = devices.uuid(device)
        ranks = distributed.gathered(cell, own)
    if rank:
        return {}
    if options.save:
        torch.save(network.state_dict(), options.save)
    return {
        "device": torch.cuda.get_device_name(device) if cuda else f"CPU, {torch.get_num_threads()} threads",
        "device_type": device.type,
        "device_uuid": devices.uuid(device),
        "device_why": devices.why_cpu(cell["device"], device),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if cuda else None,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
        "parameters": outcome.parameters,
        "batch": cell["batch"],
        "steps": recorder.steps,
        "items": recorder.steps * cell["batch"] * processes(cell),
        "loss": outcome.loss,
        "step_ns": recorder.step_ns,
        "window_began_ns": recorder.window_began_ns,
        "window_wall_ns": recorder.window_wall_ns,
        "peak_memory_bytes": memory,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        **({"ranks": ranks} if len(ranks) > 1 else {}),
    }
