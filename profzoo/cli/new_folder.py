"""Creates a folder with the whole workflow from the installed package, and runs the demo there."""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from profzoo.cli import project_files
from profzoo.errors import ConfigError
from profzoo.records import import_graph

PACKAGE = Path(__file__).parents[1]
DEMO = "config/quickstart.yaml"
# What the workflow takes to run, besides the package and a configuration.
RUNNING = ("Snakefile", "workflow", "models", "profiles")


def create_folder(folder: Path, package: Path = PACKAGE) -> None:
    """Copy the workflow, the zoo and the package into a new folder, which is then like a clone of the repository.

    Raises:
        ConfigError: the folder exists, cannot be created, or this installation lacks the files of the workflow.
    """
    source = project_files.find_folder(package)
    try:
        files = project_files.list_files(source)
    except (OSError, KeyError) as error:
        raise ConfigError(f"this installation of profzoo has no workflow to copy ({error}): install it again") from None
    if os.path.lexists(folder):
        raise ConfigError(f"{folder} exists already, and nothing in it was changed: name a folder that does not exist")
    try:
        folder.mkdir(parents=True)
        for file in files:
            copy_file(source / file, folder / file)
        for path in project_files.list_folder(package):
            copy_file(path, folder / PACKAGE.name / path.relative_to(package))
    except OSError as error:
        raise ConfigError(f"cannot create {folder}: {error.strerror or error}") from None


def copy_file(source: Path, target: Path) -> None:
    """Copy a file with its permissions, into a folder that is made where it is missing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
    # An installed package may be read-only, but the copy is there to be changed.
    target.chmod(target.stat().st_mode | 0o200)


def update_folder(folder: Path, package: Path = PACKAGE) -> None:
    """Let a folder, which need not exist, hold what the workflow takes to run as it is installed; git ignores it.

    Raises:
        ConfigError: this installation lacks the files of the workflow.
        OSError: a file cannot be written.
    """
    folder.mkdir(exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    source = project_files.find_folder(package)
    wanted = {folder / package.name / path.relative_to(package): path for path in project_files.list_folder(package)}
    for name in RUNNING:
        if not (source / name).exists():
            raise ConfigError(f"this installation of profzoo lacks {name} of the workflow: install it again")
        wanted |= {folder / path.relative_to(source): path for path in project_files.list_folder(source / name)}
    for target, path in wanted.items():
        if not target.exists() or _state(target) != _state(path):
            copy_file(path, target)
    for name in (package.name, *RUNNING):
        for path in project_files.list_folder(folder / name):
            if path not in wanted:
                path.unlink()


def other_packages(variables: Mapping[str, str]) -> str:
    """Return PYTHONPATH without this project, for a run in such a folder, whose own package is to be found."""
    paths = [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path]
    return os.pathsep.join(path for path in paths if Path(path).resolve() != import_graph.PROJECT)


def _state(path: Path) -> tuple[int, int]:
    """Return the size of a file and its time of modification, which a copy has too."""
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns


def run_demo(folder: Path) -> int:
    """Profile the demo's models in a folder that has the workflow; returns the exit code of snakemake."""
    programs = Path(sys.executable).parent
    # Jobs run the `python` that they find on PATH.
    variables = dict(os.environ) | {"PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    command = [sys.executable, "-m", "snakemake", "report", "--configfile", DEMO]
    return subprocess.run(command, cwd=folder, env=variables, check=False).returncode


def describe_next(folder: Path, demo: bool) -> list[str]:
    """Say in lines what to type in the new folder; demo: whether the demo ran there."""
    activate = Path(sys.prefix) / "bin" / "activate"
    # With this Python's folder on PATH, `snakemake` and the `python` of its jobs are found.
    enter = f". {shlex.quote(str(activate))}" if activate.exists() else f"PATH={shlex.quote(sys.prefix)}/bin:$PATH"
    then = (
        [f"snakemake serve --configfile {DEMO}    # open the report in a browser"]
        if demo
        else [f"snakemake report --configfile {DEMO}    # profile three small models", "snakemake help"]
    )
    return ["next:    " + f"cd {shlex.quote(str(folder))}", *(f"         {line}" for line in (enter, *then))]


def try_to_create(folder: Path) -> int:
    """Create the folder and print its path, or why that is not possible; returns the exit code."""
    try:
        create_folder(folder)
    except ConfigError as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 2
    print(f"created: {folder.resolve()}", flush=True)
    return 0


def main_init(words: Sequence[str]) -> int:
    """Run `profzoo init FOLDER`; returns the exit code."""
    parser = argparse.ArgumentParser(prog="profzoo init", description="Create a folder with the whole workflow.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a folder that does not exist yet")
    folder = parser.parse_args(words).folder
    code = try_to_create(folder)
    if code == 0:
        print("\n".join(describe_next(folder, demo=False)))
    return code


def main_demo(words: Sequence[str]) -> int:
    """Run `profzoo demo [FOLDER]`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="profzoo demo",
        description="Create a folder with the whole workflow, and profile three small models there on this machine.",
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path("profzoo-demo"), metavar="FOLDER",
        help="a folder that does not exist yet (profzoo-demo)",
    )  # fmt: skip
    folder = parser.parse_args(words).folder
    code = try_to_create(folder) or run_demo(folder)
    if code == 0:
        report = folder.resolve() / "results"
        made = [f"report:  {report / 'report.html'}", f"figures: {report / 'figures'}"]
        print("\n".join([*made, *describe_next(folder, demo=True)]))
    return code
