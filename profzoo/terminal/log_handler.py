"""A logger plugin of Snakemake: prints a plan, one line per measurement, each warning once, and errors in one line."""

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TextIO

from snakemake.logging import LogEvent, LogHandlerBase

from profzoo.terminal import error_lines, measurement_summary, phrases, run_end, run_plan, unavailable_tools
from profzoo.terminal.progress import Progress
from profzoo.terminal.run_plan import Place

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
# Seconds without a message after which the progress of other jobs is shown.
SILENCE_S = 20.0
# Width of lines that do not go to a terminal.
ENDLESS = 10_000
# Snakemake's messages when a user ends a run, by SIGINT or SIGTERM; jobs that fail afterwards were ended by this.
ENDING = ("Terminating processes on user request", "Will exit after finishing currently running jobs")
COLOURS = {"failed": "31", "warning": "33", "dim": "2", "bold": "1"}

Planned = Callable[[], tuple[Progress, Place, float, Mapping[int, Sequence[str]]]]


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
        self.attach(sys.stderr, _nothing, tuple, lambda: True)

    def attach(
        self,
        stream: TextIO,
        planned: Planned,
        targets: Callable[[], Sequence[str]],
        collects: Callable[[], bool],
    ) -> None:
        """Set the stream, and functions that return the planned run and the names of rules that a user may type.

        collects: function that returns whether the run may measure (the setting `collect`).
        """
        self.stream, self.planned, self.targets, self.collects = stream, planned, targets, collects
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
            for line in run_end.format_run_end(self.progress, time.monotonic() - self.began, self.width, self.ended):
                self.say(line)

    def ended_by_user(self, number: int) -> bool:
        """Return whether a job ended because the user had ended the run."""
        return number in self.ended_jobs

    @property
    def width(self) -> int:
        """Return the number of characters that a line may have."""
        if not self.terminal:
            return ENDLESS
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
            if line := error_lines.shorten_error(record.getMessage(), self.targets(), self.collects()):
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
            if message in self.said or any(line in message for line in error_lines.TOLD):
                return
            self.said.add(message)
        self.say(message.strip("\n"), "warning" if record.levelno >= logging.WARNING else "")

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
            self._line(number, measurement_summary.summarise_measurement(task, took), now)
        elif now - self.spoke > SILENCE_S:
            over, all_of_them = progress.counted(False)
            self._parts([task.what, f"{over} of {phrases.format_count(all_of_them, 'job')}", *self._left(now)])

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
                self._parts([f"then {phrases.format_count(others, 'post-processing job')}", *self._left(now)], "dim")

    def _left(self, now: float) -> list[str]:
        left = self._progress().left_s(now)
        return [f"~{phrases.format_estimate(left)} left"] if left >= 1 and not self.place.remote else []

    def _parts(self, parts: Sequence[str], colour: str = "") -> None:
        """Print the parts of a line, without the last ones if there is no room for them."""
        kept = list(parts)
        while len(kept) > 1 and len("  ".join(kept)) > self.width:
            kept.pop()
        self.say("  ".join(kept), colour)


def _nothing() -> tuple[Progress, Place, float, Mapping[int, Sequence[str]]]:
    return Progress({}, {}), Place(0, False), 0.0, {}
