"""Finds results measured with other software versions than those installed now, and which files to remake.

python -m profzoo.collect.version_changes [RESULTS] [CELL ...]

prints the files of these, for Snakemake's -R; a cell is a model's folder.
"""

import argparse
import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from profzoo import tools
from profzoo.machine import external_programs
from profzoo.tools import tool_versions

# Files in which the kernel gives the version of the loaded driver, by module and by interface.
DRIVERS = (Path("/sys/module/nvidia/version"), Path("/proc/driver/nvidia/version"))
TORCH = re.compile(r"^__version__ *= *'([^']+)'", re.MULTILINE)
# Seconds to wait for a profiler's version.
ANSWER_S = 5.0
# Words of a command line that makes no results, or makes all results again.
NO_RESULTS = (
    "clean",
    "doctor",
    "help",
    "metrics",
    "serve",
    "share",
    "status",
    "verify",
    "--list",
    "--lint",
    "--unlock",
    "--touch",
    "-l",
    "-t",
)
ALL_AGAIN = ("-F", "--forceall")
# Number of cells that a message names.
SHOWN = 3
KEPT = "kept as they are, with both versions in one table (columns torch_version, driver_version and so on)"


@dataclass(frozen=True)
class MeasuredFile:
    """A collected file: its sidecar, cell (model's folder and phase), tool, and versions by software."""

    sidecar: Path
    model: str
    phase: str
    tool: str
    versions: Mapping[str, str]

    @property
    def cell(self) -> str:
        """Name of the cell in words."""
        return f"{self.model} {self.phase}"


def find_measured(results: Path, models: Collection[str] | None = None) -> list[MeasuredFile]:
    """Find collected files under results/, for these models' folders or for all, sorted by name."""
    found = []
    for path in sorted(results.glob("*/*.json")):
        # A sidecar lies beside its file; plans and timelines are no sidecars.
        if (models is not None and path.parent.name not in models) or not path.with_suffix("").exists():
            continue
        with suppress(OSError, ValueError, AttributeError):
            facts = json.loads(path.read_text(encoding="utf-8"))
            # An export carries the facts of its report.
            if (
                "started" in facts
                and "imported" not in facts
                and facts.get("tool") in tools.names()
                and path.name.count(".") > 1
            ):
                phase = path.name.partition(".")[0]
                if not _exported(path, facts):
                    found.append(
                        MeasuredFile(path, path.parent.name, phase, facts["tool"], tool_versions.versions_of(facts))
                    )
    return found


def _exported(path: Path, facts: Mapping[str, object]) -> bool:
    """Whether a sidecar belongs to an export of another tool's file, which is remade together with that file."""
    return facts.get("tool") in tool_versions.profilers() and not path.name.endswith("-rep.json")


def installed_versions(wanted: Collection[str], local: bool = True) -> dict[str, str]:
    """Installed versions of the wanted software, as far as this machine knows them; does not import torch.

    local: whether jobs run here; drivers and profilers of other machines are unknown.
    """
    found = {tool_versions.TORCH: _torch()} if tool_versions.TORCH in wanted else {}
    if local and tool_versions.DRIVER in wanted:
        found[tool_versions.DRIVER] = _driver()
    for name in tool_versions.profilers() if local else ():
        program = tools.commands()[name].PROGRAM
        if name in wanted and program and shutil.which(program):
            printed = external_programs.ask_program([program, "--version"], ANSWER_S).stdout.strip().splitlines()
            found[name] = tool_versions.short(printed[-1]) if printed else ""
    return {name: version for name, version in found.items() if version}


def _torch() -> str:
    """Version read from torch's file: package metadata lacks the build, such as +cu130, and importing is slow."""
    with suppress(ImportError, OSError, ValueError, AttributeError, TypeError):
        spec = importlib.util.find_spec("torch")
        found = TORCH.search(Path(spec.origin).with_name("version.py").read_text())  # type: ignore[union-attr,arg-type]
        return found[1] if found else ""
    return ""


def _driver() -> str:
    for path in DRIVERS:
        with suppress(OSError):
            # In the second file, the first line names the driver and the next line the compiler.
            if found := tool_versions.NUMBER.search(path.read_text().partition("\n")[0]):
                return found[0]
    return ""


def find_differing(found: Iterable[MeasuredFile], now: Mapping[str, str]) -> list[MeasuredFile]:
    """Measured files whose recorded versions differ from the installed ones."""
    return [one for one in found if _others(one, now)]


def _others(one: MeasuredFile, now: Mapping[str, str]) -> list[str]:
    return [name for name, version in one.versions.items() if now.get(name, version) != version]


def version_lines(found: Sequence[MeasuredFile], now: Mapping[str, str], results: str) -> list[str]:
    """Format one line per outdated version with its cells, and one with the command to run; empty if all agree."""
    of_version: dict[tuple[str, str], dict[str, None]] = {}
    for one in found:
        for name in _others(one, now):
            of_version.setdefault((name, one.versions[name]), {})[one.cell] = None
    said = [
        f"{_listed(list(cells))} measured with {name} {version}, and {name} {now[name]} is installed now"
        for (name, version), cells in of_version.items()
    ]
    models = " ".join(dict.fromkeys(one.model for one in found))
    again = f"python -m profzoo.collect.version_changes {results} {models}"
    return [*said, f"these are {KEPT}; to measure them again, end the line with -R $({again})"] if said else []


def _listed(cells: Sequence[str]) -> str:
    """Join a limited number of cell names.

    >>> _listed(["a train"]), _listed(["a train", "b train", "c train", "d train"])
    ('1 cell (a train) was', '4 cells (a train, b train, c train, ...) were')
    """
    more = ", ..." if len(cells) > SHOWN else ""
    count = f"{len(cells)} cell{'s' if len(cells) > 1 else ''}"
    return f"{count} ({', '.join(cells[:SHOWN])}{more}) {'were' if len(cells) > 1 else 'was'}"


def version_messages(
    results: str, models: Collection[str], chosen: Collection[str], local: bool, words: Sequence[str]
) -> list[str]:
    """Lines to print before a run; chosen: the run's tools; words: its command line.

    Files that the run makes again are left out. A run that makes no results prints nothing.
    """
    if {*words} & {*NO_RESULTS, *ALL_AGAIN}:
        return []
    here = f"{results}/"
    paths = [word.removeprefix("./").removeprefix(here) for word in words if word.removeprefix("./").startswith(here)]
    asked = {path.partition("/")[0] for path in paths} & set(models)
    mine = [
        one
        for one in find_measured(Path(results), [model for model in models if not asked or model in asked])
        if one.tool in chosen and str(one.sidecar) not in words
    ]
    now = installed_versions({name for one in mine for name in one.versions}, local)
    return version_lines(find_differing(mine, now), now, results)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m profzoo.collect.version_changes", description=__doc__)
    parser.add_argument("results", nargs="?", default="results", help="the folder of results")
    parser.add_argument("models", nargs="*", help="folders of models in it; all, if none is named")
    options = parser.parse_args(arguments)
    found = find_measured(Path(options.results), options.models or None)
    now = installed_versions({name for one in found for name in one.versions})
    print("\n".join(str(one.sidecar) for one in find_differing(found, now)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
