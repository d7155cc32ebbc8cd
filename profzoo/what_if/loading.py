"""Predicts how long a step takes at least whose batches worker processes load, and how many of them it needs."""

from dataclasses import dataclass, replace
from math import ceil, inf

from profzoo.formatting import format_ns

# What a process takes to receive a batch from a worker, and what either side takes per byte that goes through shared
# memory, in ns: torch 2.11 on two cores of a virtual machine (docs/how/simulation.md).
HANDOVER_NS, BYTE_NS = 1e6, 0.2
# Most workers to offer, because each is a process with memory of its own.
MOST_WORKERS = 32
# The setting that says how many there are.
WORKERS = "workers"


@dataclass(frozen=True)
class Loading:
    """How a step gets its batches, and the cores for it.

    Workers load several batches at once, so a step takes at least the time of one batch over their number. All
    processes share the cores, so it also takes at least the CPU time of a batch and of the rest of the step over the
    number of cores.

    Attributes:
        batch_ns: time in which one process loads a batch. rest_ns: the step if its batch is there.
        workers: worker processes that load now; 0 where the process of the step does.
        loading_cores: cores that are busy while the process of the step loads; below 1 it waits, for example for
            files. If workers load, that is not known, and each is taken to keep one core busy.
        step_cores: cores that are busy in the rest of the step.
        batch_bytes: size of a batch.
        cores: cores that the process and its workers may use; infinite where unknown.
    """

    batch_ns: float = 0.0
    rest_ns: float = 0.0
    workers: int = 0
    loading_cores: float = 1.0
    step_cores: float = 1.0
    batch_bytes: float = 0.0
    cores: float = inf

    def of_step(self, step_ns: float, share: float) -> "Loading":
        """Return the same for a step of which a share is loading, or waiting for workers.

        If workers load now, one of them takes as many steps for a batch as there are workers, or less where the step
        does not wait for them.

        >>> [Loading(workers=count).of_step(10e6, 0.7).batch_ns / 1e6 for count in (0, 2)]
        [7.0, 20.0]
        """
        return replace(self, batch_ns=step_ns * (self.workers or share), rest_ns=step_ns * (1 - share))

    @property
    def handover_ns(self) -> float:
        """Time in ns in which the process of the step receives a batch from a worker."""
        return HANDOVER_NS + BYTE_NS * self.batch_bytes

    def least_step_ns(self, workers: int) -> float:
        """Return how long workers, and the cores, take for a step at least; workers: their number, at least 1.

        Of a step of 83 ms, 79 ms are loading:

        >>> [round(Loading(79e6, 4e6, cores=cores).least_step_ns(4) / 1e6, 1) for cores in (inf, 2.0)]
        [19.8, 42.0]
        >>> round(Loading(79e6, 4e6, loading_cores=0.0, cores=2.0).least_step_ns(4) / 1e6, 1)
        19.8
        """
        return max(self._alone_ns / workers, self._shared_ns)

    def resize(self, words: str) -> str | None:
        """Return setting words with the smallest number of workers beyond which more do not help.

        Words that set no number of workers stay as they are. Where it is not known how many cores there are, the
        number in the words is the most. The result is None if there are as many workers already.

        >>> [Loading(79e6, 4e6, cores=cores).resize("workers=4 pin_memory=true") for cores in (inf, 64.0, 2.0)]
        ['workers=4 pin_memory=true', 'workers=20 pin_memory=true', 'workers=2 pin_memory=true']
        >>> Loading(79e6, 4e6, workers=2, cores=2.0).resize("workers=4")
        """
        usual = count_workers(words)
        if not usual:
            return words
        most = MOST_WORKERS if self.cores < inf else usual
        count = min(self._count_needed(max(self.rest_ns, self._shared_ns)), most)
        return words.replace(f"{WORKERS}={usual}", f"{WORKERS}={count}") if count > self.workers else None

    def describe(self) -> str:
        """Say from how many workers on input no longer limits the step.

        >>> Loading(79e6, 4e6, cores=32.0).describe()
        'loading a batch takes 79 ms and the rest of the step 4 ms, so input no longer limits from 20 workers on'
        >>> Loading(79e6, 4e6, workers=2, cores=4.0).describe().partition("4 ms, ")[2]
        'so input no longer limits from 20 workers on, but the 4 cores of this process then need 21 ms'
        """
        count, shared, rest = self._count_needed(self.rest_ns), self._shared_ns, format_ns(self.rest_ns)
        most = "at most " if self.workers else ""
        told = f"loading a batch takes {most}{format_ns(self.batch_ns)} and the rest of the step {rest}"
        kept = f", but the {self.cores:.3g} cores of this process then need {format_ns(shared)}"
        limited = f"so input no longer limits from {count} worker{'s' if count > 1 else ''} on"
        return f"{told}, {limited}{kept if shared > self.rest_ns else ''}"

    def _count_needed(self, step_ns: float) -> int:
        """Return the smallest number of workers that load a batch in each step of this duration."""
        # The small term keeps rounding from asking for one more.
        return max(ceil(self._alone_ns / max(step_ns, 1.0) - 1e-6), 1)

    @property
    def _busy_cores(self) -> float:
        """Cores that are busy while one process loads."""
        return 1.0 if self.workers else self.loading_cores

    @property
    def _alone_ns(self) -> float:
        """Time in which one worker loads a batch, with one thread, and puts it into shared memory."""
        return max(self._busy_cores, 1.0) * self.batch_ns + BYTE_NS * self.batch_bytes

    @property
    def _shared_ns(self) -> float:
        """CPU time of a step in all processes over the number of cores."""
        handed = HANDOVER_NS + 2 * BYTE_NS * self.batch_bytes
        return (self._busy_cores * self.batch_ns + self.step_cores * self.rest_ns + handed) / self.cores


def count_workers(words: str) -> int:
    """Return the number of workers that setting words name; 0 if they name none.

    >>> count_workers("workers=4 pin_memory=true"), count_workers("graph=true")
    (4, 0)
    """
    return next((int(word.partition("=")[2]) for word in words.split() if word.startswith(f"{WORKERS}=")), 0)
