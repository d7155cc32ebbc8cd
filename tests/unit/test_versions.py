"""Which versions work: one table, which pyproject.toml, both locks, the Makefile and the documents agree with."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from profzoo import __main__, versions
from profzoo.machine import choose_lock, doctor_checks, gpus
from profzoo.machine.doctor_checks import Finding
from profzoo.versions import BUILDS, SUPPORTED

PROJECT = Path(__file__).parents[2]
DECLARED = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
# What a release of torch brings with it, so that the locks differ in it.
OF_TORCH = re.compile(r"torch(vision)?|triton|nvidia-(?!ml-py).*|cuda-.*")


def locked(lock: str) -> dict[str, str]:
    """Packages that a lock pins, each with its versions, which may differ by Python."""
    found: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", (PROJECT / lock).read_text(), re.MULTILINE):
        found.setdefault(name, []).append(version)
    return {name: " ".join(pinned) for name, pinned in found.items()}


def test_pyproject_states_the_ranges_of_the_table() -> None:
    stated = {re.match(r"[\w-]+", line)[0]: line for line in DECLARED["dependencies"]}
    python, *packages = SUPPORTED
    assert python.package == versions.PYTHON and DECLARED["requires-python"] == f">={python.oldest}"
    for one in packages:
        assert stated[one.package] == f"{one.package}>={one.oldest}" + (f",<{one.below}" if one.below else "")
    classified = [line.rpartition(" ")[2] for line in DECLARED["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert tuple(classified) == python.tried


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.lock)
def test_each_lock_pins_a_torch_for_its_cuda(build: versions.TorchBuild) -> None:
    pinned = locked(build.lock)
    assert pinned["torch"].startswith(f"{build.locked}.")
    (runtime,) = [version for name, version in pinned.items() if re.fullmatch(r"nvidia-cuda-runtime(-cu\d+)?", name)]
    assert f"{runtime}.".startswith(f"{build.cuda}.")
    release = versions.release_numbers(build.locked)
    assert versions.release_numbers(build.oldest) <= release
    assert build.newest is None or release <= versions.release_numbers(build.newest)
    text = (PROJECT / build.lock).read_text()
    assert "://" not in text and "--index" not in text
    pins, hashed = (
        re.findall(r"^[\w.-]+==", text, re.MULTILINE),
        re.findall(r"^[\w.-]+==.*\\\n +--hash=", text, re.MULTILINE),
    )
    assert len(pins) == len(hashed) > 100


def test_the_locks_differ_only_in_what_comes_with_torch() -> None:
    one, other = (locked(build.lock) for build in BUILDS)
    differing = {name for name in {*one, *other} if one.get(name) != other.get(name)}
    assert {"torch", "torchvision"} <= differing
    assert [name for name in sorted(differing) if not OF_TORCH.fullmatch(name)] == []


def test_makefile_writes_and_installs_these_locks() -> None:
    text = (PROJECT / "Makefile").read_text()
    for build in BUILDS:
        assert f"\nLOCK_{build.major} := {build.lock}\n" in text
        assert f"'torch=={build.locked}.*' | $(COMPILE) $(LOCK_{build.major})\n" in text
    oldest = versions.release_numbers(SUPPORTED[0].oldest)
    assert f"sys.version_info < {oldest}" in text and f"profzoo needs Python {SUPPORTED[0].oldest} or later" in text


PAGES = {path.relative_to(PROJECT).as_posix(): path.read_text()
         for path in (PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *(PROJECT / "docs").rglob("*.md"))}  # fmt: skip
# From this driver on, ncu needs less than all permissions.
PERMITTED = {565}


def test_every_page_states_the_same_range_of_python() -> None:
    oldest, *_, newest = SUPPORTED[0].tried
    stated = {page: re.findall(r"\b3\.\d+ to 3\.\d+\b", text) for page, text in PAGES.items()}
    assert stated["README.md"] and stated["docs/start/first_hour.md"]
    assert {span for spans in stated.values() for span in spans} == {f"{oldest} to {newest}"}


def test_every_page_states_the_same_drivers() -> None:
    known = {gpus.OLDEST_DRIVER[build.major] for build in BUILDS}
    assert known == {525, 580}
    stated = re.compile(r"[Dd]rivers? (?:is |needs |older than )?([45]\d\d)\b")
    found = {page: {int(number) for number in stated.findall(text)} for page, text in PAGES.items()
             if not page.startswith("docs/measured")}  # fmt: skip
    assert {525} <= found["README.md"] and {525, 580} <= found["docs/start/machine.md"]
    # An output of a machine with driver 550 is shown there.
    assert {number for numbers in found.values() for number in numbers} - PERMITTED - {550} == known
    (row,) = re.findall(r"^\| NVIDIA driver \| (\d+) or later", PAGES["docs/start/first_hour.md"], re.MULTILINE)
    assert int(row) == min(known)


@pytest.mark.parametrize(
    ("driver", "lock"),
    [
        ("525.60.13", "requirements-cuda12.lock"), ("535.183.01", "requirements-cuda12.lock"),
        ("570.211.01", "requirements-cuda12.lock"), ("580.65.06", "requirements.lock"), ("610.1", "requirements.lock"),
        ("470.256.02", None), ("524.9", None), ("[N/A]", None),
    ],
)  # fmt: skip
def test_the_driver_chooses_the_newest_torch_that_it_runs(driver: str, lock: str | None) -> None:
    build = choose_lock.fit_driver(driver)
    assert (build.lock if build else None) == lock
    # By the other way: the check that explains why a torch sees no GPU agrees.
    able = [one.lock for one in BUILDS if not gpus.explain_old_driver(driver, one.cuda)]
    assert lock is None or able[-1] == lock


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Put an nvidia-smi first on PATH."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/nvidia-smi").write_text(f"#!/bin/sh\n{body}\n")
    (folder / "bin/nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("body", "words", "lock", "told"),
    [
        ("echo 'A100, 550.54, GPU-a, 1 MiB'", [], "requirements-cuda12.lock", "with torch 2.10 for CUDA 12.8, because "
         "the driver is 550.54; CUDA 12 needs 525 or later, and CUDA 13 needs 580 or later"),
        ("echo 'A100, 580.95, GPU-a, 1 MiB'", [], "requirements.lock", "with torch 2.11 for CUDA 13, because the "
         "driver is 580.95; CUDA 13 needs 580 or later"),
        ("echo 'A100, 580.95, GPU-a, 1 MiB'", ["12"], "requirements-cuda12.lock", "because CUDA=12 chooses it"),
        ("echo 'A100, 470.2, GPU-a, 1 MiB'", ["13"], "requirements.lock", "because CUDA=13 chooses it"),
        ("echo 'no driver is loaded'; exit 9", [], "requirements.lock", "because nvidia-smi fails: no driver is loaded"),
        ("exit 0", [], "requirements.lock", "because nvidia-smi shows none"),
        ("echo 'A100, 470.2, GPU-a, 1 MiB'", [], "", "driver 470.2 is too old for every torch that profzoo works with: "
         "update it to 525 or later, or run `make env CUDA=13` and profile on the CPU with device=cpu"),
        ("exit 0", ["11"], "", "CUDA=11: there is no lock for it; valid are: 12, 13"),
    ],
)  # fmt: skip
def test_one_line_says_which_lock_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    body: str, words: list[str], lock: str, told: str,
) -> None:  # fmt: skip
    nvidia_smi(tmp_path, monkeypatch, body)
    monkeypatch.setattr(choose_lock.platform, "machine", lambda: "x86_64")
    code = choose_lock.main(words)
    printed = capsys.readouterr()
    assert (code, printed.out.strip()) == (0 if lock else 2, lock)
    assert len(printed.err.splitlines()) == 1 and printed.err.startswith(f"profzoo: {lock}") and told in printed.err


def test_a_torch_without_cuda_here_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = (PROJECT / BUILDS[0].lock).read_text()
    assert re.search(rf"^nvidia-cuda-runtime-cu12==.*platform_machine == '{choose_lock.MACHINE}'", text, re.MULTILINE)
    monkeypatch.setattr(choose_lock.platform, "machine", lambda: "aarch64")
    assert choose_lock.main(["12"]) == 0
    assert "; on aarch64 this torch from PyPI has no CUDA and uses the CPU alone" in capsys.readouterr().err
    assert choose_lock.main(["13"]) == 0
    assert "aarch64" not in capsys.readouterr().err


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *words, f"PYTHON={sys.executable}"], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_make_env_installs_the_lock_that_fits_or_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With locks that hold nothing, so that nothing is downloaded."""
    nvidia_smi(tmp_path, monkeypatch, "echo 'A100, 550.54, GPU-a, 1 MiB'")
    for name in ("Makefile", "profzoo"):
        (tmp_path / name).symlink_to(PROJECT / name)
    for build in BUILDS:
        (tmp_path / build.lock).write_text("")
    done = make(tmp_path, "env")
    assert done.returncode == 0, done.stderr
    assert "profzoo: requirements-cuda12.lock with torch 2.10" in done.stderr
    assert (tmp_path / ".venv/.ready").read_text() == "requirements-cuda12.lock\n"
    for words in (["env"], ["env", "CUDA=12"]):
        assert "Nothing to be done for 'env'" in make(tmp_path, "-n", *words).stdout
    assert "-m profzoo.machine.choose_lock 13" in make(tmp_path, "-n", "env", "CUDA=13").stdout
    refused = make(tmp_path, "env", "CUDA=11")
    assert refused.returncode == 2 and "CUDA=11: there is no lock for it" in refused.stderr
    assert (tmp_path / ".venv/.ready").read_text() == "requirements-cuda12.lock\n"


FITTING = {"Python": "3.14.0", "snakemake": "9.27.0", "torch": "2.8.0", "torchvision": "0.23.0", "pandas": "3.0.0"}


@pytest.mark.parametrize(
    ("package", "version", "needed"),
    [
        ("torch", "2.7.1+cu118", "2.8"), ("torch", "1.13.1", "2.8"), ("snakemake", "9.26.1", "9.27"),
        ("snakemake", "8.30.0", "9.27"), ("pandas", "2.3.3", "3"), ("numpy", "1.26.4", "2"), ("Python", "3.10.13", "3.11"),
        ("torchvision", "0.22.1", "0.23"),
    ],
)  # fmt: skip
def test_an_older_version_is_refused_in_one_line(package: str, version: str, needed: str) -> None:
    assert versions.explain_too_old(FITTING) is None
    told = versions.explain_too_old(FITTING | {package: version}) or ""
    assert told.startswith(f"{package} {version} is too old, because profzoo needs {needed} or later: run `make env")
    assert "\n" not in told and ("PYTHON=/path/to/python3.11" in told) == (package == "Python")
    both = versions.explain_too_old(FITTING | {package: version, "seaborn": "0.1", "pandas": "1.0"}) or ""
    assert "pandas 1.0 is too old" in both


@pytest.mark.parametrize(
    "other",
    [{"torch": "2.10.0+cpu"}, {"torch": "2.8.0a0+34c6371d24.nv25.8"}, {"torch": "3.0.1"}, {"torch": "built by hand"}, {"numpy": "2.0.0"}],
)  # fmt: skip
def test_what_is_not_known_to_be_too_old_is_let_be(other: dict[str, str]) -> None:
    assert versions.explain_too_old(FITTING | other) is None
    assert versions.explain_too_old({"Python": "3.11.0"}) is None


def test_this_environment_is_read_and_fits() -> None:
    found = versions.read_installed(["torch", "no-such-package"])
    assert sorted(found) == ["Python", "torch"] and found["Python"].startswith("3.")
    assert versions.explain_too_old() is None


@pytest.fixture()
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment whose installed files name an older torch first."""
    (tmp_path / "torch-2.6.0.dist-info").mkdir()
    (tmp_path / "torch-2.6.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.6.0\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))


REFUSED = "profzoo: torch 2.6.0 is too old, because profzoo needs 2.8 or later: run `make env` in profzoo's folder"


@pytest.mark.slow
@pytest.mark.usefixtures("older")
def test_the_workflow_refuses_an_older_torch_before_anything_else() -> None:
    command = [sys.executable, "-m", "snakemake", "--snakefile", PROJECT / "Snakefile", "-n", "all"]
    run = subprocess.run(command, cwd=os.environ["PYTHONPATH"], capture_output=True, text=True, check=False)
    assert run.returncode == 1 and run.stderr.splitlines()[-1].startswith(REFUSED) and not run.stdout, run.stderr


@pytest.mark.usefixtures("older")
def test_the_command_for_scripts_refuses_an_older_torch(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["run", "--", "python", "train.py"]) == 2
    assert capsys.readouterr().err.startswith(REFUSED)


@pytest.mark.parametrize(
    ("body", "found", "advice"),
    [
        ("echo 'A100, 550.54, GPU-a, 1 MiB'", "requirements-cuda12.lock (torch 2.8 to 2.10 needs driver 525, later ones 580)", None),
        ("exit 9", "requirements.lock (torch 2.8 to 2.10 needs driver 525, later ones 580)", None),
        ("echo 'A100, 470.2, GPU-a, 1 MiB'", "none fits (torch 2.8 to 2.10 needs driver 525, later ones 580)",
         "update the driver to 525 or later"),
    ],
)  # fmt: skip
def test_doctor_says_which_lock_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, found: str, advice: str | None
) -> None:
    nvidia_smi(tmp_path, monkeypatch, body)
    assert doctor_checks.check_lock() == Finding("lock", found, advice)


def test_doctor_names_versions_that_were_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        versions, "read_installed", lambda names: {"Python": "3.15.0", "torch": "2.8.1", "pandas": "3.10.0"}
    )
    assert doctor_checks.check_versions().found == "Python 3.15.0 (not tried), torch 2.8.1, pandas 3.10.0 (not tried)"


PAGE = (PROJECT / "docs/start/machine.md").read_text()


def test_the_page_has_the_ranges_locks_and_drivers_of_the_table() -> None:
    for one in SUPPORTED:
        (line,) = re.findall(rf"^\| {re.escape(one.package)} \| (.*) \|$", PAGE, re.MULTILINE)
        oldest, below, _ = (cell.strip() for cell in line.split("|"))
        assert (oldest, below or None) == (one.oldest, one.below)
    for build in BUILDS:
        assert f"| `{build.lock}` | `make env CUDA={build.major}` |" in PAGE
        drivers = re.findall(rf"^\| 2\.\d+(?: to 2\.\d+)? \| {build.major}\.\d \| (\d+) \|$", PAGE, re.MULTILINE)
        assert {int(driver) for driver in drivers} == {choose_lock.oldest_driver(build)}
    assert f"| {BUILDS[0].releases} | {BUILDS[0].cuda} |" in PAGE


def test_the_page_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nvidia_smi(tmp_path, monkeypatch, "echo 'A100, 550.54, GPU-a, 1 MiB'")
    monkeypatch.setattr(choose_lock.platform, "machine", lambda: "x86_64")
    assert choose_lock.main([]) == 0
    assert f"$ make env\n{capsys.readouterr().err}" in PAGE
    assert f"$ snakemake all\nprofzoo: {versions.explain_too_old({'torch': '2.6.0'})}\n" in PAGE
