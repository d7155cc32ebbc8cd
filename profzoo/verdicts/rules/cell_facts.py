"""Read from sidecars of unprofiled runs what verdicts and plans need to know of each cell."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

import pandas as pd

from profzoo import formatting
from profzoo.cell.sidecar_files import read_facts
from profzoo.io import sidecars as fact
from profzoo.tables.cell_tables import cell_key
from profzoo.tools.sample.gpu_state import read_clocks
from profzoo.verdicts.rules.rule_types import KnownSettings
from profzoo.what_if.loading import Loading

if TYPE_CHECKING:
    from profzoo.cell.job_types import (
        AllocatorFacts,
        BlockingLine,
        ClockReading,
        Compilation,
        CpuRoof,
        GradientSync,
        HostLine,
        MadeObject,
        PaddedRows,
        ProcessFacts,
        RepeatedCall,
        Sidecar,
    )


# What a measured process noted of its work and its GPU: padding, compilations, the allocator's retries, clocks.

CellKey = tuple[str, str]
# So many lines are named.
NAMED = 3


@dataclass(frozen=True)
class Padding:
    """Padding of the batches' most padded tensor: its shape, the value, and shares of its places.

    padded: share that is padding. behind: share behind the longest row, which is left out by shorter batches.
    mask: name of the attention mask that tells it; empty where rows end in the value.
    """

    rows: int
    places: int
    value: int
    padded: float
    behind: float
    mask: str = ""


# Facts of loading on worker processes that a script's loaders started within the window.
WORKER_STARTS = ("worker_starts", "workers", "starting_s", "first_batches_s")


@dataclass(frozen=True)
class NotedFacts:
    """What was noted of a cell's work: in its unprofiled run, and of its operators.

    window_ns: duration of the window, 0 where it is unknown. activities: operators with their host time by
    torch.profiler; None without. allocator: what the first process' allocator did in its window. clocks: readings at
    both ends of the window, of all processes. repeated: modules that a step called again on the same inputs. roof: what
    the CPU of a cell can do; None where it is not known. loading: how batches are loaded, and the cores for it. made:
    where a script makes the objects of its loop. device: type of the device that the cell ran on. starts: what is
    known of worker processes that a script's loaders started within the window (WORKER_STARTS), empty without any.
    """

    padding: "Sequence[PaddedRows]" = ()
    compilations: "Sequence[Compilation]" = ()
    window_ns: float = 0.0
    activities: pd.DataFrame | None = None
    allocator: "AllocatorFacts | None" = None
    clocks: "Sequence[ClockReading]" = ()
    repeated: "Sequence[RepeatedCall]" = ()
    roof: "CpuRoof | None" = None
    loading: Loading = field(default_factory=Loading)
    made: "Sequence[MadeObject]" = ()
    device: str = "cuda"
    starts: Mapping[str, float] = field(default_factory=dict)

    def most_padded(self) -> Padding | None:
        """Return the tensor with the largest share of padding; None if no batch is padded.

        A tensor that would be nothing but padding is left out: words are missing, not wasted.
        """
        groups: dict[tuple[int, int, int, str], list[PaddedRows]] = {}
        for one in self.padding:
            if one["longest"] and one["padded"] < one["rows"] * one["places"]:
                groups.setdefault((one["rows"], one["places"], one["value"], one.get("mask", "")), []).append(one)
        found = [
            Padding(
                *key[:3],
                mask=key[3],
                padded=sum(one["padded"] for one in own) / (key[0] * key[1] * len(own)),
                behind=1 - sum(one["longest"] for one in own) / (key[1] * len(own)),
            )
            for key, own in groups.items()
        ]
        return max(found, key=lambda one: one.padded, default=None)

    def compiling_share(self) -> float:
        """Return the share of the window in which code was compiled; 0 where it is unknown."""
        seconds = sum(one["seconds"] for one in self.compilations if one["in_window"])
        return min(seconds * 1e9 / self.window_ns, 1.0) if self.window_ns else 0.0

    def starting_shares(self) -> tuple[float, float]:
        """Return the share of the window that workers of loaders took to start and end; and with their first batches.

        >>> noted = {"starting_s": 0.25, "first_batches_s": 0.5}
        >>> NotedFacts(window_ns=1e9, starts=noted).starting_shares()
        (0.25, 0.75)
        """
        if not self.starts or not self.window_ns:
            return 0.0, 0.0
        starting = self.starts["starting_s"] * 1e9 / self.window_ns
        return min(starting, 1.0), min(starting + self.starts["first_batches_s"] * 1e9 / self.window_ns, 1.0)

    def describe_starts(self) -> str:
        """Describe how often loaders started workers within the window, and where a script makes its loader.

        >>> noted = {"worker_starts": 2, "workers": 4, "starting_s": 0.2}
        >>> made = {"kind": "loader", "name": "", "file": "a.py", "line": 3}
        >>> NotedFacts(starts=noted, made=[made]).describe_starts()
        'the loader made at a.py:3 started 4 workers 2 times within the window, which took 200 ms'
        """
        place = next((f" made at {one['file']}:{one['line']}" for one in self.made if one["kind"] == "loader"), "")
        workers, times = int(self.starts["workers"]), int(self.starts["worker_starts"])
        often = "once" if times == 1 else f"{times} times"
        took = formatting.format_ns(self.starts["starting_s"] * 1e9)
        return f"the loader{place} started {workers} workers {often} within the window, which took {took}"

    def describe_compilations(self) -> str:
        """Describe where code was compiled again within the window, and why.

        >>> made = {"function": "f", "file": "a.py", "line": 3, "resumed": False, "seconds": 1.0, "in_window": True}
        >>> NotedFacts((), [made | {"why_again": "k == 3"}, made | {"why_again": "k == 4"}]).describe_compilations()
        'f (a.py:3) was compiled 2 times, as these did not hold: k == 3; k == 4'
        """
        again = [one for one in self.compilations if one["in_window"]]
        texts = []
        for (function, file, line), times in _places(again).most_common(NAMED):
            own = [one for one in again if (one["function"], one["file"], one["line"]) == (function, file, line)]
            why = "; ".join(list(dict.fromkeys(one["why_again"] for one in own if one["why_again"]))[:NAMED])
            count = f"{times} times" if times > 1 else "once"
            because = f", as {'these' if times > 1 else 'this'} did not hold: {why}" if why else ""
            texts.append(f"{function} ({file}:{line}) was compiled {count}{because}")
        return "; ".join(texts)

    def graph_breaks(self) -> list[str]:
        """Return the lines of graph breaks, each once, in the order of their first compilation."""
        return list(dict.fromkeys(f"{one['file']}:{one['line']}" for one in self.compilations if one["resumed"]))


def _places(compilations: "Sequence[Compilation]") -> Counter[tuple[str, str, int]]:
    return Counter((one["function"], one["file"], one["line"]) for one in compilations)


def read_noted(facts: "Sidecar") -> NotedFacts:
    """Return what a sidecar says."""
    return NotedFacts(
        facts.get("padding", ()),
        facts.get("compilations", ()),
        float(facts.get("window_wall_ns", 0) or 0),
        allocator=facts.get("allocator"),
        clocks=read_clocks(facts),
        repeated=facts.get("repeated_calls", ()),
        roof=facts.get("roof"),
        loading=_read_loading(facts),
        made=facts["script"].get("made", ()) if "script" in facts else (),
        device=facts.get("device_type", "cuda"),
        starts=_read_starts(facts),
    )


def _read_loading(facts: "Sidecar") -> Loading:
    """Return what a sidecar says of loading, and of the cores for it."""
    noted: Mapping[str, Any] = facts.get("loading", {})
    known = {name: noted[name] for name in ("loading_cores", "step_cores", "batch_bytes") if name in noted}
    return Loading(cores=facts.get("cores", inf), **known)


def _read_starts(facts: "Sidecar") -> Mapping[str, float]:
    """Return what a sidecar says of workers that were started within the window; empty if none were."""
    noted: Mapping[str, Any] = facts.get("loading", {})
    return {name: noted[name] for name in WORKER_STARTS} if WORKER_STARTS[0] in noted else {}


def _settings(facts: "Sidecar") -> KnownSettings:
    """Return the settings that a cell ran with; of a script its own batch, and those of its loader."""
    own: Mapping[str, Any] = facts.get("loading", {})
    found = {**facts.get("cell", {}), **{name: own[name] for name in ("workers", "pin_memory") if name in own}}
    # That of the settings only stands for one that nobody knows before the script has run.
    known = {"batch": facts["batch"]} if facts.get("batch") else {}
    return {**{key: value for key, value in found.items() if key != "batch"}, **known} if "script" in facts else found


def add_activities(
    noted: Mapping[CellKey, NotedFacts], activities: Mapping[CellKey, pd.DataFrame]
) -> dict[CellKey, NotedFacts]:
    """Return what was noted of all cells, with the operators of those that have any."""
    return {
        cell: replace(noted.get(cell, NotedFacts()), activities=activities.get(cell))
        for cell in dict.fromkeys((*noted, *activities))
    }


# What processes may have noted, as lists.
NOTED = ("blocking_lines?", "host_lines?", "ranks?", "padding?", "compilations?", "repeated_calls?")
LOADING: fact.Needs = {"loading_cores?": fact.NUMBER, "step_cores?": fact.NUMBER, "batch_bytes?": fact.COUNT}
ROOF: fact.Needs = {"precision": fact.TEXT, "flop_per_s": fact.POSITIVE, "bytes_per_s": fact.POSITIVE}


@dataclass(frozen=True)
class CellFacts:
    """What is known of cells, by model and phase.

    ran_with: settings of each cell. lines: lines at which a step waits for the GPU; cells whose lines are unknown are
    missing. host_lines: lines at which the host spends a step, in the same way.
    syncs: how gradients are sent, of cells of several processes where it is known.
    noted: what the processes noted of their work.
    timed_under: the tool under which steps were timed, of cells that were made elsewhere. whole: of these, the cells
    whose only step is the whole trace, as no step repeats in it.
    failed: why settings failed in trials, by their words. devices: names of the GPUs that cells ran on.
    """

    ran_with: dict[tuple[str, str], KnownSettings] = field(default_factory=dict)
    lines: "dict[tuple[str, str], Sequence[BlockingLine]]" = field(default_factory=dict)
    host_lines: "dict[tuple[str, str], Sequence[HostLine]]" = field(default_factory=dict)
    syncs: "dict[tuple[str, str], GradientSync]" = field(default_factory=dict)
    noted: dict[tuple[str, str], NotedFacts] = field(default_factory=dict)
    timed_under: dict[tuple[str, str], str] = field(default_factory=dict)
    whole: frozenset[tuple[str, str]] = frozenset()
    failed: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    devices: dict[tuple[str, str], str] = field(default_factory=dict)


def read_cell_facts(sidecars: Sequence[str], failed: Mapping[str, Mapping[str, str]] | None = None) -> CellFacts:
    """Read the sidecars of unprofiled runs; failed: why settings failed in trials, by cell (`lstm train`) and words.

    Raises:
        DataError: a sidecar is damaged.
    """
    wanted: fact.Needs = {
        "cell": {},
        **dict.fromkeys(NOTED, fact.LIST),
        "roof?": ROOF,
        "device?": fact.TEXT,
        "cores?": fact.POSITIVE,
        "loading?": LOADING,
        "script?": {"made?": fact.LIST},
    }
    read = {cell_key(path): read_facts(path, wanted) for path in sidecars}
    elsewhere = {cell: facts["imported"] for cell, facts in read.items() if facts.get("imported")}
    return CellFacts(
        ran_with={cell: _settings(facts) for cell, facts in read.items()},
        lines={cell: facts["blocking_lines"] for cell, facts in read.items() if "blocking_lines" in facts},
        host_lines={cell: facts["host_lines"] for cell, facts in read.items() if "host_lines" in facts},
        syncs={cell: sync for cell, facts in read.items() if (sync := _find_sync(facts))},
        noted={cell: read_noted(facts) for cell, facts in read.items()},
        timed_under={cell: about.get("timed_under", "") for cell, about in elsewhere.items()},
        whole=frozenset(cell for cell, about in elsewhere.items() if about.get("whole")),
        failed={(model, phase): (failed or {}).get(f"{model} {phase}", {}) for model, phase in read},
        devices={cell: facts["device"] for cell, facts in read.items() if "device" in facts},
    )


def _find_sync(facts: "Sidecar") -> "GradientSync | None":
    """Return how the first process of a cell sends gradients; None if it is not known, or sends none."""
    own: Sequence[Mapping | ProcessFacts] = (facts, *facts.get("ranks", ()))
    return next((one["gradient_sync"] for one in own if one.get("gradient_sync")), None)
