"""Collecting with any program in the place of a model's, which leaves `out` and its facts `s.json` in a folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profzoo.collect import job_run
from profzoo.collect.command_line import Command


def collected(
    folder: Path,
    *program: str,
    tool: str = "time",
    profiler: Sequence[str] = (),
    made: Mapping[str, Path] | None = None,
    leaves: Sequence[str] = ("out",),
    plan: Path | None = None,
    **more: Any,
) -> int:
    """The exit code; more: of the job. Files of the folder that the words name are where the job is to leave them."""
    job = {"tool": tool, "cell": {"device": "cpu"}, "environment": [], **more}
    files = {**{name: folder / name for name in leaves}, **(made or {}), "sidecar": folder / "s.json"}

    def build(
        job: Mapping[str, Any], private: Mapping[str, Path], planned: Sequence[str], load: Path | None
    ) -> Command:
        def placed(words: Sequence[str]) -> list[str]:
            for name, path in files.items():
                words = [word.replace(str(path), str(private[name])) for word in words]
            return list(words)

        left = [private[name] for name in leaves]
        return Command([], placed(profiler), placed(program), private["sidecar"], tool, private, left)

    return job_run.run_job(job, files, folder / "log", plan=plan, build=build)
