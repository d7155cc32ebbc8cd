"""Results are known by their content: another job's, damaged and foreign ones, whatever Snakemake's records say."""

import json
import shutil
from pathlib import Path

import pytest

from profzoo.records import record
from tests import slow
from tests.workflow.project import ONE_MODEL, WAITING, Project, copy, rules

CELL = {"train_weights", "time_training", "time_inference", "profile_torch"}
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
    assert built.dry("all") == []
    jobs = built.dry("all", "--config", "batch=7")
    assert rules(jobs) >= CELL and {job.model for job in jobs if job.rule in CELL} == {"lstm"}
    built.recording = recorded
    built.snakemake("results/lstm/train.time.csv", "--config", "batch=7")
    assert batch(built) == 7
    assert built.dry("results/lstm/train.time.csv", "--config", "batch=7") == []


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


@pytest.mark.parametrize("name", slow.first(["CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "MY_SWITCH"]))
def test_another_environment_is_another_measurement(built: Project, recorded: Path, name: str) -> None:
    """The last one is the user's own, passed by `environment`."""
    cell, words = "results/lstm/train.time.csv", ["--config", "environment=MY_SWITCH"]
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
    (built.root / "results/lstm/weights.pt").write_bytes(b"")
    (built.root / "results/mine.txt").write_text("mine")
    run = built.snakemake("verify", ok=False)
    assert run.returncode == 1
    assert "results/lstm/weights.pt is damaged (it has 0 bytes" in run.stdout
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
