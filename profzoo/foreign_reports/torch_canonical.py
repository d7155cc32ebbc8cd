"""Writes a foreign torch.profiler trace as profzoo's recorder leaves one: same events, checked numbers, its ranges."""

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd

from profzoo.foreign_reports import torch_categories as categories
from profzoo.foreign_reports.step_times import in_steps
from profzoo.foreign_reports.torch_events import ForeignTrace, nanoseconds, scan_events, text_of
from profzoo.foreign_reports.torch_steps import DividedTrace
from profzoo.range_names import STEP, make_torch_name

# What stands before the category of an event that is read, but is not part of what the tables are about.
LEFT_OUT = "left out: "
# The name of what stands for a call, in a trace without any: it says where its launch belongs, and took no time.
NO_CALL = "(no call in the trace)"
# Whole numbers among an event's arguments that readers rely on.
NUMBERS = ("Sequence number", "Fwd thread id", "stream", "device", "context")
SIZES = ("grid", "block")
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
        self._called = bool((own.call_of_launch >= 0).any())
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
        arguments.pop("External id", None)
        if external := self._external.get(index, 0):
            arguments["External id"] = external
        if category in categories.ON_DEVICE:
            arguments |= self._sizes_of(index, arguments)
            if not self._called:
                # Beyond all numbers of the trace itself.
                arguments["correlation"] = (1 << 40) + index
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
    """Return the places in the file of the events that are in a step, and of all links."""
    if divided.steps.own:
        return set(found.events["index"].tolist())
    called = divided.owners.call_of_launch >= 0
    kept = set(found.of(categories.LINK)["index"].tolist())
    for events in (divided.operators, divided.ranges, divided.calls):
        kept |= set(events["index"][in_steps(events["start"].to_numpy(), divided.steps.spans)].tolist())
    launches = divided.launches
    inside = in_steps(divided.made, divided.steps.spans)
    if called.any():
        # What was launched by a call that is lost has no step, but is part of the work.
        first, last = divided.steps.spans[0, 0], divided.steps.spans[-1, 1]
        inside |= ~called & (divided.made >= first) & (divided.made < last)
    return kept | set(launches["index"][inside].tolist())


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
