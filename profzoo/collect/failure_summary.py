"""Reports failed jobs at the end of a run: subject, cause, log, and the command that repeats each."""

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profzoo.collect import failure_causes, logs, run_state
from profzoo.json_types import JsonObject

WHY_CHARACTERS = 600
WHAT = {"train": "weights"}
UNSAID = "nothing in its log says why: killed, out of memory, or out of time"
# Beginning of the line by which a model's program reports success (profzoo/run.py); such a line is no cause.
ENDED_WELL = re.compile(r"^\S+ (?:train|inference) on .+: \d+ steps of batch .+ parameters$")
AFTER = "its program ended well, and nothing in its log says what failed after: killed, out of memory, or out of time"


@dataclass(frozen=True)
class Failure:
    """A failed job: its rule, its wildcards by name, the text of its collecting job, and its files.

    unrun: titles of the measurements that did not run because of this failure. batch: message of the batch system,
    which takes precedence over the job's log.
    """

    rule: str
    wildcards: Mapping[str, str]
    job: str | None
    outputs: Sequence[str]
    logs: Sequence[str]
    unrun: Sequence[str] = ()
    batch: str = ""

    @property
    def described(self) -> JsonObject:
        """Description of the collecting job; empty for any other job."""
        return json.loads(self.job) if self.job else {}

    @property
    def why(self) -> str:
        """Cause of the failure, in one line."""
        return self.batch or read_cause(self.logs)

    @property
    def phase(self) -> str:
        """Phase of the failed cell; for a rule that times one cell, only the job description contains it."""
        return self.described.get("cell", {}).get("phase", self.wildcards.get("phase", ""))


def format_failures(failures: Iterable[Failure], unmade: int, words: Sequence[str], targets: Collection[str]) -> str:
    """Format one block of text per cause, for the end of a run; empty if nothing failed.

    Args:
        unmade: number of jobs that did not run because of the failures.
        words: command line of the run.
        targets: words of the command line that name targets.
    """
    ordered = sorted(failures, key=lambda one: (job_title(one), one.outputs))
    if not ordered:
        return ""
    groups = group_by_cause(ordered)
    ran = sum(len(group.failed) for group in groups)
    unmade += sum(len(group.spared) for group in groups)
    causes = f" of {len(groups)} causes" if 1 < len(groups) < ran else ""
    left = f", and {_jobs(unmade)} did not run because of {'it' if ran == 1 else 'them'}" if unmade else ""
    return "\n".join([f"{_jobs(ran)} failed{causes}{left}:", *(_block(group, words, targets) for group in groups)])


@dataclass(frozen=True)
class Cause:
    """Failures with one cause: the reason, the jobs that ran and failed, and jobs skipped for their failing model."""

    why: str
    failed: Sequence[Failure]
    spared: Sequence[Failure]


def group_by_cause(failures: Sequence[Failure]) -> list[Cause]:
    """Group failures by cause, in order of first failure; a failure of unknown cause is its own group."""
    groups: dict[str, list[tuple[Failure, str]]] = {}
    for place, one in enumerate(failures):
        line = one.why
        # Group over all cells.
        key = re.sub(r"^\S+ (train|inference)\b", "", run_state.failure_cause(line))
        groups.setdefault(f"{key} {place}" if line in (UNSAID, AFTER) else key, []).append((one, line))
    found = []
    for group in groups.values():
        ran = [one for one in group if not one[1].startswith(run_state.NOT_RUN)] or group[:1]
        spared = [one for one, _ in group if one not in [other for other, _ in ran]]
        found.append(Cause(run_state.failure_cause(ran[0][1]), [one for one, _ in ran], spared))
    return found


def _block(cause: Cause, words: Sequence[str], targets: Collection[str]) -> str:
    first, *others = cause.failed
    lines = [f"  {job_title(first)}", f"    why      {cause.why}"]
    lines += [f"    log      {log}" for log in first.logs]
    if first.outputs:
        lines.append(f"    repeat   {shlex.join(rerun_command(first.outputs[0], words, targets))}")
    if others:
        lines.append(f"    also     {'; '.join(job_title(one) for one in others)}")
    names = [job_title(one) for one in cause.spared] + [name for one in cause.failed for name in one.unrun]
    failed = {job_title(one) for one in cause.failed}
    if unrun := [name for name in dict.fromkeys(names) if name not in failed]:
        lines.append(f"    not run  {'; '.join(unrun)}")
    return "\n".join(lines)


def job_title(failure: Failure) -> str:
    """Describe what a failed job was about.

    >>> job_title(Failure("profile_ncu", {"model": "unet", "phase": "train", "set": "deep"}, '{"tool": "ncu"}', [], []))
    'unet train deep: ncu'
    >>> job_title(Failure("tabulate_verdicts", {}, None, [], []))
    'tabulate verdicts'
    """
    tool = failure.described.get("tool", "")
    what = WHAT.get(tool, tool) or failure.rule.replace("_", " ")
    about = {**failure.wildcards, "phase": failure.phase}
    cell = " ".join(word for word in about.values() if word)
    return f"{cell}: {what}" if cell else what


def read_cause(files: Sequence[str]) -> str:
    """Read from its logs why a job failed: one line without control characters."""
    printed = "\n".join(logs.read_excerpt(Path(log)) for log in files)
    lines = [line for line in printed.splitlines() if line.strip() and not line.startswith("$ ")]
    last = lines[-1].strip() if lines else UNSAID
    found = failure_causes.find_cause(printed) or (AFTER if ENDED_WELL.match(last) else last)
    found = logs.strip_log_path(found)
    return found if len(found) <= WHY_CHARACTERS else f"{found[:WHY_CHARACTERS]} …"


def rerun_command(output: str, words: Sequence[str], targets: Collection[str]) -> list[str]:
    """Command line that repeats a run for one output.

    >>> rerun_command("results/unet/train.time.csv", ["/bin/snakemake", "-j4", "all", "--config", "tool=nsys"], {"all"})
    ['snakemake', 'results/unet/train.time.csv', '-j4', '--config', 'tool=nsys']
    """
    return ["snakemake", output, *(word for word in words[1:] if word not in targets)]


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
