"""Finds results measured with other software versions than those installed now, and which files to remake.

python -m profzoo.collect.version_changes [RESULTS] [CELL ...]

prints the files of these, for Snakemake's -R; a cell is a model's folder.
"""

import argparse
import functools
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
# Targets of runs that measure nothing.
UNMEASURED = ("doctor", "metrics", "status", "serve", "share", "verify", "clean", "help")
# Words of a command line that makes no results, or makes all results again.
NO_RESULTS = (*UNMEASURED, "--list", "--lint", "--unlock", "--touch", "-l", "-t")
ALL_AGAIN = ("-F", "--forceall")
# Number of cells that a message names.
SHOWN = 3
# Number of versions that a message names, one line each.
LINES = 6
# Values of the setting `environment`, and the exit code of a run that ends because of it.
SAY, MEASURE, FAIL = "say", "measure", "fail"
FAILED_CODE = 4
KEPT = "kept as they are, with both versions in one table (columns torch_version, driver_version and so on)"


@dataclass(frozen=True)
class MeasuredFile:
    """A collected file: its sidecar, cell (model's folder and phase), tool, and versions by software.

    folders: in which the program looked for installed packages, in order; empty if they are not recorded.
    """

    sidecar: Path
    model: str
    phase: str
    tool: str
    versions: Mapping[str, str]
    folders: tuple[str, ...] = ()

    @property
    def cell(self) -> str:
        """Name of the cell in words."""
        return f"{self.model} {self.phase}"


def find_measured(results: Path, models: Collection[str] | None = None) -> list[MeasuredFile]:
    """Find collected files under results/, for these models' folders or for all, sorted by name."""
    found = []
    for path in sorted(results.glob("*/*.json")):
        if (models is None or path.parent.name in models) and (one := read_measured(path)):
            found.append(one)
    return found


def read_measured(path: Path) -> MeasuredFile | None:
    """Read the sidecar of a collected file; None for any other file, and where the file itself does not exist."""
    # A sidecar lies beside its file; plans and timelines are not sidecars.
    if not path.with_suffix("").exists() or path.name.count(".") < 2:
        return None
    with suppress(OSError, ValueError, AttributeError):
        facts = json.loads(path.read_text(encoding="utf-8"))
        # An export carries the facts of its report.
        measured = "started" in facts and "imported" not in facts and facts.get("tool") in tools.names()
        if measured and not _exported(path, facts):
            versions = {**facts.get("packages", {}), **tool_versions.versions_of(facts)}
            phase = path.name.partition(".")[0]
            return MeasuredFile(
                path, path.parent.name, phase, facts["tool"], versions, tuple(facts.get("packages_from", ()))
            )
    return None


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


@functools.cache
def _all_installed(local: bool) -> dict[str, str]:
    """All installed versions; cached, as a run asks for each of its jobs."""
    return installed_versions({tool_versions.TORCH, tool_versions.DRIVER, *tool_versions.profilers()}, local)


def _torch() -> str:
    """Version of the torch that this Python would import."""
    with suppress(ImportError, ValueError, AttributeError, TypeError):
        spec = importlib.util.find_spec(tool_versions.TORCH)
        return _torch_in(Path(spec.origin).parents[1])  # type: ignore[union-attr,arg-type]
    return ""


def _torch_in(folder: Path) -> str:
    """Version read from torch's file: package metadata lacks the build, such as +cu130, and importing is slow."""
    with suppress(OSError):
        found = TORCH.search((folder / tool_versions.TORCH / "version.py").read_text())
        return found[1] if found else ""
    return ""


@functools.cache
def _packages_in(folders: tuple[str, ...]) -> dict[str, str]:
    """Versions of the packages in these folders, and of torch with its build; none of folders of other machines."""
    torch = next(filter(None, (_torch_in(Path(folder)) for folder in folders)), "")
    return external_programs.find_packages(folders) | ({tool_versions.TORCH: torch} if torch else {})


def _driver() -> str:
    for path in DRIVERS:
        with suppress(OSError):
            # In the second file, the first line names the driver and the next line the compiler.
            if found := tool_versions.NUMBER.search(path.read_text().partition("\n")[0]):
                return found[0]
    return ""


def find_differing(found: Iterable[MeasuredFile], now: Mapping[str, str]) -> list[MeasuredFile]:
    """Measured files whose recorded versions differ from the installed ones."""
    return [one for one in found if changed_versions(one, now)]


def changed_versions(one: MeasuredFile, now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Recorded and present versions of the software that has changed since a measurement, by name.

    now: installed versions; those of packages are read from the folders in which the program looked.
    """
    present = {**now, **(_packages_in(one.folders))}
    return {
        name: (version, present[name])
        for name, version in one.versions.items()
        if present.get(name, version) != version
    }


def describe_changes(sidecar: Path, local: bool = True) -> str:
    """Describe in a few words what software has changed since a file was measured; empty if none has.

    local: whether jobs run on this machine.
    """
    one = read_measured(sidecar)
    changed = changed_versions(one, _all_installed(local)) if one else {}
    return ", ".join(f"{name} was {old} and is {new}" for name, (old, new) in [*changed.items()][:SHOWN])


def version_lines(found: Sequence[MeasuredFile], now: Mapping[str, str], results: str, policy: str = SAY) -> list[str]:
    """Format one line per outdated version with its cells, and one with what follows; empty if all agree.

    policy: the setting `environment`.
    """
    of_version: dict[tuple[str, str, str], dict[str, None]] = {}
    for one in found:
        for name, versions in changed_versions(one, now).items():
            of_version.setdefault((name, *versions), {})[one.cell] = None
    said = [
        f"{_listed(list(cells))} measured with {name} {version}, and {name} {new} is installed now"
        for (name, version, new), cells in of_version.items()
    ]
    models = " ".join(dict.fromkeys(one.model for one in found))
    again = f"python -m profzoo.collect.version_changes {results} {models}"
    follows = {
        SAY: f"these are {KEPT}; to measure them again, end the line with -R $({again}), or set environment=measure",
        MEASURE: "these are measured again, because environment = 'measure'",
        FAIL: "the run ends here, because environment = 'fail'; `measure` measures these again, and `say` keeps them",
    }
    more = [f"the same holds for {len(said) - LINES} other versions"] if len(said) > LINES else []
    return [*said[:LINES], *more, follows[policy]] if said else []


def _listed(cells: Sequence[str]) -> str:
    """Join a limited number of cell names.

    >>> _listed(["a train"]), _listed(["a train", "b train", "c train", "d train"])
    ('1 cell (a train) was', '4 cells (a train, b train, c train, ...) were')
    """
    more = ", ..." if len(cells) > SHOWN else ""
    count = f"{len(cells)} cell{'s' if len(cells) > 1 else ''}"
    return f"{count} ({', '.join(cells[:SHOWN])}{more}) {'were' if len(cells) > 1 else 'was'}"


def version_messages(
    results: str, models: Collection[str], chosen: Collection[str], local: bool, words: Sequence[str], policy: str = SAY
) -> list[str]:
    """Lines to print before a run; chosen: the run's tools; words: its command line; policy: setting `environment`.

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
    return version_lines(find_differing(mine, now), now, results, policy)


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
