"""Collecting with any program in the place of a model's, which leaves `out` and its facts `s.json` in a folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profzoo.collect import collecting
from profzoo.collect.command import Command


def collected(
    folder: Path,
    *program: str,
    tool: str = "time",
    profiler: Sequence[str] = (),
    made: Mapping[str, Path] | None = None,
    leaves: Sequence[str] = ("out",),
    **more: Any,
) -> int:
    """The exit code; more: of the job."""
    job = {"tool": tool, "cell": {"device": "cpu"}, "environment": [], **more}
    left = [folder / name for name in leaves]
    asked = Command([], profiler, program, folder / "s.json", tool, made or {}, left, [folder / "raw"])
    return collecting.ended(job, asked, folder / "log")
