"""Judges how PyTorch's allocator of GPU memory fared within the window: retries, and memory that no tensor used."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from profzoo.verdicts.feasibility import add_wait_texts
from profzoo.verdicts.gain_models import RequestedChange
from profzoo.verdicts.noted_verdicts import NOTED
from profzoo.verdicts.rule_evaluation import CELL_LEVEL, LAYER_LEVEL, CellRules
from profzoo.verdicts.rule_types import Rule
from profzoo.verdicts.verdict import Verdict

if TYPE_CHECKING:
    from profzoo.cell.job_types import AllocatorFacts

# Shares of rules about memory, and the change that simulates steps without calls of the driver for memory.
RETRIES, UNUSED, STALLS = "retries", "unused_memory", "allocations_removed"
OF_RETRIES = f"share of the step: {RETRIES}"
# Memory that is held matters where it is at least this part of what the process may take.
LARGE = 0.5
EVIDENCE = "sidecar of the unprofiled run: allocator"
# With these settings memory is kept for captured graphs, which no tensor uses while they do not run.
KEEPING = {"graph": (True,), "compile": ("reduce-overhead", "max-autotune")}


def judge_memory(judged: CellRules, allocator: "AllocatorFacts | None") -> Iterator[Verdict]:
    """Yield the verdicts on retries and on unused memory; allocator: what was noted of the unprofiled run."""
    judges = {RETRIES: _judge_retries, UNUSED: _judge_unused}
    for rule in judged.given["rules"]:
        judge = judges.get(rule["share"]) if rule["of"] == NOTED else None
        if judge and allocator and (found := judge(judged, rule, allocator)):
            yield found


def _judge_retries(judged: CellRules, rule: Rule, allocator: "AllocatorFacts") -> Verdict | None:
    """Return the verdict on retries, which cost what the calls of the driver for memory do; without a trace unknown."""
    if not allocator["retries"]:
        return None
    lead = f"{describe_retries(allocator)}: "
    if judged.replayed is None:
        row = judged.row(rule, 0.0, None, LAYER_LEVEL, EVIDENCE)
        return replace(
            row, level=CELL_LEVEL, metric="retries in the window", value=allocator["retries"], threshold=1, share=None,
            cured=None, gain=None, next_step=lead + row.next_step,
        )  # fmt: skip
    gain = judged.replayed.gain(RequestedChange(STALLS), judged.step, 0.0)
    if gain is None or (share := 1 - 1 / gain.gain) < rule["at_least"]:
        return None
    row = judged.row(rule, share, None, LAYER_LEVEL, f"{EVIDENCE}; program.npz: run again")
    # As of the verdict on allocator stalls, in whose place this one stands.
    row = add_wait_texts(replace(row, level=CELL_LEVEL, about=STALLS), judged.feasible)
    return judged.expect(replace(row, lead=lead))


def _judge_unused(judged: CellRules, rule: Rule, allocator: "AllocatorFacts") -> Verdict | None:
    """Return the verdict on memory that is held and that no tensor used; it has no gain by itself."""
    kept = any(judged.ran_with.get(name, False) in values for name, values in KEEPING.items())
    reserved, limit = allocator["reserved_bytes"], allocator["limit_bytes"]
    if kept or not limit or reserved < LARGE * limit:
        return None
    if (share := 1 - allocator["used_peak_bytes"] / reserved) < rule["at_least"]:
        return None
    row = judged.row(rule, share, None, LAYER_LEVEL, EVIDENCE)
    return replace(
        row, level=CELL_LEVEL, metric="share of the reserved memory: unused", share=None, gain=None,
        next_step=f"{describe_unused(allocator)}: {row.next_step}",
    )  # fmt: skip


def without_stalls(found: Sequence[Verdict]) -> list[Verdict]:
    """Return verdicts; the general one on the allocator's calls is left out where retries explain them."""
    explained = any(row.about == STALLS and row.metric == OF_RETRIES for row in found)
    return [row for row in found if not (explained and row.about == STALLS and row.metric != OF_RETRIES)]


def describe_retries(allocator: "AllocatorFacts") -> str:
    """Describe retries.

    >>> found = {"retries": 12, "driver_allocations": 40, "driver_frees": 38, "reserved_bytes": 76e9}
    >>> describe_retries(found | {"used_peak_bytes": 52e9, "limit_bytes": 80e9})[:71]
    'within the window the allocator found no block that fits and no more me'
    """
    times = "once" if allocator["retries"] == 1 else f"{allocator['retries']} times"
    return (
        f"within the window the allocator found no block that fits and no more memory {times}, waited for the GPU and "
        f"gave its free blocks back ({allocator['driver_allocations']} blocks taken from the driver, "
        f"{allocator['driver_frees']} given back); tensors use {_format(allocator['used_peak_bytes'])} at most, of "
        f"{_format(allocator['limit_bytes'])} that the process may take"
    )


def describe_unused(allocator: "AllocatorFacts") -> str:
    """Describe memory that is held and not used.

    >>> describe_unused({"reserved_bytes": 70 * 2**30, "used_peak_bytes": 42 * 2**30, "limit_bytes": 80 * 2**30})
    'the allocator holds 70.0 GiB of the 80.0 GiB that the process may take, and tensors never used more than 42.0 GiB'
    """
    return (
        f"the allocator holds {_format(allocator['reserved_bytes'])} of the {_format(allocator['limit_bytes'])} that "
        f"the process may take, and tensors never used more than {_format(allocator['used_peak_bytes'])}"
    )


def _format(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"
