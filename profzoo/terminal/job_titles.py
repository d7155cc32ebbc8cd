"""Names jobs of the workflow for readers: cell and tool of a measurement, or the kind of another job's outputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo.tools import BASELINE

# Measuring rules besides the rules of tools: their names for readers, and the phase if no wildcard holds it.
MEASURING: Mapping[str, tuple[str, str]] = {
    "train_weights": ("weights", "train"),
    "time_training": (BASELINE, "train"),
    "time_inference": (BASELINE, "inference"),
    "time_in_turn": ("comparison", ""),
    "measure_peaks": ("peaks", ""),
    "measure_links": ("links", ""),
    "probe_ncu": ("probe", ""),
    "try_settings": ("trials", ""),
}
# Beginning of the names of tools' rules, such as profile_ncu and profile_ncu_sampled.
OF_TOOLS = "profile_"
# Kinds of outputs of other jobs, by the first word of their rules.
KINDS = {"tabulate": "tables", "expect": "tables", "draw": "figures", "write": "pages"}
EXPORTS = "exports"


@dataclass(frozen=True)
class Task:
    """Describes a job for readers.

    cell: the cell, such as `unet train`; empty for a job on all cells. what: the tool (`nsys`, `ncu deep`), or the kind
    of its outputs. measures: whether it is a measurement. outputs, sidecar, benchmark, logs: paths of its files.
    """

    rule: str
    cell: str
    what: str
    measures: bool
    outputs: tuple[str, ...] = ()
    sidecar: str = ""
    benchmark: str = ""
    logs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return cell and tool, with which lines about the job begin."""
        return f"{self.cell}  {self.what}" if self.cell else self.what


def rule_kind(rule: str) -> tuple[str, str, bool]:
    """Return a rule's name for readers, its phase if no wildcard holds it, and whether it measures.

    >>> rule_kind("profile_ncu_sampled"), rule_kind("time_training"), rule_kind("draw_figure")
    (('ncu', '', True), ('time', 'train', True), ('figures', '', False))
    """
    if rule in MEASURING:
        return *MEASURING[rule], True
    first, *rest = rule.split("_")
    return (rest[0], "", True) if rule.startswith(OF_TOOLS) else (KINDS.get(first, EXPORTS), "", False)


def describe_job(job: Any) -> Task:
    """Describe one of Snakemake's jobs, without its params, because these take long to compute for a whole zoo."""
    rule, wildcards = job.rule.name, dict(job.wildcards_dict)
    what, phase, measures = rule_kind(rule)
    named = [wildcards.get("model", wildcards.get("gpu", "")), wildcards.get("phase", phase)]
    files: dict[str, tuple[str, ...]] = {name: tuple(map(str, getattr(job, name))) for name in ("output", "log")}
    return Task(
        rule,
        " ".join(filter(None, named)),
        f"{what} {wildcards['set']}" if measures and "set" in wildcards else what,
        measures,
        files["output"],
        str(getattr(job.output, "sidecar", "")) if measures else "",
        str(job.benchmark or ""),
        files["log"],
    )


def cell_folder(task: Task) -> Path:
    """Return the folder of a measured cell's files."""
    return Path(task.sidecar).parent
