"""Explains failed jobs: known causes, what the batch system says, notes of a run, and a summary at its end."""

import errno
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo import tools
from profzoo.cell import rerun_commands
from profzoo.cell.job_types import Job
from profzoo.json_types import JsonObject
from profzoo.machine import doctor_checks, job_child
from profzoo.script_harness import launcher

# Lets jobs of one run share notes, in files beside Snakemake's own: printed messages and failed cells.

# Folder of the notes, in the folder that snakemake runs in; all nodes of a cluster share it.
FOLDER = Path(".snakemake/profzoo/run")
# Pattern of the line by which a model's program reports a failure of its own, under any tool (profzoo/run.py).
OF_MODEL = re.compile(r"^\S+ (?:train|inference)(?: failed with \w+: |: .*; try another seed)")
# Failures that a profiler may have caused: it needs memory itself and may disturb kernels.
OF_GPU = re.compile(r"CUDA|cu[A-Z]\w+|NCCL|out of memory|Accelerator")
# Beginning of the line about a job that was skipped for a known failure.
NOT_RUN = "not run under"
UNPROFILED = (tools.BASELINE, "train", "numerics", "remedies")


def is_first_time(line: str) -> bool:
    """Whether no job of this run has printed this line yet; always true outside of a run."""
    folder = _folder()
    if not folder:
        return True
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"said-{_digest(line)}").open("x").close()
    except FileExistsError:
        return False
    except OSError:
        # A repeated message does no harm.
        return True
    return True


def note_failure(job: Job, sidecar: Path, why: str) -> None:
    """Note that a job failed because of its model, so that the model would fail under any tool.

    sidecar: path of the job's sidecar, in the model's folder; why: the cause, in one line.
    """
    by_itself = OF_MODEL.match(why) and (job["tool"] in UNPROFILED or not OF_GPU.search(why))
    place = _place(job, sidecar)
    if place and by_itself:
        with suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps({"tool": job["tool"], "why": why}))


def find_known_failure(job: Job, sidecar: Path) -> str | None:
    """Message that the job's model already failed in this run under another tool, and why; None if not."""
    place = _place(job, sidecar)
    try:
        told = json.loads(place.read_text()) if place else {}
    except (OSError, ValueError):
        return None
    if not told or told["tool"] == job["tool"]:
        return None
    under = "for its weights" if told["tool"] == "train" else f"under {told['tool']}"
    return f"{NOT_RUN} {job['tool']}, because it failed {under}: {told['why']}"


def failure_cause(line: str) -> str:
    """Extract the original cause from a line that may report a job skipped because of it.

    >>> failure_cause("not run under time, because it failed under torch: a cat"), failure_cause("a cat")
    ('a cat', 'a cat')
    """
    return re.sub(rf"^{NOT_RUN} \w+, because it failed [^:]*: ", "", line)


def forget_run(others: bool = False) -> None:
    """Delete this run's notes; others: those of every run."""
    if folder := FOLDER if others else _folder():
        shutil.rmtree(folder, ignore_errors=True)


def _place(job: Job, sidecar: Path) -> Path | None:
    """Path of the failure note of this job's cell; None for jobs that run several cells, or none."""
    folder, phase = _folder(), job["cell"].get("phase")
    alone = "sides" not in job and "trials" not in job
    return folder / f"failed-{_digest(f'{sidecar.parent}/{phase}')}" if folder and phase and alone else None


def _folder() -> Path | None:
    run = os.environ.get(job_child.OWNER)
    return FOLDER / _digest(run) if run else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


# Reads logs of any size and content: limited in length, and safe to show on a terminal or page.

# A log has the cause of a failure near its end, and the command near its beginning.
READ_BYTES = 1 << 20


def read_excerpt(log: Path) -> str:
    """Beginning and end of a log, at most READ_BYTES, without control characters; empty if there is no log."""
    if not log.is_file():
        return ""
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        content = file.read(min(size, READ_BYTES // 2))
        file.seek(max(size - READ_BYTES // 2, len(content)))
        gap = b"\n" if file.tell() > len(content) else b""
        content += gap + file.read()
    return strip_control_characters(content.decode(errors="replace"))


def strip_log_path(line: str) -> str:
    """Remove the path of the log from the end of a failure's line.

    >>> strip_log_path("nsys was killed (SIGKILL) (log: results/logs/a.log)")
    'nsys was killed (SIGKILL)'
    """
    return re.sub(r"\s*\(log: [^)]*\)$", "", line)


def strip_control_characters(text: str) -> str:
    """Remove control characters from a text, except line ends and tabs.

    >>> strip_control_characters("\\x1b[31mred\\x1b[0m\\a 1 %\\r2 %")
    'red 1 %\\n2 %'
    """
    text = re.sub(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.)", "", text.replace("\r\n", "\n"))
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", text.replace("\r", "\n"))


# Records what a batch system says about jobs that it refuses or ends, and explains it in one line.

# Messages of Snakemake's Slurm plugin: sbatch refused a job, or a job ended in a state.
REFUSED = re.compile(r"SLURM sbatch failed\. The error message was '(.*?)'\.$", re.DOTALL | re.MULTILINE)
ENDED = re.compile(r"SLURM status is: '(\w+)")
SAID_BY = re.compile(r"^(sbatch|srun): (error: )?", re.MULTILINE)
ADVICE = (
    (r"partition", "`sinfo` lists the partitions; slurm_partition names one, under default-resources or set-resources"),
    (r"[Mm]emory", "ask for less, by --set-resources {rule}:mem_mb=MB, or for another partition by slurm_partition"),
    (r"time limit", "ask for less, by --set-resources {rule}:runtime=MINUTES, or for another partition"),
    (r"account", "slurm_account names one, under default-resources or set-resources"),
    (r"node configuration|[Nn]ode count|processors|CPU count|gres", "no node there has so much: {asked}"),
)
# States that the job's own log does not mention.
STATES: Mapping[str, str] = {
    "TIMEOUT": "at its limit of {runtime} minutes: give it more by --set-resources {rule}:runtime={more_runtime}",
    "DEADLINE": "at its deadline",
    "OUT_OF_MEMORY": "because it took more than {mem_mb} MB: "
    "give it more by --set-resources {rule}:mem_mb={more_mem_mb}",
    "CANCELLED": "because it was cancelled (scancel)",
    "PREEMPTED": "for another job: run snakemake again, or name another partition",
    "NODE_FAIL": "because its node failed: run snakemake again",
    "BOOT_FAIL": "because its node did not start: run snakemake again",
}


class BatchMessages:
    """Messages of a batch system, by Snakemake's job numbers."""

    def __init__(self) -> None:
        """Start without messages."""
        self.said: dict[int, str] = {}

    def heed(self, executor: Any) -> None:
        """Record this executor's messages on failing jobs from now on; Snakemake drops those of grouped jobs."""
        tell = executor.print_job_error

        def noted(job_info: Any, msg: str | None = None, **more: Any) -> None:
            job = job_info.job
            for one in job.jobs if job.is_group() else [job]:
                if line := explain_failure(msg or "", one.rule.name, dict(job.resources.items())):
                    self.said[one.jobid] = line
            tell(job_info, msg, **more)

        executor.print_job_error = noted


def explain_failure(message: str, rule: str, asked: Mapping[str, object]) -> str:
    """Explain in one line why a batch system did not run a job to its end; empty if the job's own log explains it.

    rule: rule of the job; asked: resources that the job requested.

    >>> explain_failure("SLURM-job '7' failed, SLURM status is: 'TIMEOUT'.", "profile_nsys", {"runtime": 30})
    'Slurm ended it at its limit of 30 minutes: give it more by --set-resources profile_nsys:runtime=60'
    >>> explain_failure("SLURM-job '7' failed, SLURM status is: 'FAILED'.", "profile_nsys", {})
    ''
    """
    if refused := REFUSED.search(message):
        lines = [line.strip() for line in SAID_BY.sub("", refused[1]).splitlines() if line.strip()]
        line = "; ".join(dict.fromkeys(lines))
        keys = ("gpu", "gpu_model", "gres", "nodes", "mem_mb", "runtime")
        told = ", ".join(f"{key}={asked[key]}" for key in keys if asked.get(key))
        advice = next((words for pattern, words in ADVICE if re.search(pattern, line)), "")
        return f"Slurm refused it: {line}" + (f": {advice.format(rule=rule, asked=told)}" if advice else "")
    ended = ENDED.search(message)
    if not ended or ended[1] not in STATES:
        return ""
    numbers = {key: asked.get(key) for key in ("runtime", "mem_mb")}
    more = {f"more_{key}": 2 * value if isinstance(value, int) else "MORE" for key, value in numbers.items()}
    return f"Slurm ended it {STATES[ended[1]].format(rule=rule, **numbers, **more)}"


# Writes Snakemake's objections to a job's output files into the job's log, where users look for causes.
#
# Snakemake may refuse the files of a program that succeeded; the log would then end with the program's success.
# Snakemake prints its reason among messages of other jobs, or in processes on other nodes, whose output the run does
# not see.
OLDER = re.compile(
    r"Output (?P<made>.+?) has older modification time \((?P<now>.+?)\) than input (?P<of>.+?) \((.+?)\)"
)
MISSING = "some output files are missing"


def note_refusals(dag: Any) -> None:
    """Record from now on Snakemake's objections, by this DAG class, to the files that jobs made."""
    check = dag.check_and_touch_output
    if hasattr(check, "noted"):
        return

    async def noted(self: Any, job: Any, *arguments: Any, **more: Any) -> None:
        try:
            await check(self, job, *arguments, **more)
        except Exception as error:
            for log in job.log:
                # A full disk or an unreachable log must not hide the error itself.
                with suppress(OSError), Path(log).open("a") as file:
                    print(f"profzoo: {explain_refusal(str(error))}", file=file)
            raise

    noted.noted = True  # type: ignore[attr-defined]
    dag.check_and_touch_output = noted


def explain_refusal(message: str) -> str:
    """Turn Snakemake's message about a job's files into one line that says what to do.

    >>> printed = "Output a.csv has older modification time (7:00) than input m.py (8:00). This could"
    >>> explain_refusal(printed).split(": ")[0]
    'a.csv, made at 7:00, would be older than m.py of 8:00'
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if found := OLDER.search(message):
        return (
            f"{found['made']}, made at {found['now']}, would be older than {found['of']} of {found[4]}: the clock was "
            f"set back, or differs between machines; set it right, and then `touch {found['of']}`"
        )
    if MISSING in message:
        # One line per file, after a line about the time that Snakemake waited for them.
        gone = [line.split(" (")[0] for line in lines[1:]]
        return f"its program succeeded but left no {', '.join(gone) or 'output file'}"
    return "; ".join(lines)


# Recognises known failures of collecting commands and explains what to do about each.
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
MORE = "take a smaller batch or fewer workers, or ask for more with --set-resources RULE:mem_mb=MB"
# Largest number of characters kept of a line that names a cause.
LONGEST = 2000
KILLED = f"by a user, or by a batch system because it took too much memory or time; {MORE}"
STARVED = f"by the kernel, which had no memory left: {MORE}"
FULL = "no space is left on the disk: free some, or give other folders by TMPDIR and by pathvars in the configuration"
CLOSED = "give the right to write there, or another folder by pathvars in the configuration"
CURES: Mapping[int, str] = {
    errno.ENOSPC: FULL, errno.EDQUOT: FULL, errno.EACCES: CLOSED, errno.EPERM: CLOSED, errno.EROFS: CLOSED
}  # fmt: skip
FILES = ("../tools/*/failures.py",)
EXTENDED = ("tools/*/failures.py",)
# Failures that any tool may have; these patterns are tried first.
CAUSES: Sequence[tuple[str, str]] = (
    (
        r"unrecogni[sz]ed option",
        "the tool does not know one of the options: see ncu.extra and nsys.extra, or its version is too old",
    ),
    (r"[Nn]o space left on device|[Dd]isk quota exceeded", FULL),
    (
        r"DataLoader worker \(pid.* is killed by signal|out of shared memory",
        "a process that loads data was killed: lower workers, or give it more memory, which it takes of /dev/shm too",
    ),
    (r"CUDA out of memory|CUDA error: out of memory", "the GPU's memory is not enough: set a smaller batch"),
    *doctor_checks.ON_GPU,
    (r"the command was ended by SIGKILL", KILLED),
    (
        r"(?m)^MemoryError|[Cc]annot allocate memory|can't allocate memory|std::bad_alloc",
        f"the memory of this machine, or the job's limit of it, is not enough: {MORE}",
    ),
)


def find_cause(log: str) -> str | None:
    """Find the cause of a failure in the job's output; lines from the model's own program take precedence."""
    own = list(re.finditer(r"^profzoo: (.*)$", log, re.MULTILINE))
    if not own:
        return doctor_checks.match_cause(log, known_patterns())
    line = own[-1][1]
    if launcher.UNEXPLAINED in line and (printed := _last_printed(log[: own[-1].start()])):
        line = f"{line}; it printed last: {printed}"
    # Its supervisor says why a script was to end, and the script's own process where it was then.
    places = [one[1].partition(": ")[2] for one in own if launcher.STOPPED in one[1]]
    reasons = [one[1] for one in own if launcher.STOPPED not in one[1]]
    if places and reasons:
        line = f"{reasons[-1]}; {places[-1]}"
    return add_advice(line if len(line) <= LONGEST else f"{line[:LONGEST]} …")


def _last_printed(log: str) -> str:
    """Last line in a log that a script has printed: not the command, nor a line of a profiler; empty if there is none.

    >>> _last_printed("$ ncu python train.py\\nno device\\n==PROF== Disconnected from process 7\\n\\n")
    'no device'
    """
    lines = [line.strip() for line in log.splitlines()]
    return next((line for line in reversed(lines) if line and not line.startswith(("$ ", "==", "profzoo: "))), "")


def add_advice(line: str) -> str:
    """Add known advice to a line about a failure, unless the line contains advice already.

    >>> add_advice("unet train ran out of memory at batch 64: set a smaller batch. CUDA out of memory.")
    'unet train ran out of memory at batch 64: set a smaller batch. CUDA out of memory.'
    """
    advice = doctor_checks.match_cause(line, CAUSES)
    return f"{line}; {advice}" if advice and advice.rpartition(": ")[2] not in line else line


def explain_os_error(error: OSError) -> str:
    """Explain an error of the operating system, and what to do about it.

    >>> explain_os_error(PermissionError(13, "Permission denied", "results")).partition(";")[0]
    'results: Permission denied'
    """
    line = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
    cure = CURES.get(error.errno or 0)
    return f"{line}; {cure}" if cure else line


def explain_exit(program: str, code: int, starved: bool = False) -> str:
    """Describe how a program failed.

    code: exit code; for a signal, 128 plus its number as in a shell, or the negative number. starved: whether the
    kernel killed processes for lack of memory during the run.

    >>> explain_exit("nsys", 137, starved=True).partition(": ")[0]
    'nsys was killed (SIGKILL)'
    >>> explain_exit("ncu", -11)
    'ncu crashed (SIGSEGV)'
    >>> explain_exit("python", 3)
    'python ended with exit code 3'
    """
    number = -code if code < 0 else code - 128
    names = {member.value: member.name for member in signal.Signals}
    if number == signal.SIGKILL:
        return f"{program} was killed (SIGKILL): {STARVED if starved else KILLED}"
    if number in CRASHES:
        return f"{program} crashed ({names[number]})"
    return f"{program} was ended by {names[number]}" if number in names else f"{program} ended with exit code {code}"


def known_patterns() -> list[tuple[str, str]]:
    """List pattern and explanation of known failures: general ones, then those of each tool."""
    return [*CAUSES, *(one for failures in tools.failures().values() for one in failures.CAUSES)]


def find_warnings(log: str) -> list[str]:
    """Warnings of the tool in its log, each listed once."""
    found = re.findall(r"^(?:==WARNING==|WARNING:|Warning:)\s*(.+)$", log, re.MULTILINE)
    return list(dict.fromkeys(line.strip() for line in found))


# Reports failed jobs at the end of a run: subject, cause, log, and the command that repeats each.
WHY_CHARACTERS = 600
# A command in a message that makes a file again.
OFFERED = re.compile(r"`(snakemake --force [^`]+)`")
CONFIG = ("--config", "-C")
WHAT = {"train": "weights"}
UNSAID = "nothing in its log says why: killed, out of memory, or out of time"
# Beginning of the line by which a model's program reports success (profzoo/run.py); such a line is not a cause.
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
        # Group over all cells, and over the lines of their programs.
        key = re.sub(r"^\S+ (train|inference)\b| \([^()]+:\d+\)", "", failure_cause(line))
        groups.setdefault(f"{key} {place}" if line in (UNSAID, AFTER) else key, []).append((one, line))
    found = []
    for group in groups.values():
        ran = [one for one in group if not one[1].startswith(NOT_RUN)] or group[:1]
        spared = [one for one, _ in group if one not in [other for other, _ in ran]]
        found.append(Cause(failure_cause(ran[0][1]), [one for one, _ in ran], spared))
    return found


def _block(cause: Cause, words: Sequence[str], targets: Collection[str]) -> str:
    first, *others = cause.failed
    lines = [f"  {job_title(first)}", f"    why      {complete_commands(cause.why, words, targets)}"]
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
    printed = "\n".join(read_excerpt(Path(log)) for log in files)
    lines = [line for line in printed.splitlines() if line.strip() and not line.startswith("$ ")]
    last = lines[-1].strip() if lines else UNSAID
    found = find_cause(printed) or (AFTER if ENDED_WELL.match(last) else last)
    found = strip_log_path(found)
    return found if len(found) <= WHY_CHARACTERS else f"{found[:WHY_CHARACTERS]} …"


def rerun_command(output: str, words: Sequence[str], targets: Collection[str], setting: str = "") -> list[str]:
    """Command line that repeats a run for one output; setting: a further one, as KEY=VALUE.

    >>> rerun_command("results/unet/train.time.csv", ["/bin/snakemake", "-j4", "all", "--config", "tool=nsys"], {"all"})
    ['snakemake', 'results/unet/train.time.csv', '-j4', '--config', 'tool=nsys']
    >>> rerun_command("report", ["snakemake", "all", "--config", "tool=torch", "-j4"], {"all"}, "collect=false")
    ['snakemake', 'report', '--config', 'collect=false', 'tool=torch', '-j4']

    A user of `profzoo advise` typed no words of Snakemake, and goes on by the same command.
    """
    if (advised := os.environ.get(rerun_commands.ADVISED)) is not None:
        return ["profzoo", "advise", *shlex.split(advised)]
    again = [word for word in words[1:] if word not in targets]
    if setting:
        # Of several options --config, Snakemake takes the last.
        places = [place for place, word in enumerate(again) if word in CONFIG]
        start = places[-1] + 1 if places else len(again)
        again[start:start] = [setting] if places else [CONFIG[0], setting]
    return ["snakemake", output, *again]


def complete_commands(text: str, words: Sequence[str], targets: Collection[str]) -> str:
    """Return a message in which commands that make a file again have the options of the run, and so its tools.

    >>> complete_commands("cut off: `snakemake --force a.csv` makes it again", ["snakemake", "all", "-j4"], {"all"})
    'cut off: `snakemake --force a.csv -j4` makes it again'
    """
    again = [word for word in words[1:] if word not in targets]
    return OFFERED.sub(lambda found: f"`{found[1]} {shlex.join(again)}".rstrip() + "`", text)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
