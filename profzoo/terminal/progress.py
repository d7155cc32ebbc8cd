"""Tracks a run's progress and estimates its remaining time from the durations of its own jobs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from profzoo.terminal.job_titles import Task

# Expected seconds that weigh as much as those of this run: one job that takes long does not change all that is told.
DOUBT_S = 20.0


@dataclass
class Progress:
    """The jobs of a run by Snakemake's numbers of them.

    expected: seconds of each; measured_at_once: how many measurements run side by side, at_once: of all jobs;
    followers: the jobs that take what a job makes; said: what a batch system has said of jobs.
    """

    tasks: Mapping[int, Task]
    expected: Mapping[int, float]
    measured_at_once: int = 1
    at_once: int = 1
    followers: Mapping[int, Collection[int]] = field(default_factory=dict)
    said: Mapping[int, str] = field(default_factory=dict)
    began: dict[int, float] = field(default_factory=dict)
    took: dict[int, float] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)

    def start(self, number: int, now: float) -> None:
        """Record that a job has started."""
        self.began[number] = now

    def finish(self, number: int, now: float) -> float:
        """Record that a job has finished, perhaps at its second attempt; return its duration in seconds."""
        if number in self.failed:
            self.failed.remove(number)
        self.took[number] = now - self.began.get(number, now)
        return self.took[number]

    def fail(self, number: int) -> None:
        """Record that a job has failed; a job that fails twice counts once."""
        if number not in self.failed:
            self.failed.append(number)

    def lost(self) -> set[int]:
        """Return the jobs that failed, and the jobs that cannot run because of them."""
        found: set[int] = set()
        ahead = list(self.failed)
        while ahead:
            if (number := ahead.pop()) not in found:
                found.add(number)
                ahead += self.followers.get(number, ())
        return found

    def counted(self, measures: bool) -> tuple[int, int]:
        """How many of the measurements, or of the others, are over, and of how many; the others: that can still run."""
        lost = self.lost()
        mine = {number for number, task in self.tasks.items() if task.measures == measures and task.outputs}
        mine -= set() if measures else lost
        return sum(number in self.took or number in lost for number in mine), len(mine)

    def left_s(self, now: float) -> float:
        """Estimate the seconds until all jobs have finished."""
        measured, others = self._left_s(True, now), self._left_s(False, now)
        return max(measured / self.measured_at_once, (measured + others) / self.at_once)

    def _left_s(self, measures: bool, now: float) -> float:
        lost = self.lost()
        mine = [number for number, task in self.tasks.items() if task.measures == measures and number not in lost]
        over = [number for number in mine if number in self.took]
        planned = sum(self.expected[number] for number in over)
        pace = (sum(self.took[number] for number in over) + DOUBT_S) / (planned + DOUBT_S)
        left = 0.0
        for number in mine:
            if number not in self.took:
                spent = now - self.began[number] if number in self.began else 0.0
                left += max(0.0, pace * self.expected[number] - spent)
        return left
