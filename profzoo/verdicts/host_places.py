"""Says in verdicts on the host at which lines of the program it spends its time, as samples of a step showed them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from profzoo.tools.nsys.steps import INPUT
from profzoo.verdicts.feasibility import NAMED, describe_lines
from profzoo.verdicts.verdict import Verdict

if TYPE_CHECKING:
    from profzoo.cell.job_types import BlockingLine, HostLine

# Shares of rules, and the share of the step that is too little for a line to be named.
LOCK, WORK, DATA, COPIES = "lock_waits_removed", "host_work_removed", "idle_input", "copies_pinned"
TOO_LITTLE = 0.02
# Beginnings of files that are not the program's own, and names of the operations by which a program copies to a GPU.
OTHERS = ("torch/", "profzoo/")
COPYING = (".to()", ".cuda()", ".copy_()", "torch.tensor()", "torch.as_tensor()")
OPTIMIZER = "optimizer"
# What a DataLoader does, in the words of a sentence.
WORKS = {"reading": "reading samples", "collating": "collating samples", "": "the rest"}


def name_places(
    row: Verdict, host: "Sequence[HostLine] | None", waits: "Sequence[BlockingLine] | None" = None
) -> Verdict:
    """Return a verdict whose next step begins with the lines that it is about; the same where none is known.

    Args:
        row: the verdict. host: lines at which the host spends a step, None if none was sampled.
        waits: lines at which it waits for the GPU, None if none was observed.
    """
    find = {LOCK: _of_other_threads, WORK: _of_work, DATA: describe_input}.get(row.about)
    told = find(host) if find and host else ""
    if row.about == COPIES and waits:
        copies = [line for line in waits if line["operation"] in COPYING]
        told = describe_lines(copies) if copies else ""
    return replace(row, next_step=f"{told}: {row.next_step}") if told else row


def describe_places(lines: "Sequence[HostLine]") -> str:
    """Describe lines, those that take most of the step first; empty without any that takes TOO_LITTLE or more.

    >>> line = {"thread": "", "range": "forward", "work": "", "file": "net.py", "text": "for x in y:", "share": 0.2}
    >>> describe_places([line | {"line": 7, "function": "Net.scale"}, line | {"line": 8, "function": "Net.scale"}])
    'Net.scale at net.py:7, 40 % of the step'
    """
    sums: dict[tuple[str, str], list[float]] = {}
    for line in sorted(lines, key=lambda line: -line["share"]):
        entry = sums.setdefault((line["function"], line["file"]), [line["line"], 0.0])
        entry[1] += line["share"]
    ordered = sorted(sums.items(), key=lambda one: -one[1][1])
    return "; ".join(
        f"{function} at {file}:{line:.0f}, {share * 100:.0f} % of the step"
        for (function, file), (line, share) in ordered[:NAMED]
        if share >= TOO_LITTLE
    )


def _of_other_threads(host: "Sequence[HostLine]") -> str:
    """Describe the threads besides the launching one that ran, each with its lines."""
    names = dict.fromkeys(line["thread"] for line in host if line["thread"])
    told = {name: describe_places([line for line in host if line["thread"] == name]) for name in names}
    return "; ".join(f"thread '{name}' runs {places}" for name, places in told.items() if places)


def _of_work(host: "Sequence[HostLine]") -> str:
    """Describe the program's own lines at which the launching thread spends the step, besides input and optimizer."""
    apart = (*INPUT, OPTIMIZER)
    mine = [one for one in host if not one["thread"] and one["range"] not in apart]
    return describe_places([one for one in mine if not one["file"].startswith(OTHERS)])


def describe_input(host: "Sequence[HostLine]") -> str:
    """Describe how much of the step each kind of work on the input takes, and its lines; empty without any."""
    data = [one for one in host if not one["thread"] and one["range"] in INPUT]
    parts: dict[str, list[HostLine]] = {work: [line for line in data if line["work"] == work] for work in WORKS}
    told = []
    for work, lines in sorted(parts.items(), key=lambda part: -sum(line["share"] for line in part[1])):
        if (share := sum(line["share"] for line in lines)) >= TOO_LITTLE:
            places = describe_places(lines)
            told.append(f"{WORKS[work]} takes {share * 100:.0f} % of the step{f' ({places})' if places else ''}")
    return ", ".join(told)
