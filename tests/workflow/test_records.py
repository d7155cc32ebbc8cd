"""Results are known by their content: another job's, damaged and foreign ones, whatever Snakemake's records say."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from profzoo.cli import verify
from profzoo.collect import version_changes
from profzoo.io import file_checks
from profzoo.records import digests, record
from tests import slow
from tests.workflow.project import COLLECTING, ONE_MODEL, WAITING, Project, copy, rules

CELL = {"time_training", "time_inference", "profile_torch"}
MEASURED = {*CELL, "export_torch"}


def batch(project: Project, path: str = "results/lstm/train.time.csv.json") -> int:
    found = json.loads(project.read(path))["cell"]["batch"]
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("how", slow.first(["removed", "emptied", "of another folder"]))
def test_without_snakemakes_records_other_settings_are_measured_again(built: Project, recorded: Path, how: str) -> None:
    folder = built.root / ".snakemake"
    if how == "of another folder":
        shutil.rmtree(folder / "metadata")
    else:
        shutil.rmtree(folder)
    if how == "emptied":
        folder.mkdir()
    jobs = built.dry("all", "--config", "batch=7")
    assert rules(jobs) >= CELL and {job.model for job in jobs if job.rule in CELL} == {"lstm"}
    built.recording = recorded
    built.snakemake("results/lstm/train.time.csv", "--config", "batch=7")
    assert batch(built) == 7


def forget(project: Project, made: bool) -> None:
    """Remove all sidecars and records, and what Snakemake keeps; made: also the list of what this folder has made."""
    for path in (project.root / "results").rglob("*.json"):
        path.unlink()
    shutil.rmtree(project.root / ".snakemake" if made else project.root / ".snakemake/metadata")


@pytest.mark.slow
def test_results_without_any_record_are_measured_again_or_refused(built: Project, recorded: Path) -> None:
    """Of a copy that leaves out *.json nothing tells the settings: with batch 7 asked for, batch 4 is not an answer."""
    cell = "results/lstm/train.time.csv"
    forget(built, made=False)
    planned = built.snakemake(cell, "-n", "--config", "batch=7")
    assert "no record says how it was made" in planned.stdout + planned.stderr
    assert rules(built.dry("all")) >= CELL
    built.recording = recorded
    said = built.snakemake(cell, "--config", "batch=7").stderr
    assert f"{cell} is measured again: no record says how it was made" in said and batch(built) == 7
    forget(built, made=True)
    before = built.read(cell)
    refused = built.snakemake(cell, "--config", "batch=7", ok=False)
    assert refused.returncode == 1 and built.read(cell) == before
    assert f"{cell}, " in refused.stderr and "were not made in this folder" in refused.stderr


@pytest.mark.slow
def test_what_is_taken_over_other_settings_is_said(built: Project) -> None:
    words = ["report", "--dry-run", "--config", "collect=false"]
    assert "warning: " not in built.snakemake(*words).stderr
    told = built.snakemake(*words, "batch=7").stderr
    lines = [line for line in told.splitlines() if "warning: " in line]
    assert len(lines) == 1, told
    assert lines[0].startswith(
        "profzoo: warning: 2 cells (lstm train, lstm inference) are taken with other settings than"
    )
    assert lines[0].endswith(
        "as collect=false takes results as they are: batch was 10 and is 7; samples was 30 and is 21"
    )
    (built.root / "results/lstm/.records/train.torch.csv.json").unlink()
    told = built.snakemake(*words).stderr
    assert (
        "warning: 1 cell (lstm train) is taken without knowing the settings, as collect=false takes results as they are: "
        "train.torch.csv has no record"
    ) in told


@pytest.mark.slow
def test_two_checkouts_on_the_same_results_each_have_their_own_job(
    built: Project, recorded: Path, tmp_path: Path
) -> None:
    other = copy(tmp_path / "other" / "project")
    (other.root / "results").symlink_to(built.root / "results")
    built.recording = other.recording = recorded
    cell, mine, theirs = "results/lstm/train.time.csv", ["--config", "batch=2"], ["--config", "batch=3"]
    for project, words, expected in ((built, mine, 2), (other, theirs, 3), (built, mine, 2)):
        assert project.dry(cell, *words) != []
        project.snakemake(cell, *words)
        assert batch(built) == expected
        assert project.dry(cell, *words) == []


@pytest.mark.slow
def test_a_model_that_is_edited_while_it_is_measured_is_measured_again(fresh: Project) -> None:
    fresh.write("tiny.yaml", ONE_MODEL)
    path = "models/lstm.py"
    # The program itself edits it, after it was imported.
    fresh.write(path, fresh.read(path) + f"\nopen({str(fresh.root / path)!r}, 'a').write('# edited\\n')\n")
    run = fresh.snakemake("results/lstm/train.time.csv")
    assert "results/lstm/train.time.csv: models/lstm.py changed while it was measured" in run.stdout + run.stderr
    fresh.write(path, fresh.read(path).split("\nopen(")[0] + "\n")
    assert rules(fresh.dry("results/lstm/train.time.csv")) == {"time_training"}
    fresh.snakemake("results/lstm/train.time.csv")
    assert fresh.dry("results/lstm/train.time.csv") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", slow.first(["CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "MY_SWITCH"]))
def test_another_environment_is_another_measurement(built: Project, recorded: Path, name: str) -> None:
    """The last one is the user's own, passed by `variables`."""
    cell, words = "results/lstm/train.time.csv", ["--config", "variables=MY_SWITCH"]
    built.recording = recorded
    built.snakemake(cell, *words)
    assert built.dry(cell, *words) == []
    built.variables = {name: "1"}
    assert rules(built.dry(cell, *words)) == {"time_training"}
    built.snakemake(cell, *words)
    told = json.loads(built.read(f"{cell}.json"))["variables"]
    assert {*told} == {name, *WAITING} and (told[name] == "1") == (name != "MY_SWITCH")
    assert built.dry(cell, *words) == []
    built.variables = {}
    assert rules(built.dry(cell, *words)) == {"time_training"}


@pytest.mark.slow
def test_damaged_tables_and_pages_are_made_again_in_the_same_run(built: Project, recorded: Path) -> None:
    before = {
        path: built.read(f"results/{path}") for path in ("report.html", "tables/cells.csv", "lstm/train.torch.csv")
    }
    for path, whole in before.items():
        built.write(f"results/{path}", whole[: whole.index("\n") + 1])
    built.recording = recorded
    run = built.snakemake("all")
    assert run.stderr.count("is damaged") == 3 and "and is made again" in run.stderr
    assert all(built.read(f"results/{path}") == whole for path, whole in before.items())
    assert built.dry("all") == []


@pytest.mark.slow
def test_damaged_measurements_are_named_with_the_command_that_makes_them_again(built: Project, recorded: Path) -> None:
    path = "results/lstm/train.time.csv"
    whole = built.read(path)
    header, first, *rest = whole.splitlines()
    # One digit: the number of rows and the form are right.
    changed = first.replace(first[-3], str((int(first[-3]) + 1) % 10), 1) if first[-3].isdigit() else first + "1"
    built.write(path, "\n".join([header, changed, *rest, ""]))
    damaged = built.read(path)
    run = built.snakemake("report", ok=False)
    assert run.returncode == 1 and f"`snakemake --force {path}` makes it again" in run.stdout + run.stderr
    assert built.read(path) == damaged
    built.recording = recorded
    built.snakemake("--force", path)
    built.snakemake("report")
    assert built.dry("report") == []


def test_verify_counts_what_is_whole_and_names_the_rest(built: Project) -> None:
    run = built.snakemake("verify")
    assert "files are what was made" in run.stdout and "no record" not in run.stdout
    (built.root / "results/lstm/train.trace.json.gz").write_bytes(b"")
    (built.root / "results/mine.txt").write_text("mine")
    run = built.snakemake("verify", ok=False)
    assert run.returncode == 1
    assert "results/lstm/train.trace.json.gz is damaged (it has 0 bytes" in run.stdout
    assert "results/mine.txt has no record" in run.stdout


def test_a_file_of_the_users_own_at_the_place_of_an_output_is_not_replaced(fresh: Project) -> None:
    (fresh.root / "results/lstm").mkdir(parents=True)
    fresh.write("results/lstm/train.time.csv", "mine")
    run = fresh.snakemake("results/lstm/train.time.csv", "--force", ok=False)
    assert run.returncode == 1 and fresh.read("results/lstm/train.time.csv") == "mine"
    assert "results/lstm/train.time.csv was not made in this folder" in run.stdout + run.stderr
    assert "collect=false" in run.stdout + run.stderr


@pytest.mark.slow
def test_measurements_of_a_gpu_are_not_replaced_by_such_of_a_cpu(built: Project, recorded: Path) -> None:
    """Copied from a server, with a change that would have them measured again."""
    built.write("tiny.yaml", built.read("tiny.yaml").replace("device: cpu", "device: auto"))
    cell = "results/lstm/train.time.csv"
    built.recording = recorded
    built.snakemake(cell)
    path = built.root / f"{cell}.json"
    path.write_text(record.seal(json.loads(path.read_text()) | {"gpu": "NVIDIA H200"}))
    assert built.dry(cell) == []
    run = built.snakemake(cell, "--config", "batch=7", ok=False)
    assert run.returncode == 1 and batch(built) != 7
    assert "results/lstm/train.time.csv was measured on NVIDIA H200" in run.stdout + run.stderr
    assert "collect=false" in run.stdout + run.stderr
    built.snakemake(cell, "--config", "batch=7", "device=cpu")
    assert batch(built) == 7


@pytest.mark.slow
def test_a_sidecar_of_another_cell_is_refused_by_the_tables(built: Project) -> None:
    """As after files were moved by hand, without their records."""
    shutil.rmtree(built.root / ".snakemake")
    for path in (built.root / "results").rglob(".records"):
        shutil.rmtree(path)
    for name in ("train.time.csv", "train.time.csv.json"):
        shutil.copy(built.root / "results/unet" / name, built.root / "results/lstm" / name)
    told = built.snakemake("results/tables/cells.csv", "--force", "--config", "collect=false", ok=False).stderr
    # Whoever has set collect=false is not told to set it.
    assert "were not made in this folder" in told and "--config collect=false" not in told
    for folder in ("tables", "figures"):
        shutil.rmtree(built.root / "results" / folder)
    (built.root / "results/report.html").unlink()
    # Made again of what is there, which may not replace a file without a record.
    for phase in ("train", "inference"):
        for model in ("lstm", "unet"):
            for name in ("ranges", "repetition", "step-launches"):
                (built.root / f"results/{model}/{phase}.{name}.csv").unlink()
    run = built.snakemake("results/tables/cells.csv", "--config", "collect=false", ok=False)
    assert run.returncode == 1
    assert "results/lstm/train.time.csv.json belongs to unet train" in run.stdout + run.stderr


@pytest.mark.slow
def test_results_of_another_torch_are_told_and_can_be_measured_again(built: Project) -> None:
    assert "installed now" not in built.snakemake("report", "-n").stderr
    sidecar = built.root / "results/lstm/train.time.csv.json"
    times, facts = sidecar.stat(), json.loads(sidecar.read_text())
    sidecar.write_text(record.seal(facts | {"torch": "1.2.3"}))
    os.utime(sidecar, ns=(times.st_atime_ns, times.st_mtime_ns))
    now = version_changes.installed_versions({"torch"})["torch"]
    for words in (["report", "-n"], ["report", "-n", "-q", "all"], ["results/lstm/train.time.csv"]):
        said = built.snakemake(*words).stderr
        assert f"profzoo: 1 cell (lstm train) was measured with torch 1.2.3, and torch {now} is installed now" in said
    # Nothing is made again by itself, and of other models and tools nothing is said.
    assert not {job.rule for job in built.dry("all")} & COLLECTING
    for words in (["results/unet/train.time.csv"], ["clean", "-n"], ["report", "-n", "--config", "models=unet"]):
        assert "installed now" not in built.snakemake(*words).stderr
    # Each by what the user has chosen.
    ended = built.snakemake("report", "--config", "environment=fail", ok=False)
    assert ended.returncode == version_changes.FAILED_CODE and "the run ends here" in ended.stderr
    assert "Traceback" not in ended.stderr
    measuring = {(job.rule, job.model) for job in built.dry("all", "--config", "environment=measure")} & {
        (rule, model) for rule in COLLECTING for model in ("lstm", "unet")
    }
    assert measuring == {("time_training", "lstm")}
    (command,) = re.findall(r"end the line with -R \$\(python (.*)\)", said)
    done = subprocess.run(
        [sys.executable, *command.split()], cwd=built.root, capture_output=True, text=True, check=True
    )
    again = done.stdout.split()
    assert again == ["results/lstm/train.time.csv.json"]
    measuring = [(job.rule, job.model) for job in built.dry("all", "-R", *again) if job.rule in COLLECTING]
    assert measuring == [("time_training", "lstm")]
    assert "installed now" not in built.snakemake("all", "-n", "-R", *again).stderr


DRAWN, SEED = 200, 38


def digit(whole: bytes, chance: random.Random) -> bytes:
    """One digit is another; a byte where there is no digit."""
    places = [place for place, byte in enumerate(whole) if 48 <= byte <= 57] or [len(whole) // 2]
    place = chance.choice(places)
    return whole[:place] + bytes([48 + (whole[place] - 48 + 1) % 10]) + whole[place + 1 :]


def flipped(whole: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(whole))
    return whole[:place] + bytes([whole[place] ^ (1 << chance.randrange(8))]) + whole[place + 1 :]


def lines(change: Callable[[list[bytes], random.Random], list[bytes]]) -> Callable[[bytes, random.Random], bytes]:
    return lambda whole, chance: b"".join(change(whole.splitlines(keepends=True), chance))


def swapped(given: list[bytes], chance: random.Random) -> list[bytes]:
    first, second = chance.randrange(len(given)), chance.randrange(len(given))
    given[first], given[second] = given[second], given[first]
    return given


KINDS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "empty": lambda whole, chance: b"",
    "zeros in the second half": lambda whole, chance: whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2),
    "zeros alone": lambda whole, chance: bytes(len(whole)),
    "cut anywhere": lambda whole, chance: whole[: chance.randrange(len(whole))],
    "cut at the end of a line": lines(lambda given, chance: given[: chance.randrange(len(given))]),
    "half of the lines": lines(lambda given, chance: given[:1] + given[1::2]),
    "a line twice": lines(lambda given, chance: [*given, given[-1]]),
    "two lines swapped": lines(swapped),
    "another digit": digit,
    "a flipped bit": flipped,
    "something behind": lambda whole, chance: whole + b"\n",
    "a page of another file": lambda whole, chance: (whole[:4096] * 2)[: len(whole)] + whole[8192:],
}


@pytest.mark.slow
def test_two_hundred_damaged_files_are_noticed_or_harmless(built: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(built.root)
    chance, results = random.Random(SEED), Path("results")
    made = [path for path in verify.verifiable_files(results) if path.is_file()]
    assert verify.verify_folder(results).damaged == [] and len(KINDS) == 12 and len(made) > 60
    tried: Counter[str] = Counter()
    noticed: Counter[str] = Counter()
    missed = []
    for number in range(DRAWN):
        kind = list(KINDS)[number % len(KINDS)]
        # Large ones take long to write two hundred times, and are read by the same check.
        small = [one for one in made if one.stat().st_size < 1 << 20]
        damaged = whole = b""
        while damaged == whole:
            # Half of a single line is that line.
            path = chance.choice(small)
            whole, before = path.read_bytes(), path.stat()
            damaged = KINDS[kind](whole, chance)
        path.write_bytes(damaged)
        # As after a power loss, which leaves the times that the file had.
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        digests.forget_digests()
        found = file_checks.find_damage(path) or sidecar_damage(path)
        tried[kind] += 1
        noticed[kind] += bool(found)
        if not found and not harmless(path, whole):
            missed.append((kind, str(path)))
        path.write_bytes(whole)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not missed, missed
    assert sum(tried.values()) == DRAWN and sum(noticed.values()) >= DRAWN * 0.9, (tried, noticed)
    digests.forget_digests()
    assert verify.verify_folder(results).damaged == []


def harmless(path: Path, whole: bytes) -> bool:
    """Whether what is read of a file is what it was: of JSON, whatever white space there is."""
    left = path.read_bytes()
    return json.loads(left) == json.loads(whole) if path.suffix == ".json" else left == whole


def sidecar_damage(path: Path) -> str | None:
    """What is wrong with a sidecar, which is the record of others and of itself."""
    found = verify.FolderFindings()
    verify._check(path, found)
    return found.damaged[0] if found.damaged else None
