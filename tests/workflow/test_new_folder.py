"""What `profzoo init` and `profzoo demo` create from a wheel: a folder in which the workflow runs as in a checkout."""

import filecmp
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from profzoo import __main__ as command_line
from profzoo.cli import new_folder, project_files
from profzoo.referee import states
from tests.workflow.project import CHECKOUT, COPIED, TINY, Project

DATA = (".py", ".yaml", ".j2", ".css", ".js", ".md")
LISTED = {str(path) for path in project_files.list_files(CHECKOUT)}
PACKAGE = {str(path.relative_to(CHECKOUT)) for path in project_files.list_folder(CHECKOUT / "profzoo")}
BUILD = "import sys, setuptools.build_meta as build; getattr(build, 'build_' + sys.argv[1])(sys.argv[2])"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the sdist from the checkout's files, and the wheel from the sdist; nothing is downloaded."""
    pytest.importorskip("setuptools", reason="no setuptools here to build a wheel by")
    root = tmp_path_factory.mktemp("archives")
    source = root / "source"
    for file in sorted(LISTED | PACKAGE):
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / file, source / file)
    sdist = build(source, "sdist", root)
    with tarfile.open(sdist) as archive:
        states.unpack(archive, root / "unpacked")
    (unpacked,) = (root / "unpacked").iterdir()
    return sdist, build(unpacked, "wheel", root)


def build(source: Path, kind: str, target: Path) -> Path:
    run = subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(target)], cwd=source, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    (made,) = target.glob("profzoo-*.tar.gz" if kind == "sdist" else "profzoo-*.whl")
    return made


@pytest.fixture(scope="module")
def installed(archives: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder into which the wheel is unpacked, with permissions, as pip unpacks it."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(archives[1]) as wheel:
        for member in wheel.infolist():
            path = Path(wheel.extract(member, folder))
            if member.external_attr >> 16 & 0o111:
                path.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def created(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Return the folder that the unpacked wheel's `profzoo init` creates."""
    folder = tmp_path_factory.mktemp("created") / "new"
    run = profzoo(installed, folder.parent, "init", "new")
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0] == f"created: {folder}"
    yield Project(folder)


def profzoo(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command of an unpacked wheel in a folder."""
    variables = dict(os.environ) | {"PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, "-P", "-m", "profzoo", *words], cwd=folder, env=variables, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_wheel_and_sdist_hold_what_the_workflow_needs(archives: tuple[Path, Path]) -> None:
    sdist, wheel = archives
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert held >= LISTED | PACKAGE
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    inside = f"profzoo/{project_files.INSTALLED}/"
    package = {name for name in PACKAGE if name.endswith(DATA)}
    assert {name for name in names if ".dist-info/" not in name} == package | {inside + name for name in LISTED}
    assert any(name.endswith("/LICENSE") for name in names)


def test_every_file_that_a_run_reads_is_listed() -> None:
    """Copies for tests and for clusters hold these folders; what is in them is in a new folder too."""
    tracked = subprocess.run(["git", "ls-files", *COPIED], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("no git, or no repository")
    assert set(tracked.stdout.split("\n")) - {""} <= LISTED | PACKAGE


@pytest.mark.slow
def test_a_new_folder_is_as_the_checkout(created: Project) -> None:
    found = {str(path.relative_to(created.root)) for path in created.root.rglob("*") if path.is_file()}
    assert found == LISTED | {name for name in PACKAGE if name.endswith(DATA)}
    same, differing, missing = filecmp.cmpfiles(CHECKOUT, created.root, found, shallow=False)
    assert set(same) == found and not differing and not missing
    script = "profiles/slurm/bin/sbatch"
    assert os.access(created.root / script, os.X_OK) == os.access(CHECKOUT / script, os.X_OK)


@pytest.mark.slow
def test_a_dry_run_in_a_new_folder_plans_the_demo(created: Project) -> None:
    """Its jobs read the new folder's own package, and not one that is installed elsewhere."""
    (created.root / "tiny.yaml").write_text(TINY)
    printed = created.snakemake("report", "--dry-run").stdout
    assert {*re.findall(r"wildcards: .*model=(\w+)", printed)} >= {"lstm", "unet"}
    job = re.search(r"^rule profile_torch:\n +input: (.*)\n +output: results/lstm/train\.torch", printed, re.MULTILINE)
    assert job and {"models/lstm.py", "profzoo/harness/step/measure.py"} <= set(job[1].split(", "))


@pytest.mark.parametrize("command", ["init", "demo"])
@pytest.mark.parametrize("there", ["a folder", "a file", "a link to nothing"])
def test_what_exists_is_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, there: str
) -> None:
    folder = tmp_path / "mine"
    if there == "a folder":
        folder.mkdir()
        (folder / "Snakefile").write_text("# mine\n")
    elif there == "a file":
        folder.write_text("mine")
    else:
        folder.symlink_to(tmp_path / "nowhere")
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert command_line.main([command, str(folder)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and f"{folder} exists already" in said[0] and "name a folder" in said[0]
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_folder_that_cannot_be_created_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert command_line.main(["init", str(tmp_path / "file" / "new")]) == 2
    assert re.fullmatch(r"profzoo: cannot create \S+/file/new: Not a directory\n", capsys.readouterr().err)


def test_a_package_without_the_workflow_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As after `pip install` of a wheel that somebody built otherwise."""
    (tmp_path / "site" / "profzoo").mkdir(parents=True)
    with pytest.raises(new_folder.ConfigError, match=r"has no workflow to copy .*pyproject\.toml.*: install it again"):
        new_folder.create_folder(tmp_path / "new", tmp_path / "site" / "profzoo")
    assert not (tmp_path / "new").exists()


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(f"\n  profzoo {name}" in told for name in command_line.COMMANDS) and "snakemake help" in told
    assert command_line.main(["dmeo"]) == 2
    assert capsys.readouterr().err.startswith("profzoo: there is no command 'dmeo'\n")
