"""Builds the command of the sampler, which starts the measured program as the baseline runs it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profzoo.cell.tool_types import SampleSettings

# The sampler starts the measured program.
BESIDE = ("profzoo/tools/sample/sampler.py",)
SAMPLER = ["python", "-m", "profzoo.tools.sample.sampler"]
# Largest relative error of energy that the counter may cause, and how long a window must last for it. The counter moves
# every 100 ms, and a window begins and ends between two moves.
ERROR = 0.02
WINDOW_S = 0.1 / ERROR + 0.3
# With several processes, the sampler of the first one sees all GPUs of its node.
FIRST = ["python", "-m", "profzoo.collect.profile_ranks", "first"]


def options(own: "SampleSettings") -> list[str]:
    """Return the options of the sampler, except the path of its file; own: the configuration's section `sample`.

    >>> options({"window": 200, "interval_ms": 20})
    ['--interval-ms', '20']
    """
    return ["--interval-ms", str(own["interval_ms"])]


def wrap_command(options: Sequence[str], made: Mapping[str, Path], processes: int) -> list[str]:
    """Return the command of the sampler with the path of its file.

    >>> wrap_command(["--interval-ms", "20"], {"samples": Path("x.csv")}, 1)[3:]
    ['--interval-ms', '20', '--out', 'x.csv']
    """
    words = [*SAMPLER, *options, "--out", str(made["samples"])]
    return [*FIRST, *words, "--"] if processes > 1 else words


def program_options(made: Mapping[str, Path]) -> list[str]:
    """Return options with the path of the step times, as for the baseline, and the length of the window."""
    return ["--steps", str(made["steps"]), "--at-least-s", str(WINDOW_S)]


def adapt_command(command: Sequence[str], gpu: bool) -> list[str]:
    """Return the command; for a cell that will not run on a GPU, nothing is sampled, and the file says so.

    >>> adapt_command([*SAMPLER, "--out", "x.csv", "python"], gpu=False)[3:]
    ['--nothing', '--out', 'x.csv', 'python']
    """
    words = list(command)
    place = words.index(SAMPLER[-1]) + 1
    return words if gpu else [*words[:place], "--nothing", *words[place:]]
