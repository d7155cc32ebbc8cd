"""A logger plugin of Snakemake: prints a plan, one line per measurement, each warning once, and errors in one line."""

import difflib
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from snakemake.logging import LogEvent, LogHandlerBase

from profzoo import formatting
from profzoo.cell import rerun_commands
from profzoo.collect.failures import explain_os_error
from profzoo.collect.version_changes import UNMEASURED
from profzoo.formatting import format_count, format_estimate, join_first_names
from profzoo.machine import job_limits
from profzoo.records import derived_outputs
from profzoo.terminal import run_end, run_plan
from profzoo.terminal.run_plan import Place, Progress
from profzoo.tools import unavailable_tools
from profzoo.workflow import snakemake_internals, up_to_date

# Shortens Snakemake's messages about a wrong command line or configuration to one line.

# The functions in which profzoo's own checks raise errors; their messages need no traceback.
CHECKED = re.compile(r"^  File .*(, in run_checked|run_locks\.py\", line \d+, in lock)$", re.MULTILINE)
# What the operating system refused to Snakemake itself, at the end of a traceback or within a message.
REFUSED = re.compile(r"\[Errno (?P<number>\d+)\] (?P<why>[^:\n)]+)(?:: '(?P<path>[^'\n]*)')?")
OWN_FOLDER = ".snakemake"
PLACES = re.compile(r"^(  File .*|\w+(Error|Exception)( in (file|rule) .*)?:)$")
# The same raised by an input function, which Snakemake surrounds with the rule and its wildcards.
FROM_INPUT = re.compile(
    r"^InputFunctionException in rule .*?^  WorkflowError:\n    (?P<said>.*?)\nWildcards:", re.M | re.S
)
MISSING = re.compile(r"^No rule to produce (\S+) \(if you use input functions", re.MULTILINE)
# A file that a rule needs and no rule makes.
NEEDED = re.compile(r"^MissingInputException in rule (\w+)\b", re.MULTILINE)
AFFECTED = re.compile(r"^\s+affected files:\n((?:\s+.+\n?)+)", re.MULTILINE)
SHOWN = 2
# Behind a file that Snakemake looks for in a storage, as profiles/kubernetes has one.
STORED = " (in storage)"
# Names of results that only cells on several GPUs have, such as `train.nsys-ranks`, and what is said of them.
OF_SEVERAL_GPUS = re.compile(r"\.(\w+-ranks|torch-collectives|torch-skew)\b")
SET_GPUS = "only cells on several GPUs have it: set gpus to 2 or more"
HELP = "`snakemake help` says what can be made"
# Messages at the end of a run that repeat failures which were reported before.
TOLD = (
    "At least one job did not complete successfully.",
    "non-zero exit status",
    "' died with <Signals.",
    "Exiting because a job execution failed",
)


def shorten_error(message: str, targets: Collection[str], collects: bool) -> str:
    """Return Snakemake's message about an error, shortened; empty if the error has been reported before.

    targets: names of rules that a user may type. collects: whether the run may measure (the setting `collect`).

    >>> message = "MissingRuleException:\\nNo rule to produce figuers (if you use input functions ..."
    >>> shorten_error(message, ["figures"], collects=True)
    "no rule or file 'figuers': did you mean 'figures'? `snakemake help` says what can be made"
    >>> where = "InputFunctionException in rule x in file y:\\nError:\\n"
    >>> shorten_error(where + "  WorkflowError:\\n    set z\\nWildcards:\\n", [], collects=True)
    'set z'
    """
    if any(line in message for line in TOLD):
        return ""
    if missing := MISSING.search(message):
        if OF_SEVERAL_GPUS.search(missing[1]):
            return f"no rule or file '{missing[1]}': {SET_GPUS}"
        near = difflib.get_close_matches(missing[1], targets, n=1)
        hint = f": did you mean '{near[0]}'? {HELP}" if near else f"; {HELP}"
        return f"no rule or file '{missing[1]}'{hint}"
    if (needed := NEEDED.search(message)) and (files := AFFECTED.search(message)):
        return _explain_needed(files[1], needed[1], collects)
    if asked := FROM_INPUT.search(message):
        return asked["said"]
    if (refused := REFUSED.search(message)) and OWN_FOLDER in message:
        path = refused["path"] or OWN_FOLDER
        return explain_os_error(OSError(int(refused["number"]), refused["why"].strip(), path))
    if CHECKED.search(message):
        return "\n".join(line for line in message.splitlines() if line.strip() and not PLACES.match(line))
    return message


def _explain_needed(affected: str, rule: str, collects: bool) -> str:
    """Explain why no rule makes what a rule needs; the advice names a setting only where that is the reason.

    affected: Snakemake's list of the files.
    """
    files = affected.replace(STORED, "").split()
    if STORED in affected:
        return (
            f"{rule} needs {join_first_names(files, SHOWN)} from the storage of the profile, and finds nothing "
            "there: call snakemake in the project on the volume that pods mount, at the path of default-storage-prefix"
        )
    line = f"no rule of this run makes {join_first_names(files, SHOWN)}, which {rule} needs"
    if not collects:
        # The rules that measure are left out.
        return f"{line}; with collect=false nothing is measured"
    if all(OF_SEVERAL_GPUS.search(file) for file in files):
        return f"{line}: {SET_GPUS}"
    return f"{line}; {HELP}"


# Lists the rules for `snakemake --list`: first the rules for users, then the rules behind them.

TYPED = ("all", "report", "figures", "perfetto", "compare", "trials", *UNMEASURED)
FIRST = "Rules for users; `snakemake help` explains their options:"
THEN = "Rules behind these, which make single files; `snakemake FILE` makes one:"


def format_rules(rules: Mapping[str, str]) -> str:
    """Return the list of rules as text.

    rules: description of each rule, by name.

    >>> print(format_rules({"tabulate": "Join.", "all": "Make."}))
    Rules for users; `snakemake help` explains their options:
    all (Make.)
    <BLANKLINE>
    Rules behind these, which make single files; `snakemake FILE` makes one:
    tabulate (Join.)
    """
    typed = [name for name in TYPED if name in rules]
    others = sorted(set(rules) - set(typed))
    return "\n".join([FIRST, *_lines(typed, rules), *(["", THEN, *_lines(others, rules)] if others else [])])


def _lines(names: Iterable[str], rules: Mapping[str, str]) -> Iterable[str]:
    return (f"{name} ({rules[name]})" if rules[name] else name for name in names)


# Beginnings of Snakemake's messages that are not shown. Any other message is shown.
NOISE = (
    "Building DAG of jobs", "Using shell:", "Provided ", "Rules claiming", "Singularity containers: ignored",
    "Group jobs:", "Conda environments: ignored", "Select jobs to execute", "Assuming unrestricted shared",
    "Config file ", "Removing temporary output", "Would remove temporary output", "Reasons:", "This was a dry-run",
    "Some jobs were triggered by", "Rules with provenance triggered", "Elapsed time:", "Processed ",
    "Storing output in storage", "Multiple includes of", "Exiting because a job execution failed",
    "DAG of jobs will be updated after completion", "Updating checkpoint dependencies",
)  # fmt: skip
LOG = "Complete log(s):"
# Snakemake's message of a run whose files are all up to date; it runs no hook then.
NOTHING = "Nothing to be done"
# What `profzoo advise` says instead.
UNCHANGED = "nothing has changed since the last run, which said:"
# Seconds without a message after which the progress of other jobs is shown.
SILENCE_S = 20.0
# Snakemake's messages when a user ends a run, by SIGINT or SIGTERM; jobs that fail afterwards were ended by this.
ENDING = ("Terminating processes on user request", "Will exit after finishing currently running jobs")
COLOURS = {"failed": "31", "warning": "33", "dim": "2", "bold": "1"}
Planned = Callable[[], tuple[Progress, Place, float, Mapping[int, Sequence[str]]]]
# Outputs by rule, of the jobs that have finished or that are up to date.
Made = Callable[[], Mapping[str, Sequence[str]]]


class LogHandler(LogHandlerBase):
    """Prints Snakemake's events of a run for a reader; `attach` sets the stream and the run."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        """Initialise the handler before its run is known."""
        self.progress: Progress | None = None
        self.place = Place(0, False)
        self.said: set[str] = set()
        self.ended = False
        self.ended_jobs: set[int] = set()
        self.began = self.spoke = time.monotonic()
        # Functions that say what a rule without outputs would do, by name of the rule; a dry run prints that.
        self.foretold: dict[str, Callable[[], Sequence[str]]] = {}
        self.answered = False
        self.attach(sys.stderr, _nothing, tuple, lambda: True, dict)

    def attach(
        self,
        stream: TextIO,
        planned: Planned,
        targets: Callable[[], Sequence[str]],
        collects: Callable[[], bool],
        made: Made,
    ) -> None:
        """Set the stream, and functions that return the planned run and the names of rules that a user may type.

        collects: function that returns whether the run may measure (the setting `collect`). made: function that returns
        the tables and pages that the run has made, or found up to date.
        """
        self.stream, self.planned, self.targets, self.collects, self.made = stream, planned, targets, collects, made
        self.terminal = bool(getattr(stream, "isatty", bool)())
        plain = self.common_settings.nocolor or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self.colours = self.terminal and not plain

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message about a record, if any; an error in this handler does not end the run."""
        try:
            self._tell(record)
        except Exception:
            self.handleError(record)

    def say(self, line: str, colour: str = "") -> None:
        """Print a line, in colour if the terminal shows colours."""
        self.spoke = time.monotonic()
        self.stream.write(f"\033[{COLOURS[colour]}m{line}\033[0m\n" if colour and self.colours else f"{line}\n")
        self.stream.flush()

    def close_run(self) -> None:
        """Print the summary at the end of the run."""
        if self.progress:
            answer, seconds = self._answer(self.made()), time.monotonic() - self.began
            for line in run_end.format_run_end(self.progress, seconds, answer, self.width, self.ended):
                self.say(line)

    def note_ending(self) -> None:
        """Note that the user, or a batch system, ends the run; jobs that fail from now on were ended by this."""
        self.ended = True

    def say_answer(self, made: Mapping[str, Sequence[str]]) -> None:
        """Print the largest gains, unless this run has done so; made: outputs by rule."""
        if not self.answered:
            for line in self._answer(made):
                self.say(line)

    def _answer(self, made: Mapping[str, Sequence[str]]) -> list[str]:
        found = run_end.format_answer(made, self.width)
        self.answered = bool(found)
        return found

    def ended_by_user(self, number: int) -> bool:
        """Return whether a job ended because the user had ended the run."""
        return number in self.ended_jobs

    @property
    def width(self) -> int:
        """Return the number of characters that a line may have."""
        if not self.terminal:
            return formatting.ENDLESS
        try:
            return os.get_terminal_size(self.stream.fileno()).columns
        except OSError:
            return shutil.get_terminal_size().columns

    def _tell(self, record: logging.LogRecord) -> None:
        event, now = getattr(record, "event", None), time.monotonic()
        if event == LogEvent.RUN_INFO:
            self._plan()
        elif event == LogEvent.JOB_STARTED:
            for number in getattr(record, "jobs", ()):
                self._progress().start(number, now)
        elif event == LogEvent.JOB_FINISHED:
            self._finished(record.job_id, now)  # type: ignore[attr-defined]
        elif event == LogEvent.JOB_ERROR:
            self._failed(record.jobid)  # type: ignore[attr-defined]
        elif event == LogEvent.GROUP_ERROR:
            for job in record.job_error_info:  # type: ignore[attr-defined]
                self._failed(job["jobid"])
        elif event == LogEvent.ERROR:
            if line := shorten_error(record.getMessage(), self.targets(), self.collects()):
                self.say(line, "failed")
        elif event is None:
            self._plainly(record)

    def _plainly(self, record: logging.LogRecord) -> None:
        message = record.getMessage() if record.msg else ""
        if message.startswith(ENDING):
            if self.ended:
                return
            self.ended = True
        wanted = not message.startswith((*NOISE, *(() if self.progress and self.progress.failed else (LOG,))))
        if record.levelno < logging.INFO or not message.strip() or not wanted:
            return
        if record.levelno >= logging.WARNING:
            if message in self.said or any(line in message for line in TOLD):
                return
            self.said.add(message)
        if message.startswith(NOTHING) and rerun_commands.ADVISED in os.environ:
            message = UNCHANGED
        self.say(message.strip("\n"), "warning" if record.levelno >= logging.WARNING else "")
        if message.startswith((NOTHING, UNCHANGED)) and not self.common_settings.dryrun:
            self.say_answer(made := self.made())
            for line in run_end.name_pages(made.get(run_end.PAGE_RULE, ())):
                self.say(line)

    def _progress(self) -> Progress:
        if self.progress is None:
            self.progress, self.place, *_ = self.planned()
        return self.progress

    def _plan(self) -> None:
        # Snakemake announces a dry run twice.
        if self.progress is not None:
            return
        self.progress, self.place, guessed, reasons = self.planned()
        if line := run_plan.plan_headline(self.progress, self.place, guessed):
            self.say(line, "bold")
        for line in unavailable_tools.list_unable_tools(self.place.unable):
            self.say(line, "warning")
        if self.common_settings.dryrun:
            foretold = (self.foretold.get(task.rule, tuple)() for task in self.progress.tasks.values())
            screen = run_plan.dry_run_screen(self.progress, reasons, self.width)
            for line in chain(screen, chain.from_iterable(foretold)):
                self.say(line)

    def _finished(self, number: int, now: float) -> None:
        progress = self._progress()
        if number not in progress.tasks:
            return
        took, task = progress.finish(number, now), progress.tasks[number]
        if task.measures:
            self._line(number, run_end.summarise_measurement(task, took), now)
        elif now - self.spoke > SILENCE_S:
            over, all_of_them = progress.counted(False)
            self._parts([task.what, f"{over} of {format_count(all_of_them, 'job')}", *self._left(now)])
        for line in run_end.format_first_plan(progress, number, self.width, self.place.unable):
            self.say(line)

    def _failed(self, number: int) -> None:
        progress, now = self._progress(), time.monotonic()
        if number not in progress.tasks:
            return
        task = progress.tasks[number]
        if self.ended:
            self.ended_jobs.add(number)
            self._parts([f"{task.cell or task.rule}  {task.what}", "ended"], "dim")
            return
        progress.fail(number)
        if task.measures:
            self._line(number, ["failed"], now, "failed")
        else:
            self._parts([f"{task.rule.replace('_', ' ')} {task.cell}".strip(), "failed", *self._left(now)], "failed")

    def _line(self, number: int, found: Sequence[str], now: float, colour: str = "") -> None:
        progress = self._progress()
        task = progress.tasks[number]
        measuring = [one for one in progress.tasks.values() if one.measures]
        over, all_of_them = progress.counted(True)
        cell, what = (
            max(len(text) for text in texts) for texts in zip(*((t.cell, t.what) for t in measuring), strict=True)
        )
        name = f"{task.cell:<{cell}}  {task.what:<{what}}" if task.cell else task.what
        self._parts([name, *found, f"{over}/{all_of_them}", *self._left(now)], colour)
        if over == all_of_them:
            _, others = progress.counted(False)
            if others > run_plan.FEW:
                self._parts([f"then {format_count(others, 'post-processing job')}", *self._left(now)], "dim")

    def _left(self, now: float) -> list[str]:
        left = self._progress().left_s(now)
        return [f"~{format_estimate(left)} left"] if left >= 1 and not self.place.remote else []

    def _parts(self, parts: Sequence[str], colour: str = "") -> None:
        """Print the parts of a line, without the last ones if there is no room for them."""
        kept = list(parts)
        while len(kept) > 1 and len("  ".join(kept)) > self.width:
            kept.pop()
        self.say("  ".join(kept), colour)


def _nothing() -> tuple[Progress, Place, float, Mapping[int, Sequence[str]]]:
    return Progress({}, {}), Place(0, False), 0.0, {}


# Replaces Snakemake's own messages by the messages of this package, unless the user has asked for Snakemake's.
#
# Snakemake finds logger plugins only among installed packages, before it reads the Snakefile. This plugin is part of a
# checkout, so it replaces Snakemake's own after the Snakefile is read.

# Snakemake's reasons for running a job, in a few words.
REASONS = {
    "missing_output": "not made yet",
    "incomplete_output": "was interrupted",
    "params_changed": "settings have changed",
    "code_changed": "code has changed",
    "input_changed": "inputs have changed",
    "updated_input": "inputs are newer",
    "forced": "forced",
}


def take_over(workflow: Any) -> LogHandler | None:
    """Replace Snakemake's log handler; return None if the user wants Snakemake's messages (--logger, -q, -p ...)."""
    theirs = snakemake_internals.own_stream_handler(workflow)
    if theirs is None:
        return None
    handler = LogHandler(workflow.output_settings, None)
    handler.attach(
        theirs.stream,
        lambda: plan_jobs(workflow),
        lambda: [rule.name for rule in workflow.rules if rule.name in TYPED],
        # The configuration is read after this function returns.
        lambda: bool(workflow.config.get("collect", True)),
        lambda: list_made(workflow.dag),
    )
    snakemake_internals.replace_stream_handler(workflow, theirs, handler)
    snakemake_internals.end_dry_runs_early()
    return handler


def list_made(dag: Any) -> dict[str, list[str]]:
    """Return outputs of the rules that answer a user, by rule, of jobs that have finished or that are up to date."""
    found = {}
    for job in snakemake_internals.all_jobs(dag):
        done = snakemake_internals.has_finished(dag, job) or not snakemake_internals.is_going_to_run(dag, job)
        for part in derived_outputs.split_job(job, job.rule.name) if done else ():
            if part.rule in run_end.ANSWERING and all(path.exists() for path in part.outputs):
                found[part.rule] = list(map(str, part.outputs))
    return found


def list_rules(workflow: Any, only_targets: bool = False) -> None:
    """Print the rules for `snakemake --list`; only_targets: only rules without wildcards."""
    rules = [rule for rule in workflow.rules if not (only_targets and rule.has_wildcards())]
    print(format_rules({rule.name: rule.docstring or "" for rule in rules}))


def plan_jobs(workflow: Any) -> tuple[Progress, Place, float, Mapping[int, Sequence[str]]]:
    """Return the jobs of a run with expected durations, their place, the guessed share of the time, and their reasons.

    Reasons are given by number of the job, and only in a dry run.
    """
    dag, place = workflow.dag, find_place(workflow)
    jobs = {job.jobid: job for job in snakemake_internals.jobs_to_run(dag)}
    mine = {number: run_plan.describe_job(job) for number, job in jobs.items()}
    if not place.remote:
        chosen = dict.fromkeys(task.what.split()[0] for task in mine.values() if task.measures)
        place = replace(place, unable=unavailable_tools.find_unavailable(chosen, workflow.config.get("device", "auto")))
    folder = next((Path(task.benchmark).parents[1] for task in mine.values() if task.benchmark), Path("benchmarks"))
    earlier = run_plan.read_benchmarks(folder, bool(place.gpus) or place.remote)
    most = job_limits.parse_seconds(workflow.config["trials"]["budget"], "trials.budget")
    expected = {
        # A job that cannot run takes no time.
        number: (0.0, True) if task.what.split()[0] in place.unable else run_plan.expect_duration(task, earlier, most)
        for number, task in mine.items()
    }
    total = sum(seconds for seconds, _ in expected.values())
    guessed = sum(seconds for seconds, sure in expected.values() if not sure) / total if total else 0.0
    cores = max(1, snakemake_internals.limit_of(workflow, "_cores") or 1)
    progress = Progress(mine, {number: seconds for number, (seconds, _) in expected.items()})
    progress.followers = {
        number: [other.jobid for other in snakemake_internals.jobs_just_after(dag, job) if other.jobid in jobs]
        for number, job in jobs.items()
    }
    progress.measured_at_once, progress.at_once = min(cores, max(1, place.gpus)) if place.gpus else 1, cores
    reasons = {number: job_reason(dag, job) for number, job in jobs.items()} if workflow.dryrun else {}
    return progress, place, guessed, reasons


def job_reason(dag: Any, job: Any) -> list[str]:
    """Explain why a job would run: from changed content, else from Snakemake's own reasons."""
    known = up_to_date.reason_of(job)
    return [known] if known else describe_reason(snakemake_internals.reason_for(dag, job))


def describe_reason(reason: Any) -> list[str]:
    """Return Snakemake's reasons for running a job; a job that only follows other jobs has none."""
    return [said for name, said in REASONS.items() if getattr(reason, name)]


def find_place(workflow: Any) -> Place:
    """Return the place where jobs run: how many GPUs at a time."""
    if not workflow.local_exec:
        return Place(0, True)
    here = unavailable_tools.count_gpus()
    if workflow.config.get("device") == "cpu" or not here:
        return Place(0, False)
    return Place(min(here, snakemake_internals.limit_of(workflow, "gpu") or here), False)
