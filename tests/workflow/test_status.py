"""What was measured and whether it is up to date, by `status`; what `clean` removes of one model, and says beforehand."""

import re
from pathlib import Path

import pytest

from tests import slow
from tests.workflow.conftest import shared
from tests.workflow.project import Built, Project, copy

ODD = ["--config", "variants={odd: {batch: 3}}"]
MADE = ["results/lstm/train.time.csv", "results/lstm@odd/train.torch.csv", "results/unet/train.time.csv"]


@pytest.fixture(scope="module")
def three_builds(tmp_path_factory: pytest.TempPathFactory, recorded: Path) -> Built:
    """A project with a cell of a model, one of its variant, and one of another model; each only copies a recording."""
    folder = tmp_path_factory.mktemp("status")
    project = copy(folder / "project")
    project.recording = folder / "recording"
    project.recording.mkdir()
    for name in ("lstm", "lstm@odd", "unet"):
        (project.recording / name).symlink_to(recorded / name.partition("@")[0])
    return Built(project, *MADE, *ODD, kept=shared(tmp_path_factory) / "status_build")


@pytest.fixture
def three(three_builds: Built) -> Project:
    return three_builds.restored()


def states(printed: str) -> dict[tuple[str, str], str]:
    """State of each measurement in a printed status, by cell and tool."""
    rows = [re.split(r" {2,}", line) for line in printed.splitlines()]
    return {(row[0], row[1]): row[-1] for row in rows if len(row) == 8 and row[0] != "cell"}


KNOWN = {("lstm train", "time"): "up to date", ("lstm@odd train", "torch"): "up to date",
         ("unet train", "time"): "up to date"}  # fmt: skip


def test_status_judges_as_a_run_does(three: Project) -> None:
    run = three.snakemake("status", *ODD)
    assert states(run.stdout) == KNOWN
    assert re.search(r"^3 measurements of 3 cells: 3 up to date; results takes \d+ kB$", run.stdout, re.MULTILINE)
    assert re.search(r"^lstm train +time +20\d\d-\d\d-\d\d \d\d:\d\d +\d+ \w+ +2\.", run.stdout, re.MULTILINE)


def test_status_says_why_a_cell_is_out_of_date(three: Project) -> None:
    three.write("models/unet.py", three.read("models/unet.py") + "\n# edited\n")
    time = three.root / "results/lstm/train.time.csv"
    time.write_text(time.read_text().replace("1", "2"))
    found = states(three.snakemake("status", *ODD).stdout)
    assert found["unet train", "time"].startswith("out of date: models/unet.py")
    assert found["lstm train", "time"].startswith("damaged: ") and found["lstm@odd train", "torch"] == "up to date"
    assert "time_training" in {job.rule for job in three.dry("results/unet/train.time.csv")}
    other = states(three.snakemake("status", "--config", "batch=7", "models=lstm").stdout)
    # Without the variant, no cell of this configuration is the variant's.
    assert {*other} == {("lstm train", "time"), ("lstm@odd train", "torch")}
    assert other["lstm@odd train", "torch"] == "not in this configuration"
    assert other["lstm train", "time"] == "out of date: cell.batch was 10 and is 7; cell.samples was 30 and is 21"


@pytest.mark.slow
def test_status_of_nothing_and_a_dry_one_say_what_there_is(three: Project, fresh: Project) -> None:
    assert "results has no measurement yet" in fresh.snakemake("status").stdout
    assert not (fresh.root / "results").exists()
    run = three.snakemake("status", "-n")
    assert "`status` only prints: run it without -n" in run.stdout + run.stderr
    run = three.snakemake("status", "--config", "models=srcnn")
    assert "results has no measurement of srcnn; valid are: lstm, lstm@odd, unet" in run.stdout
    run = three.snakemake("status", "--config", "models=lstn", ok=False)
    assert run.returncode and "no model or group of that name; did you mean 'lstm'?" in run.stdout + run.stderr
    run = three.snakemake("clean", "--config", "models=srcnn")
    assert "results has no files of srcnn; valid are: lstm, lstm@odd, unet" in run.stdout


def test_clean_removes_one_model_with_its_variants_and_logs_as_a_dry_one_lists(three: Project) -> None:
    three.write("results/lstm/notes.txt", "the user's own")
    every = all_files(three)
    dry = three.snakemake("clean", "-n", "--config", "models=lstm")
    told = dry.stdout + dry.stderr
    (count,) = re.findall(r"^would remove (\d+) files of results, \d+ kB:$", told, re.MULTILINE)
    assert re.findall(r"^  (\S+) +\d+ files +\d+ kB$", told, re.MULTILINE) == ["lstm@odd", "lstm"]
    assert all_files(three) == every
    before = {path for path in every if "/lstm" not in f"/{path}"}
    run = three.snakemake("clean", "--config", "models=lstm")
    assert f"removed {count} files of lstm; left 1 that the workflow did not make" in run.stdout.splitlines()
    assert all_files(three) == before | {"lstm/notes.txt"} and any(path.startswith("logs/unet/") for path in before)
    assert not (three.root / "results/lstm@odd").exists() and not (three.root / "results/logs/lstm").exists()
    # The other model is as it was, and what was removed is made again.
    assert {job.model for job in three.dry(*MADE, *ODD)} == {"lstm", "lstm@odd"}


@pytest.mark.slow
def test_clean_removes_one_variant(three: Project) -> None:
    kept = {path for path in all_files(three) if "lstm@odd/" not in path}
    three.snakemake("clean", "--config", "models=lstm@odd", "variants={odd: {batch: 3}}")
    assert all_files(three) == kept and "lstm/train.time.csv" in kept


@pytest.mark.parametrize(
    ("words", "said"),
    slow.first(
        [
            (["models=lstn"], "no model or group of that name; did you mean 'lstm'?"),
            (["models=lstm", "phases=train"], "phases cannot be chosen here, only models: leave phases out"),
        ]
    ),
)
def test_what_clean_cannot_choose_is_said(three: Project, words: list[str], said: str) -> None:
    before = all_files(three)
    run = three.snakemake("clean", "--config", *words, ok=False)
    assert run.returncode and said in run.stdout + run.stderr and all_files(three) == before


def all_files(project: Project) -> set[str]:
    """Every file of the results, but for the lock of a run."""
    root: Path = project.root / "results"
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_status_knows_section_sets(ncu_built: Project) -> None:
    run = ncu_built.snakemake("status", "--config", "tool=ncu")
    found = states(run.stdout)
    assert found["lstm train", "ncu roofline"] == found["lstm train", "time"] == "up to date", run.stdout
    assert re.search(r"^lstm train +ncu roofline .* 2025\.3\.1\.0 ", run.stdout, re.MULTILINE)
