"""Converts a torch.profiler trace made elsewhere to what profzoo's own job leaves: operators, trace and sidecar."""

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.foreign_reports import sidecars, torch_events
from profzoo.foreign_reports import torch_events as categories
from profzoo.foreign_reports.steps import in_steps
from profzoo.foreign_reports.torch_events import (
    OTHER_EXPORT,
    ForeignTrace,
    enclosing_events,
    find_parents,
    nanoseconds,
    read_foreign_trace,
    scan_events,
    sort_events,
    text_of,
)
from profzoo.foreign_reports.torch_steps import DividedTrace, divide_trace, outer_calls
from profzoo.io import chrome_trace
from profzoo.io.scripts import write_csv, write_json
from profzoo.range_names import STEP, make_torch_name
from profzoo.tools.torch import TOOL, losses, trace
from profzoo.tools.torch import tables as torch_tables

# Writes a foreign torch.profiler trace as profzoo's recorder leaves one: same events, checked numbers, its ranges.

# What stands before the category of an event that is read, but is not part of what the tables are about.
LEFT_OUT = "left out: "
# The name of what stands for a call, in a trace without any: it says where its launch belongs, and took no time.
NO_CALL = "(no call in the trace)"
# Whole numbers among an event's arguments that readers rely on.
NUMBERS = ("Sequence number", "Fwd thread id", "stream", "device", "context")
SIZES = ("grid", "block")
# Correlations up to this number, of 32 bits, stay as they are.
LARGEST = (1 << 32) - 1
# A name or the rest of a trace, for which compressing more takes longer than it saves.
COMPRESSION = 5


class TraceWriter:
    """Writes the events of a divided trace, in the order of the file that they are of."""

    def __init__(self, found: ForeignTrace, divided: DividedTrace) -> None:
        """found: as it was read; divided: in steps."""
        self._base, self._divided = found.base_ns, divided
        own = divided.owners
        numbers = np.arange(1, len(own.operators) + 1)
        self._external = dict(zip(own.operators["index"].tolist(), numbers.tolist(), strict=True))
        for events, made_by in ((divided.calls, own.of_calls), (divided.launches, own.of_launches)):
            self._external |= dict(zip(events["index"].tolist(), (made_by + 1).tolist(), strict=True))
        self.kept = kept_events(found, divided)
        self._correlations = _number_correlations(divided)
        # In a trace without any call each launch gets one.
        self._uncalled = set() if (own.call_of_launch >= 0).any() else set(divided.launches["index"].tolist())
        # Sizes that only the call of a launch has, as of HIP.
        self._call_of = dict(zip(divided.launches["index"].tolist(), own.call_of_launch.tolist(), strict=True))
        self._call_indices = divided.calls["index"].tolist()
        self._sizes = dict[int, Mapping[str, Any]]()

    def write(self, source: str | Path, target: str | Path) -> None:
        """Read the events of the source again and write them, changed where need be, to a gzipped trace."""
        with gzip.open(target, "wt", encoding="utf-8", compresslevel=COMPRESSION) as file:
            file.write('{"schemaVersion": 1, "traceEvents": [\n')
            first = True

            def put(event: Mapping[str, Any]) -> None:
                nonlocal first
                file.write(("" if first else ",\n") + text_of(event))
                first = False

            def take(index: int, event: Any) -> None:
                if isinstance(event, dict):
                    for one in self._changed(index, event):
                        put(one)

            self._note_sizes(source)
            others = scan_events(source, take)
            for event in self._ranges():
                put(event)
            _end(file, others, self._base)

    def _note_sizes(self, source: str | Path) -> None:
        """Note grid and block of calls, which may come behind their kernels in the file."""
        wanted = set(self._call_indices)

        def take(index: int, event: Any) -> None:
            arguments = event.get("args") if index in wanted and isinstance(event, dict) else None
            if isinstance(arguments, dict) and _three(arguments.get("grid")):
                self._sizes[index] = {key: arguments[key] for key in SIZES if key in arguments}

        # CUDA's kernels have theirs themselves.
        if any(self._divided.calls["name"].str.startswith("hip")):
            scan_events(source, take)

    def _changed(self, index: int, event: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield an event as it is to be written, and what is written beside it."""
        category = categories.category_of(event)
        times = self._times(event)
        if not category:
            yield {**event, **times}
            return
        if index not in self.kept:
            yield {**event, **times, "cat": f"{LEFT_OUT}{category}"}
            return
        arguments = _clean_arguments(event.get("args"))
        if category == categories.LINK:
            number = event.get("id")
            plain = int(number) if isinstance(number, str) and number.isdecimal() else number
            yield {**event, **times, "cat": category, "name": category, "id": plain}
            return
        if number := self._correlations.get(index):
            arguments["correlation"] = number
        arguments.pop("External id", None)
        if external := self._external.get(index, 0):
            arguments["External id"] = external
        if category in categories.ON_DEVICE:
            arguments |= self._sizes_of(index, arguments)
            if index in self._uncalled:
                yield {"ph": "X", "cat": categories.RUNTIME, "name": NO_CALL, "pid": self._divided.process, "tid": "0",
                       "ts": times["ts"], "dur": 0, "args": {"correlation": arguments["correlation"]}}  # fmt: skip
        yield {"ph": "X", "cat": category, "name": event["name"], "pid": event.get("pid"), "tid": event.get("tid"),
               **times, "args": arguments}  # fmt: skip

    def _sizes_of(self, index: int, arguments: Mapping[str, Any]) -> dict[str, Any]:
        call = self._call_of.get(index, -1)
        known = self._sizes.get(self._call_indices[call], {}) if call >= 0 else {}
        return {key: value for key, value in known.items() if key not in arguments}

    def _times(self, event: Mapping[str, Any]) -> dict[str, Any]:
        start, ns = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
        found = {} if start is None else {"ts": (start - self._base) / 1000}
        return found | ({} if ns is None else {"dur": ns / 1000})

    def _ranges(self) -> Iterator[dict[str, Any]]:
        """Yield the ranges of steps and parts that the trace does not have by profzoo's names."""
        for row in own_ranges(self._divided).itertuples():
            yield {"ph": "X", "cat": categories.RANGE, "name": row.name, "pid": self._divided.process, "tid": "profzoo",
                   "ts": row.start / 1000, "dur": row.ns / 1000, "args": {"found by": row.found_by}}  # fmt: skip


def own_ranges(divided: DividedTrace) -> pd.DataFrame:
    """Return the ranges of steps and parts that the trace itself does not have by profzoo's names.

    Columns name, start, ns, found_by.
    """
    spans, parts = divided.steps.spans, divided.parts
    steps = pd.DataFrame({"name": STEP, "start": spans[:, 0], "ns": spans[:, 1] - spans[:, 0]})
    table = pd.concat(
        [
            steps.assign(found_by=divided.steps.found_by),
            parts.assign(ns=parts["end"] - parts["start"])[["name", "start", "ns", "found_by"]],
        ]
    )
    table["name"] = table["name"].map(make_torch_name)
    return table[~table["name"].isin(set(divided.ranges["name"]))].reset_index(drop=True)


def kept_events(found: ForeignTrace, divided: DividedTrace) -> set[int]:
    """Return the places in the file of the events that are in a step, and of all links of the process."""
    links, several = found.of(categories.LINK), found.of(*categories.CALLS)["process"].nunique() > 1
    kept = set(links.loc[(links["process"] == divided.process) | (not several), "index"].tolist())
    if divided.steps.own:
        own = (divided.operators, divided.ranges, divided.calls, divided.launches)
        return kept.union(*(events["index"].tolist() for events in own))
    called = divided.owners.call_of_launch >= 0
    for events in (divided.operators, divided.ranges, divided.calls):
        kept |= set(events["index"][in_steps(events["start"].to_numpy(), divided.steps.spans)].tolist())
    launches = divided.launches
    inside = in_steps(divided.made, divided.steps.spans)
    if called.any():
        # What was launched by a call that is lost has no step, but is part of the work.
        first, last = divided.steps.spans[0, 0], divided.steps.spans[-1, 1]
        inside |= ~called & (divided.made >= first) & (divided.made < last)
    return kept | set(launches["index"][inside].tolist())


def _number_correlations(divided: DividedTrace) -> dict[int, int]:
    """Return new numbers for correlations, by the place in the file; none where those of the file can stay.

    They are numbered anew where no launch has a call, where they begin again, or where they are larger than those of
    nsys, in whose form the trace is written too. Calls that are a part of another share its number.
    """
    calls, launches, made_by = divided.calls, divided.launches, divided.owners.call_of_launch
    parts = outer_calls(calls)
    outer = parts.loc[(parts["place"] == parts["outer"]) & (parts["correlation"] >= 0), "correlation"]
    largest = max([*calls["correlation"], *launches["correlation"]], default=0)
    if launches.empty or ((made_by >= 0).any() and not outer.duplicated().any() and largest <= LARGEST):
        return {}
    numbered = dict(zip(calls["index"].to_numpy()[parts["place"]].tolist(), (parts["outer"] + 1).tolist(), strict=True))
    own = np.where(made_by >= 0, made_by + 1, len(calls) + 1 + np.arange(len(launches)))
    return numbered | dict(zip(launches["index"].tolist(), own.tolist(), strict=True))


def _clean_arguments(given: Any) -> dict[str, Any]:
    """Return an event's arguments without numbers that are none, and with sizes as lists."""
    arguments = dict(given) if isinstance(given, dict) else {}
    for key in (*NUMBERS, "correlation"):
        value = arguments.get(key)
        if isinstance(value, str) and value.lstrip("-").isdecimal():
            arguments[key] = int(value)
        elif key in arguments and (isinstance(value, bool) or not isinstance(value, int)):
            del arguments[key]
    if arguments.get("correlation", 1) <= 0:
        del arguments["correlation"]
    for key in SIZES:
        if isinstance(arguments.get(key), str) and (sizes := _three(arguments[key])):
            arguments[key] = sizes
    return arguments


def _three(sizes: Any) -> list[int] | None:
    """Return three sizes, also of such as "[1, 2, 3]"; None for anything else."""
    if isinstance(sizes, str):
        try:
            sizes = json.loads(sizes)
        except ValueError:
            return None
    whole = isinstance(sizes, list) and len(sizes) == 3 and all(isinstance(one, int) for one in sizes)
    return sizes if whole else None


def _end(file: TextIO, others: Mapping[str, Any], base_ns: int) -> None:
    """Write what surrounds the events."""
    kept = {key: value for key, value in others.items() if key not in ("traceEvents", "schemaVersion")}
    if base_ns:
        kept["baseTimeNanoseconds"] = int(kept.get("baseTimeNanoseconds") or 0) + base_ns
    rest = json.dumps(kept)[1:-1]
    file.write(f"\n]{', ' if rest else ''}{rest}}}\n")


def split_kept(events: pd.DataFrame, kept: set[int]) -> np.ndarray:
    """Return, per event, whether its place in the file is among those."""
    return np.asarray(events["index"].isin(kept).to_numpy())


# Makes torch.profiler's table of operators from the events of a foreign trace.

# Of steps that ProfilerStep numbers, one row is made, as torch does.
STEP_NUMBER = r"^(ProfilerStep)#\d+$"


def tabulate_operators(divided: DividedTrace, kept: set[int]) -> pd.DataFrame:
    """Return the table as the recorder leaves it: a row per name and shapes of inputs, times in ns, sorted by time.

    Memory and FLOPs, which a trace does not tell, are 0, as of a profiler that was not asked for them.

    kept: places in the file of events in steps.
    """
    parts = [divided.operators, divided.ranges, divided.calls]
    host = pd.concat([part[split_kept(part, kept)] for part in parts if len(part)] or [divided.operators])
    # On a thread of their own, so that they change no other's own time.
    made = own_ranges(divided)
    nowhere = {"index": -1, "category": categories.RANGE, "process": "", "thread": "", "external": -1, "shapes": ""}
    host = pd.concat([host, made.drop(columns="found_by").assign(**nowhere)] if len(made) else [host])
    host = sort_events(host.reset_index(drop=True))
    host = host[~_repeats_parent(host, find_parents(host))].reset_index(drop=True)
    parents = find_parents(host)
    inner = parents >= 0
    ns = host["ns"].to_numpy(dtype=np.int64)
    called = np.bincount(parents[inner], weights=ns[inner], minlength=len(host)).astype(np.int64)
    device = _device_ns(divided, host, parents, kept)
    table = pd.DataFrame(
        {
            "device": "CPU",
            "name": host["name"].str.replace(STEP_NUMBER, r"\1*", regex=True),
            "shapes": host["shapes"].fillna("").astype("str"),
            "stack": "",
            "count": 1,
            "self_cpu_ns": np.maximum(ns - called, 0),
            "cpu_ns": ns,
            "self_device_ns": device[0],
            "device_ns": device[1],
        }
    )
    grouped = table.groupby(["device", "name", "shapes", "stack"], sort=False).sum().reset_index()
    grouped = grouped.assign(**dict.fromkeys([*torch_tables.MEMORY, "flops"], 0))
    ordered = grouped.sort_values(["cpu_ns", "name"], ascending=[False, True], ignore_index=True)
    return ordered[list(torch_tables.OPERATORS.columns)]


def _repeats_parent(host: pd.DataFrame, parents: np.ndarray) -> np.ndarray:
    """Return which events are the only ones in another of the same name, which torch counts as one with that."""
    inside = np.bincount(parents[parents >= 0], minlength=len(host))
    names, above = host["name"].to_numpy(), np.maximum(parents, 0)
    return np.asarray((parents >= 0) & (names == names[above]) & (inside[above] == 1))


def _device_ns(
    divided: DividedTrace, host: pd.DataFrame, parents: np.ndarray, kept: set[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the GPU time of what each host event launched itself, and with what it encloses."""
    own = np.zeros(len(host), dtype=np.int64)
    chosen = split_kept(divided.launches, kept) & (divided.owners.call_of_launch >= 0)
    calls = divided.calls.iloc[divided.owners.call_of_launch[chosen]].reset_index(drop=True)
    # The call itself is the innermost event at its beginning; its time on the device counts for what encloses it.
    at = enclosing_events(host, parents, calls)
    is_call = host["category"].isin(categories.CALLS).to_numpy()
    while (inside := (at >= 0) & is_call[at]).any():
        at = np.where(inside, parents[at], at)
    known = at >= 0
    np.add.at(own, at[known], divided.launches["ns"].to_numpy()[chosen][known])
    whole = own.copy()
    # Each comes behind what encloses it.
    for place in range(len(host) - 1, -1, -1):
        if parents[place] >= 0:
            whole[parents[place]] += whole[place]
    return own, whole


def main(
    path: str, model: str, step: str | None, outputs: Mapping[str, str], say: Callable[[str], object] = print
) -> None:
    """Read a trace; write `operators`, `trace` and `sidecar`, and say what is missing in it.

    step: name of the ranges that are its steps, None to find them.

    Raises:
        DataError: nothing of the file can be used, or its times are impossible.
    """
    sidecars.refuse_other_tool(path, TOOL)
    if not any(sidecars.recognise_report(path)):
        raise DataError(f"{path} is not JSON, as torch.profiler writes it: {OTHER_EXPORT}")
    found = read_foreign_trace(path)
    divided = divide_trace(found, path, step)
    kept = kept_events(found, divided)
    TraceWriter(found, divided).write(path, outputs["trace"])
    facts = _facts(path, model, found, divided)
    write_csv(tabulate_operators(divided, kept), outputs["operators"])
    coverage = [*divided.coverage, *_ranks(found.others), *_of_launches(divided, kept)]
    lost, why = _lost(outputs["trace"]) if divided.on_gpu else ({}, [])
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
    if (launches["category"] == torch_events.KERNEL).sum() == 0:
        found.append("it holds copies and no kernel")
    return found


def _lost(written: str) -> tuple[dict[str, Any], list[str]]:
    """Return what the sidecar says of steps that lack kernels, and lines about them."""
    seen = trace.read_trace(written, lambda line: None)
    found = losses.find_losses(seen)
    left = found.steps - len(found.lacking)
    if not found.lacking:
        return {}, [found.outside] if found.outside else []
    if left:
        told = {"traced_steps": left, "left_out": found.told()}
        return told, [f"{len(found.lacking)} of {found.steps} steps lack kernels and are left out of sums"]
    return {}, [_in_every_step(seen, found)]


def _in_every_step(seen: trace.Trace, found: losses.Losses) -> str:
    """Say how many kernels the steps lack, as each lacks some, and how many they have."""
    lost, kind = found.calls, list(trace.DEVICE_KINDS).index("kernel")
    kernels, told = int((seen.launches["kind"] == kind).sum()), "; ".join(found.told()[:3])
    return (
        f"every step lacks kernels: {lost:,} {'is' if lost == 1 else 'are'} missing beside the {kernels:,} that there "
        f"are, so that sums are too low: {told}"
    )
