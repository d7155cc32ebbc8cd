"""Measures a resolved cell: runs its steps under a recorder and collects the facts for its sidecar."""

import argparse
import importlib
import platform
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from profzoo.cell.process_count import batch_count
from profzoo.harness import (
    allocator_history,
    batch_size,
    built_networks,
    compilations,
    data_loading,
    devices,
    distributed,
    double_precision,
    eight_bit_layers,
    gradient_sync,
    interface,
    peak_memory,
    recorders,
    safe_inspection,
    sharding,
    step_loop,
)
from profzoo.machine import gpu_turns

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


def fit_batch(cell: "CellSettings") -> "CellSettings":
    """The cell with the largest batch that fits into memory, by halving; ConfigError where not even one sample does."""
    gpu_turns.wait_for_turn()
    device, model = step_loop.choose_cell_device(cell), interface.load_functions(cell["module"])
    return batch_size.fit_batch(cell, lambda smaller: step_loop.rehearse(smaller, model, device))


def import_lazy_parts(cell: "CellSettings") -> None:
    """Import what torch imports with the first optimizer: a second's work that needs no GPU."""
    if cell["phase"] == "train":
        importlib.import_module("torch._dynamo")


def run_cell(cell: "CellSettings", options: argparse.Namespace) -> dict[str, Any]:
    """Run the cell and return its facts; only the first rank prints and writes."""
    # Imported here: a mistyped command line gets its answer before torch is imported, which takes seconds.
    model, network = _build(cell, options)
    gpu_turns.wait_for_turn()
    rank, device = distributed.read_rank(cell), step_loop.choose_cell_device(cell)
    with distributed.join_group(cell, device):
        allocator_history.start_history(cell, device)
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
        "input": data_loading.describe_source(cell, model),
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
        **({"ranks": ranks} if len(ranks) > 1 else {}),
        **({"baseline": _baseline(cell, timer, outcome, timed)} if isinstance(timer, recorders.StepTimer) else {}),
    }


def _sending(outcome: step_loop.RunOutcome) -> dict[str, Any]:
    """How gradients are sent between processes, while these still can; empty in inference and of one process."""
    trainer = outcome.repeated.trainer if outcome.repeated else None
    return {**gradient_sync.describe_gradient_sync([trainer.network] if trainer else [])}


def _build(cell: "CellSettings", options: argparse.Namespace) -> tuple[interface.ModelFunctions, torch.nn.Module]:
    """Return the functions of a cell's model and its network on the CPU; no GPU is used."""
    if cell["threads"]:
        torch.set_num_threads(cell["threads"])
    model = interface.load_functions(cell["module"])
    network = built_networks.take_network(cell, model, options.load)
    import_lazy_parts(cell)
    return model, network


def _numbers(
    cell: "CellSettings",
    options: argparse.Namespace,
    outcome: step_loop.RunOutcome,
    device: torch.device,
    recorder: recorders.Recorder,
) -> dict[str, Any]:
    """Numbers by which runs are compared: of outputs, of the first steps, and of these in double precision if asked."""
    found = {**({"outputs": outcome.outputs} if outcome.outputs else {}), "first_steps": outcome.numbers}
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
        batch = next(
            iter(data_loading.iterate_batches({**cell, "workers": 0}, interface.load_functions(cell["module"])))
        )
        if cuda:
            torch.cuda.reset_peak_memory_stats(device)
        return peak_memory.measure_memory(batch, repeated, network, device)

    found: list[dict[str, Any]] = safe_inspection.attempt("memory was not taken stock of", look, [])
    peak = torch.cuda.max_memory_allocated(device) if cuda else None
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
    whole = sharding.whole_state(network, cell)
    if not rank:
        torch.save(whole, path)


def _work(outcome: step_loop.RunOutcome, recorder: recorders.Recorder) -> dict[str, Any]:
    """Padding of early batches, and compilations by torch.compile with those in the window marked, if any."""
    window = recorders.describe_window(recorder)
    made = compilations.read_compilations(window.get("window_began_ns", 0), window.get("window_wall_ns", 0))
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
