"""Converts a torch.profiler trace made elsewhere to what profzoo's own job leaves: operators, trace and sidecar."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from profzoo.errors import DataError
from profzoo.foreign_reports import sidecars, torch_categories
from profzoo.foreign_reports.torch_canonical import TraceWriter, kept_events
from profzoo.foreign_reports.torch_events import ForeignTrace, read_foreign_trace
from profzoo.foreign_reports.torch_operators import tabulate_operators
from profzoo.foreign_reports.torch_steps import DividedTrace, divide_trace
from profzoo.io import chrome_trace
from profzoo.io.scripts import write_csv, write_json
from profzoo.tools.torch import TOOL, losses, trace


def main(
    path: str, model: str, step: str | None, outputs: Mapping[str, str], say: Callable[[str], object] = print
) -> None:
    """Read a trace; write `operators`, `trace` and `sidecar`, and say what is missing in it.

    step: name of the ranges that are its steps, None to find them.

    Raises:
        DataError: nothing of the file can be used, or its times are impossible.
    """
    found = read_foreign_trace(path)
    divided = divide_trace(found, path, step)
    kept = kept_events(found, divided)
    TraceWriter(found, divided).write(path, outputs["trace"])
    facts = _facts(path, model, found, divided)
    write_csv(tabulate_operators(divided, kept), outputs["operators"])
    coverage = [*divided.coverage, *_ranks(found.others), *_of_launches(divided, kept)]
    lost, why = _lost(path, outputs["trace"]) if divided.on_gpu else ({}, [])
    facts |= lost
    facts["imported"]["coverage"] = [*coverage, *why]
    write_json(facts, outputs["sidecar"])
    say(f"{path}: {len(divided.steps.spans):,} step(s) from {divided.steps.found_by}")
    for line in facts["imported"]["coverage"]:
        say(f"{path}: {line}")


def _facts(path: str, model: str, found: ForeignTrace, divided: DividedTrace) -> dict[str, Any]:
    """Return the sidecar's facts, but for what is missing."""
    gpu_ns = divided.gpu_ns if divided.on_gpu else None
    steps = sidecars.step_facts(divided.steps.found_by, divided.wall_ns, gpu_ns)
    steps |= {"whole": divided.steps.whole, "ranges_from": sorted(set(divided.parts["found_by"]))}
    with Path(path).open("rb") as file:
        packed = file.read(len(chrome_trace.GZIP)) == chrome_trace.GZIP
    form = f"trace of torch.profiler, {'gzipped' if packed else 'plain'}"
    device = (_device_name(found, divided), "cuda") if divided.on_gpu else ("CPU", "cpu")
    facts = sidecars.report_facts(TOOL, model, device, steps, [sidecars.file_facts(path, form)])
    facts["cell"]["profiler"] = {"memory": False, "flops": False, "modules": False, "stacks": False,
                                 "shapes": bool((divided.operators["shapes"] != "").any())}  # fmt: skip
    base = found.others.get("baseTimeNanoseconds")
    began = int(divided.steps.spans[0, 0]) + found.base_ns + (base if isinstance(base, int) else 0)
    return facts | {"started": sidecars.date_of(began), "cuda": _cuda_version(found.others)}


def _device_name(found: ForeignTrace, divided: DividedTrace) -> str:
    """Return the name of the GPU that ran most launches, as far as the trace has it."""
    listed = found.others.get("deviceProperties")
    properties = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    names = {str(one.get("id")): str(one.get("name") or "") for one in properties}
    used = divided.launches["device"].value_counts()
    return sidecars.device_name(names, str(used.index[0]) if len(used) else "")


def _cuda_version(others: Mapping[str, Any]) -> str | None:
    """Return the version of CUDA's runtime, such as 13.0 of 13000; None where the trace has none."""
    number = others.get("cuda_runtime_version")
    return f"{number // 1000}.{number % 1000 // 10}" if isinstance(number, int) and number >= 1000 else None


def _ranks(others: Mapping[str, Any]) -> list[str]:
    """Say which ranks of a distributed run the trace is without."""
    known = others.get("distributedInfo")
    rank, size = (known.get(key) for key in ("rank", "world_size")) if isinstance(known, dict) else (None, None)
    if isinstance(rank, int) and isinstance(size, int) and size > 1:
        return [f"it is of rank {rank} of {size}; the other {size - 1} ranks are not in it"]
    return []


def _of_launches(divided: DividedTrace, kept: set[int]) -> list[str]:
    """Say which launches have no call or operator, and which are in no step."""
    launches, total = divided.launches, max(int(divided.launches["ns"].sum()), 1)
    if launches.empty:
        return []
    inside = launches["index"].isin(kept).to_numpy()
    called = divided.owners.call_of_launch >= 0
    groups = [
        (~inside, "are in no step and are left out"),
        (inside & ~called, "have no launching call, so that their operator, range and step are unknown"),
        (inside & called & (divided.owners.of_launches < 0), "were made outside all operators"),
    ]
    if not called.any():
        groups[1] = (inside, "have no launching call: they count for the step in which they ran, without an operator")
    found = []
    for chosen, what in groups:
        if chosen.any():
            share = int(launches["ns"].to_numpy()[chosen].sum()) / total
            found.append(f"{int(chosen.sum()):,} of {len(launches):,} launches ({share:.1%} of GPU time) {what}")
    if divided.owners.by_number:
        found.append(f"the operator of {divided.owners.by_number:,} launches is known by the trace's numbers alone")
    if (launches["category"] == torch_categories.KERNEL).sum() == 0:
        found.append("it holds copies and no kernel")
    return found


def _lost(path: str, written: str) -> tuple[dict[str, Any], list[str]]:
    """Return what the sidecar says of steps that lack kernels, and lines about them.

    Raises:
        DataError: launches have times that they cannot have had.
    """
    seen = trace.read_trace(written, lambda line: None)
    if why := losses.find_impossible(seen):
        raise DataError(f"{path}: {why}, which cannot be: record the trace again")
    found = losses.find_losses(seen)
    left = found.steps - len(found.lacking)
    if not found.lacking:
        return {}, [found.outside] if found.outside else []
    if left:
        told = {"traced_steps": left, "left_out": found.told()}
        return told, [f"{len(found.lacking)} of {found.steps} steps lack kernels and are left out of sums"]
    return {}, [f"every step lacks kernels, so that sums are too low: {'; '.join(found.told()[:3])}"]
