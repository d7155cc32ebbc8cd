"""Tracks a run's progress and estimates its remaining time from the durations of its own jobs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from profzoo.terminal.job_titles import Task

# Seconds that are added to measured and expected time, so that a single long job does not change the whole estimate.
DOUBT_S = 20.0


@dataclass
class Progress:
    """The jobs of a run, by Snakemake's number of the job.

    tasks: descriptions. expected: expected seconds. measured_at_once, at_once: how many measurements, and how many jobs
    at all, run at the same time. followers: jobs that use a job's outputs. said: messages of a batch system about jobs.
    began: start times. took: durations in seconds. failed: failed jobs, in order.
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
        """Return the numbers of finished and of all measurements (measures) or other jobs.

        Measurements that failed or cannot run count as finished; other jobs that cannot run are left out.
        """
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
