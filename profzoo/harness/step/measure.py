"""Measures a resolved cell: runs its steps under a recorder and collects the facts for its sidecar."""

import argparse
import functools
import importlib
import json
import platform
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from profzoo.cell.process_count import batch_count
from profzoo.harness import devices, distributed, inspection, interface, observed_files
from profzoo.harness.observers import allocator, recorders
from profzoo.harness.source_places import PlaceFinder
from profzoo.harness.step import batches, double_precision, peak_memory, step_loop
from profzoo.harness.variants import batch_size, eight_bit_layers
from profzoo.machine import gpu_slots, time_slicing

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings
    from profzoo.cell.job_types import Compilation


# Tells what torch.compile compiled in this process: functions, lines, reasons to compile again, and graph breaks.
#
# torch keeps a record of each compilation (torch._dynamo.utils). Code behind a graph break is compiled as a function of
# its own, whose name and first line tell where the break is.

RECORDS = "torch._dynamo.utils"
RESUMED = "torch_dynamo_resume_in_"
# Most compilations that become facts, and the longest reason.
MOST, LONGEST = 100, 160


def read_compilations(window_began_ns: int, window_ns: int) -> "list[Compilation]":
    """Return the compilations of this process in their order; empty if nothing was compiled.

    window_began_ns: start of the window by the host's monotonic clock; window_ns: its duration.
    """
    began_ns = window_began_ns + time.time_ns() - time.perf_counter_ns()
    found: list[Compilation] = []
    records: Any = sys.modules.get(RECORDS)
    with suppress(Exception):
        finder = PlaceFinder()
        for one in records.get_compilation_metrics() if records else ():
            began = (one.start_time_us or 0) * 1000
            name = str(one.co_name)
            found.append(
                {
                    "function": name,
                    "file": finder.shorten(str(one.co_filename)),
                    "line": int(one.co_firstlineno or 0),
                    "resumed": name.startswith(RESUMED),
                    "why_again": _first_line(one.recompile_reason),
                    "seconds": (one.duration_us or 0) / 1e6,
                    "in_window": began_ns <= began <= began_ns + window_ns,
                }
            )
    return found[:MOST]


def _first_line(reason: str | None) -> str:
    """Return the first line of a reason without the number of the compiled code and the source line behind it.

    >>> _first_line("0/0: k == 3      # y = x * k  # model.py:4 in f"), _first_line(None)
    ('k == 3', '')
    """
    lines = (reason or "").strip().splitlines() or [""]
    number, colon, told = lines[0].partition(": ")
    text = told if colon and number.replace("/", "").isdigit() else lines[0]
    return text.partition("  #")[0].strip()[:LONGEST]


# Keeps a network that was built before a process was forked; each fork takes it instead of building it again.

# The network and the state of torch's generator after it was built, by all that the network depends on.
_kept: dict[str, tuple[nn.Module, torch.Tensor]] = {}


def keep_network(cell: "CellSettings", weights: Path | None) -> None:
    """Build the cell's network for forks, with one thread: a fork has no others, and could not use their pool."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        network = step_loop.build_network(cell, interface.load_functions(cell["module"]), weights)
    finally:
        torch.set_num_threads(threads)
    _kept[_key(cell, weights)] = network, torch.get_rng_state()


def take_network(cell: "CellSettings", model: interface.ModelFunctions, weights: Path | None) -> nn.Module:
    """Return the cell's network on the CPU, the kept one if it fits, with torch's generator as building leaves it."""
    kept = _kept.pop(_key(cell, weights), None)
    # Others would only take memory.
    _kept.clear()
    if not kept:
        return step_loop.build_network(cell, model, weights)
    torch.set_rng_state(kept[1])
    return kept[0]


def _key(cell: "CellSettings", weights: Path | None) -> str:
    return json.dumps([cell["module"], cell["shape"], cell["seed"], str(weights)], sort_keys=True)


def fit_batch(cell: "CellSettings") -> "CellSettings":
    """The cell with the largest batch that fits into memory, by halving; ConfigError where not even one sample does."""
    gpu_slots.wait_for_turn()
    device, model = step_loop.choose_cell_device(cell), interface.load_functions(cell["module"])
    return batch_size.fit_batch(cell, lambda smaller: step_loop.rehearse(smaller, model, device))


def follow_files() -> None:
    """Note what torch reads and writes without Python, if the files of this process are noted."""
    observed_files.follow_torch(torch)


def import_lazy_parts(cell: "CellSettings") -> None:
    """Import what torch imports with the first optimizer: a second's work that needs no GPU."""
    if cell["phase"] == "train":
        importlib.import_module("torch._dynamo")


def run_cell(cell: "CellSettings", options: argparse.Namespace) -> dict[str, Any]:
    """Run the cell and return its facts; only the first rank prints and writes."""
    # Imported here: a mistyped command line gets its answer before torch is imported, which takes seconds.
    model, network = _build(cell, options)
    gpu_slots.wait_for_turn()
    rank, device = distributed.read_rank(cell), step_loop.choose_cell_device(cell)
    with distributed.join_group(cell, device):
        allocator.start_history(cell, device)
        network = step_loop.set_up_network(network, cell, device)
        timer, recorder = _watching(cell, options, rank, device)
        recorder.least_s = options.at_least_s
        outcome = step_loop.run_steps(cell, network, device, recorder, timer)
        peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        own = {"rank": rank, "host": platform.node(), "step_ns": recorder.step_ns, "peak_memory_bytes": peak}
        own |= {"device_uuid": devices.read_uuid(device), **_sending(outcome)}
        ranks = distributed.gather_facts(cell, own)
        timed = distributed.gather_facts(cell, own | {"step_ns": timer.step_ns}) if timer else []
        if options.save:
            _save(network, cell, options.save, rank)
        # Run this extra step after all facts of the measured steps are taken.
        if repeated := outcome.repeated:
            recorder.explain(repeated.step)
        taken = _stock(cell, options, network, device, repeated, rank) if repeated and options.memory else None
        eight_bit = eight_bit_layers.describe_eight_bit_layers(network)
        # Delete DistributedDataParallel before the group ends: it would wait for processes that may have ended.
        outcome, repeated = replace(outcome, repeated=None), None
    if rank:
        return {}
    del network
    return {
        **devices.describe_machine(cell["device"], device),
        "parameters": outcome.parameters,
        **eight_bit,
        "batch": cell["batch"],
        "input": batches.describe_source(cell, model),
        "steps": recorder.steps,
        "items": recorder.steps * cell["batch"] * batch_count(cell),
        "loss": outcome.loss,
        **_numbers(cell, options, outcome, device, recorder),
        **outcome.seen,
        **recorders.describe_window(recorder),
        **_work(outcome, recorder),
        "peak_memory_bytes": peak,
        "peak_rss_bytes": resident,
        **({"memory": taken} if taken else {}),
        **({"roof": devices.measure_cpu_roof(cell["precision"])} if options.memory and device.type == "cpu" else {}),
        **({"ranks": ranks} if len(ranks) > 1 else {}),
        **({"baseline": _baseline(cell, timer, outcome, timed)} if isinstance(timer, recorders.StepTimer) else {}),
    }


def _sending(outcome: step_loop.RunOutcome) -> dict[str, Any]:
    """How gradients are sent between processes, while these still can; empty in inference and of one process."""
    trainer = outcome.repeated.trainer if outcome.repeated else None
    return {**distributed.describe_gradient_sync([trainer.network] if trainer else [])}


def _build(cell: "CellSettings", options: argparse.Namespace) -> tuple[interface.ModelFunctions, torch.nn.Module]:
    """Return the functions of a cell's model and its network on the CPU; no GPU is used."""
    if threads := cell["threads"] or time_slicing.count_threads(torch.get_num_threads()):
        torch.set_num_threads(threads)
    model = interface.load_functions(cell["module"])
    network = take_network(cell, model, options.load)
    import_lazy_parts(cell)
    return model, network


def _numbers(
    cell: "CellSettings",
    options: argparse.Namespace,
    outcome: step_loop.RunOutcome,
    device: torch.device,
    recorder: recorders.Recorder,
) -> dict[str, Any]:
    """What runs are compared by: their weights, numbers of outputs and first steps, and these in double precision."""
    found: dict[str, Any] = {"weights_from": "/".join(options.load.parts[-2:]) if options.load else "initial"}
    found |= {**({"outputs": outcome.outputs} if outcome.outputs else {}), "first_steps": outcome.numbers}
    if not options.numerics:
        return found
    repeated = double_precision.repeat_steps(cell, options.load, device, cell["steps"], recorder.step_ns / 1e9)
    return {**found, "double_precision": repeated}


def _stock(
    cell: "CellSettings",
    options: argparse.Namespace,
    network: torch.nn.Module,
    device: torch.device,
    repeated: step_loop.StepParts,
    rank: int,
) -> dict[str, Any]:
    """Measure memory in one extra step; the first rank writes the rows.

    Returns: the duration of this step, and the allocator's peak in bytes during it (None on a CPU).
    """
    began, cuda = time.perf_counter_ns(), device.type == "cuda"

    def look() -> list[dict[str, Any]]:
        batch = next(iter(batches.iterate_batches({**cell, "workers": 0}, interface.load_functions(cell["module"]))))
        return peak_memory.measure_memory(batch, repeated, network, device)

    found: list[dict[str, Any]] = inspection.attempt("memory was not taken stock of", look, [])
    peak = torch.cuda.max_memory_allocated(device) if cuda else None
    if options.remedies:
        # Only now, since it imports what few need.
        from profzoo.harness.step import memory_remedies

        expected = functools.partial(memory_remedies.predict_remedies, cell, device, options.remedies, found)
        found += inspection.attempt("memory with other settings was not predicted", expected, [])
    if not rank:
        peak_memory.write_rows(found, options.memory)
    return {"wall_ns": time.perf_counter_ns() - began, "allocator_peak_bytes": peak}


def _watching(
    cell: "CellSettings", options: argparse.Namespace, rank: int, device: torch.device
) -> tuple[recorders.Recorder | None, recorders.Recorder]:
    """Recorder of a baseline timed before the window, if any, and recorder of the window."""
    if options.trace:
        baseline = bool(cell["profiler"].get("baseline"))
        timer = recorders.Recorder(device) if baseline else None
        if rank and not options.ranks:
            return timer, recorders.Recorder(device)
        files = _profiled_files(options, rank)
        # What is left besides the last cycle is the first process's.
        more = None if rank else getattr(options, "more", None)
        profiler = recorders.TorchProfiler(device, cell["profiler"], cell["window"], *files, more)
        return (recorders.StepTimer(device, options.steps) if baseline and not rank else timer), profiler
    return None, recorders.StepTimer(device, options.steps) if options.steps and not rank else recorders.Recorder(
        device
    )


def _profiled_files(options: argparse.Namespace, rank: int) -> tuple[Path, Path]:
    """Files of torch.profiler's operators and trace; in the folder of all processes, named by host and rank."""
    if not options.ranks:
        return options.operators, options.trace
    place = options.ranks / f"{platform.node()}.{rank}"
    return place.with_name(f"{place.name}.operators.csv"), place.with_name(f"{place.name}.trace.json.gz")


def _save(network: torch.nn.Module, cell: "CellSettings", path: Path, rank: int) -> None:
    """Save the weights as one process would have them; all processes have to call it, and the first one writes."""
    whole = distributed.whole_state(network, cell)
    if not rank:
        torch.save(whole, path)


def _work(outcome: step_loop.RunOutcome, recorder: recorders.Recorder) -> dict[str, Any]:
    """Padding of early batches, and compilations by torch.compile with those in the window marked, if any."""
    window = recorders.describe_window(recorder)
    made = read_compilations(window.get("window_began_ns", 0), window.get("window_wall_ns", 0))
    return {**({"padding": outcome.padding} if outcome.padding else {}), **({"compilations": made} if made else {})}


def _baseline(
    cell: "CellSettings", timer: recorders.StepTimer, outcome: step_loop.RunOutcome, ranks: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Facts of the baseline timed before the window, where they differ; ranks: the same facts of each process."""
    return {
        "steps": timer.steps,
        "items": timer.steps * cell["batch"] * batch_count(cell),
        "loss": outcome.baseline_loss,
        **recorders.describe_window(timer),
        "peak_memory_bytes": timer.peak_memory_bytes,
        "peak_rss_bytes": timer.peak_rss_bytes,
        **({"ranks": ranks} if len(ranks) > 1 else {}),
    }
