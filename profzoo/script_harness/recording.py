"""Records steps of a loop within its own process, in a notebook too, and leaves what jobs make tables of."""

import importlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import torch
from torch import nn

from profzoo.errors import CollectError, ConfigError, first_error_line, say
from profzoo.script_harness import observers, recorded_files, task
from profzoo.script_harness.recorded_files import FACTS, FOLDER, NAMES
from profzoo.script_harness.session import Session
from profzoo.script_harness.step_finder import AUTO, RANGE, StepFinder

# Ends a step that the program itself marks.
MARK = "record.step"
# The recording that has begun and not ended: there is one at a time, as what it wraps is the process's.
_running: "list[Recording]" = []


def _forget() -> None:
    for one in _running:
        one.forget()


# What a process forks, such as one that loads data, is not the one that is recorded.
os.register_at_fork(after_in_child=_forget)


class RecordedSession(Session):
    """A session of a process that goes on after its window, as if it had not been there."""

    def __init__(self, asked: task.Task, ended: Callable[[], None]) -> None:
        """ended: called once the window is over, or cannot be recorded."""
        super().__init__(asked)
        self._say_ended = ended
        # What kept it from recording, in a line.
        self.failure = ""
        # Whether the step that runs is the last one, and whether one that is due has not ended yet.
        self.ending, self._goes_on = False, False

    # Optimizers may have been made before, so that none is known to be used until one is. Until then a step that a
    # network's call may have ended waits for what follows: loss, backward pass and optimizer are of the same step.

    def begin_part(self, part: str) -> bool:
        """Open the range of a part of the step; returns whether it has to be ended."""
        if part == "optimizer" and self.finder.kind == AUTO and not self.finder.made:
            self._due = False
            self.finder.optimizer_made()
        self._goes_on = part in ("loss", "backward") and not self.finder.by_optimizer
        try:
            if part != "optimizer":
                self.end_scaled_steps()
            self._end_due_step()
            # The last step may have ended here.
            return self.active and super().begin_part(part)
        finally:
            self._goes_on = False

    def network_called(self, network: nn.Module, inputs: Any, named: Any, output: Any) -> None:
        """Note that the call of an outermost network has ended; named: its keyword arguments."""
        self.ends_late = self._goes_on = self.finder.kind == AUTO
        try:
            super().network_called(network, inputs, named, output)
        finally:
            self.ends_late = self._goes_on = False

    def _end_due_step(self) -> None:
        if not self._goes_on:
            super()._end_due_step()

    @property
    def stands_aside(self) -> bool:
        """Whether another process of the same training is the one that is recorded."""
        return bool(self._stages and not self._stages.represents)

    def mark_steps(self) -> None:
        """From now on, let a step end with `mark` alone."""
        if self.finder.kind == RANGE and self.finder.name == MARK:
            return
        made = self.finder.made
        self.finder = StepFinder(f"{RANGE}:{MARK}")
        self.finder.made = made
        self._due = False
        if self._stages is None:
            self._steps = 0

    def knows_loop(self) -> bool:
        """Whether the step is one of the loop: one that the program marks is, even if it calls no network."""
        if self.finder.kind != RANGE:
            return super().knows_loop()
        if not self.networks.found and torch.cuda.is_initialized():
            self.networks.assume_device(torch.device("cuda", torch.cuda.current_device()))
        return True

    def _end_step(self) -> None:
        """End a step; an error in what is recorded ends the recording, and not the program."""
        try:
            super()._end_step()
            if self.ending and self.active:
                self.conclude()
        except Exception as error:
            self._note_failure(error)
            self.conclude()

    def conclude(self) -> None:
        """End the recording where it is; the steps that are complete are kept."""
        if not self.active:
            return
        with suppress(Exception):
            # What ends with what follows it has ended by now.
            if self._due and not self.parts.current and not self.failure:
                self._due = False
                super()._end_step()
        if self.active:
            self.active = False
            with suppress(Exception):
                self._waits.end_step()
            self._end_early()
            self._leave()

    def _end_early(self) -> None:
        memory, self._memory = self._memory, None
        try:
            if memory:
                memory.end(self.task.files["memory"])
                self.task.files["memory"].unlink(missing_ok=True)
            elif self._stages:
                self._stages.end_early()
        except Exception as error:
            self._note_failure(error)
        try:
            if self._stages and self._stages.recorder.steps:
                self._note({})
        except Exception as error:
            self._note_failure(error)

    def _note_failure(self, error: Exception) -> None:
        kind = "" if isinstance(error, CollectError) else f"{type(error).__name__}: "
        self.failure = self.failure or f"{kind}{first_error_line(error)}"

    def _end(self, more: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.active = False
        self._note(more)
        self._leave()

    def _note(self, more: Mapping[str, Any]) -> None:
        assert self._stages
        task.write_note(self.task, self._stages, {**self._facts(), **more}, self._stages.represents)

    def _leave(self) -> None:
        """Take away what was put around torch and the networks."""
        self.ranges.end_all()
        self.ranges.unmark()
        observers.unwatch()
        self._say_ended()


class Recording:
    """Records steps of the loop inside `with`; afterwards `advice` says what to change.

    A step is what the loop repeats, as of a script. `for batch in record(loader)` and `record.step()` mark steps
    instead. After the window the loop goes on to its own end, without anything around it.
    """

    def __init__(self, asked: task.Task, folder: Path) -> None:
        """asked: of `launcher.plan_recording`; folder: in which a folder for the recording is made."""
        self.name, self.folder = asked.cell["model"], folder.absolute()
        self._asked = asked
        self._session: RecordedSession | None = None
        self._notes = Path()
        # Called once there will be nothing more; whether there is a recording, and what there is instead.
        self.ended: Callable[[], None] = lambda: None
        self.done, self.kept, self.lacks = False, False, ""

    @property
    def place(self) -> Path:
        """Folder with what was recorded."""
        return recorded_files.place(self.name, self.folder)

    def begin(self) -> None:
        """Begin to record.

        Raises:
            ConfigError: another recording has begun and not ended.
        """
        if _running:
            raise ConfigError(
                f"profzoo.record({self.name!r}) begins within profzoo.record({_running[0].name!r}), which has not "
                "ended: record one at a time"
            )
        if task.VARIABLE in os.environ:
            say(f"profzoo.record({self.name!r}) records nothing, as this process is being measured already")
            self.done, self.lacks = True, "the process was being measured already"
            return
        self._notes = Path(tempfile.mkdtemp(prefix="profzoo-record-"))
        files = {name: self._notes / file for name, file in NAMES.items()}
        self._session = RecordedSession(replace(self._asked, folder=self._notes, files=files), self._keep)
        _running.append(self)
        try:
            observers.watch_all(self._session, made_before=True)
        except BaseException:
            observers.unwatch()
            _running.clear()
            shutil.rmtree(self._notes, ignore_errors=True)
            raise
        self._session.networks.step_module_called = self._session.module_called

    def finish(self) -> None:
        """End the recording where it is."""
        if self._session:
            self._session.conclude()

    def forget(self) -> None:
        """Record nothing more, and write nothing."""
        if self._session:
            self._session.active = False

    def ask_to_finish(self) -> None:
        """End the recording with the step that runs, which may be one of another thread."""
        if self._session:
            self._session.ending = True
            if not self._session.reached[0]:
                self._session.conclude()

    def __enter__(self) -> "Recording":
        """Begin to record."""
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """End the recording, if the loop has ended before its window; an error of the loop's own passes."""
        self.finish()

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield what a loop goes through, such as the batches of a loader; each is a step."""
        if self._session:
            self._session.mark_steps()
        left = iter(batches)
        while True:
            with self._loading():
                try:
                    batch = next(left)
                except StopIteration:
                    return
            yield batch
            self.step()

    def step(self) -> None:
        """Mark the end of a step; steps are then not looked for."""
        session = self._session
        if session and session.is_watching():
            session.mark_steps()
            session.range_ended(MARK)

    @contextmanager
    def _loading(self) -> Iterator[None]:
        session = self._session
        opened = bool(session and session.is_watching() and session.begin_part("data"))
        try:
            yield
        finally:
            if opened and session and session.parts.current == "data":
                session.end_part()

    def _keep(self) -> None:
        """Move the files to their folder, if a step was recorded, and say what there is."""
        session, self.done = self._session, True
        assert session
        _running.clear()
        try:
            if (self._notes / FACTS).exists():
                self._move()
            self.lacks = self._explain(session)
        finally:
            shutil.rmtree(self._notes, ignore_errors=True)
        say(f"{self}; {self.lacks}" if self.lacks else str(self))
        self.ended()

    def _move(self) -> None:
        facts = json.loads((self._notes / FACTS).read_text())
        self.place.parent.mkdir(parents=True, exist_ok=True)
        (self.folder / ".gitignore").write_text("*\n")
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        lines = recorded_files.configuration_lines(self.name, facts)
        (self._notes / recorded_files.CONFIGURED).write_text("\n".join(lines) + "\n")
        if not (self._notes / NAMES["memory"]).exists():
            _write_no_memory(self._notes / NAMES["memory"])
        wanted = [FACTS, recorded_files.CONFIGURED, NAMES["steps"], NAMES["memory"]]
        wanted += [NAMES[name] for name in recorded_files.OF_TRACE] if "baseline" in facts else []
        for file in wanted:
            shutil.move(self._notes / file, self.place / file)
        self.kept = True

    def _explain(self, session: RecordedSession) -> str:
        if session.failure:
            return f"it could not go on: {session.failure}"
        if session.stands_aside:
            return "the process of rank 0 has the recording"
        if self.kept and (self.place / NAMES["trace"]).exists():
            return ""
        seen = session.describe_progress()
        needed = self._asked.cell["steps"]
        if not seen["steps"]:
            networks = ", ".join(seen["networks"]) or "no network"
            return (
                f"no step was found: {seen['calls']} calls of {networks} and {seen['optimizer_steps']} optimizer "
                "steps; mark steps by `for batch in record(loader)` or record.step()"
            )
        return f"the loop ended after {seen['steps']} steps, and times with a trace take {needed}: give fewer steps"

    def advice(self) -> Any:
        """Return what to change in the program, as text and for notebooks; makes the tables that say so.

        Raises:
            CollectError: nothing was recorded, or the tables cannot be made.
        """
        if not self.done:
            raise CollectError(f"profzoo.record({self.name!r}) has not ended: ask for advice after it")
        if not self.kept:
            raise CollectError(f"nothing was recorded of {self.name}: {self.lacks}")
        # By name: the measured process is not made of what reads tables.
        return importlib.import_module("profzoo.cli.recorded_advice").advise(self.folder, self.name, self.lacks)

    def __repr__(self) -> str:
        """Say what was recorded, and where it is."""
        if not self.done:
            return f"recording of {self.name}"
        if not self.kept:
            return f"nothing was recorded of {self.name}"
        facts = json.loads((self.place / FACTS).read_text())
        timed = facts.get("baseline", facts)
        shown = self.place.relative_to(Path.cwd()) if self.place.is_relative_to(Path.cwd()) else self.place
        ms = timed["step_ns"] / 1e6
        step = facts["script"]["step"]
        return f"recorded {self.name}, {ms:.2f} ms per step ({step}, {timed['steps']} timed), in {shown}"


def _write_no_memory(path: Path) -> None:
    from profzoo.harness.step import peak_memory

    peak_memory.write_rows([], path)


def make_recording(name: str, steps: int, *, folder: str | Path = FOLDER, **options: Any) -> Recording:
    """Make a recording that has not begun; options: `warmup` and `step`, as of `launcher.plan_recording`.

    Raises:
        ConfigError: a value cannot be used.
    """
    # By name: a program that is recorded from outside may lack what reads settings.
    plan = importlib.import_module("profzoo.script_harness.launcher").plan_recording
    return Recording(plan(name, steps, **options), Path(folder))


def record_step(function: Callable[[], Any], name: str, steps: int, **options: Any) -> Recording:
    """Call a function as often as a recording takes, each call a step; options: of `make_recording`."""
    with make_recording(name, steps, **options) as record:
        while not record.done:
            function()
            record.step()
    return record
