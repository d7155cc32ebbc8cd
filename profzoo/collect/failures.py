"""Tells at the end of a run which jobs failed: what each was about, why, where its log is, and how to repeat it."""

import json
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo.collect import diagnose, logs

WHY_CHARACTERS = 600
WHAT = {"train": "weights"}
UNSAID = "nothing in its log says why: killed, out of memory, or out of time"


@dataclass(frozen=True)
class Failure:
    """A job that failed: its rule, what its wildcards stood for, the description of what it collects, and its files."""

    rule: str
    wildcards: Mapping[str, str]
    job: str | None
    outputs: Sequence[str]
    logs: Sequence[str]

    @property
    def described(self) -> Mapping[str, Any]:
        """What it was to collect; nothing where it collects nothing."""
        return json.loads(self.job) if self.job else {}

    @property
    def phase(self) -> str:
        """Of its cell; the phase of a rule that times one is in its description alone."""
        return self.described.get("cell", {}).get("phase", self.wildcards.get("phase", ""))


def told(failures: Iterable[Failure], unmade: int, words: Sequence[str], targets: Collection[str]) -> str:
    """A block a failure, in words, for the end of a run; empty where nothing failed.

    Args:
        unmade: jobs that were not run because of them; words: the command line of the run; targets: the words of it
            that name what to make.
    """
    ordered = sorted(failures, key=lambda one: (_title(one), one.outputs))
    if not ordered:
        return ""
    left = f", and {_jobs(unmade)} that need what they make did not run" if unmade else ""
    return "\n".join([f"{_jobs(len(ordered))} failed{left}:", *(_block(one, words, targets) for one in ordered)])


def _block(failure: Failure, words: Sequence[str], targets: Collection[str]) -> str:
    lines = [f"  {_title(failure)}", f"    why    {why(failure.logs)}"]
    lines += [f"    log    {log}" for log in failure.logs]
    if failure.outputs:
        lines.append(f"    again  {shlex.join(again(failure.outputs[0], words, targets))}")
    return "\n".join(lines)


def _title(failure: Failure) -> str:
    """What a failed job is about.

    >>> _title(Failure("profile_ncu", {"model": "unet", "phase": "train", "set": "deep"}, '{"tool": "ncu"}', [], []))
    'unet train deep: ncu'
    >>> _title(Failure("tabulate_verdicts", {}, None, [], []))
    'tabulate verdicts'
    """
    tool = failure.described.get("tool", "")
    what = WHAT.get(tool, tool) or failure.rule.replace("_", " ")
    about = {**failure.wildcards, "phase": failure.phase}
    cell = " ".join(word for word in about.values() if word)
    return f"{cell}: {what}" if cell else what


def why(files: Sequence[str]) -> str:
    """Why a job failed, in one line without control characters, by what it printed."""
    printed = "\n".join(logs.excerpt(Path(log)) for log in files)
    lines = [line for line in printed.splitlines() if line.strip() and not line.startswith("$ ")]
    found = diagnose.cause(printed) or (lines[-1].strip() if lines else UNSAID)
    found = logs.unplaced(found)
    return found if len(found) <= WHY_CHARACTERS else f"{found[:WHY_CHARACTERS]} …"


def again(output: str, words: Sequence[str], targets: Collection[str]) -> list[str]:
    """The command line of a run, for one output alone.

    >>> again("results/unet/train.time.csv", ["/bin/snakemake", "-j4", "all", "--config", "tool=nsys"], {"all"})
    ['snakemake', 'results/unet/train.time.csv', '-j4', '--config', 'tool=nsys']
    """
    return ["snakemake", output, *(word for word in words[1:] if word not in targets)]


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
