"""Jobs that run the scripts of several rules of a cell."""

import shutil

import pytest

from tests.conftest import DATA
from tests.workflow.project import Project, list_jobs, rules


def test_a_whole_report_takes_a_third_of_the_jobs_and_a_file_its_own(fresh: Project) -> None:
    """There are groups of jobs where the profile has them."""
    asked = ("--config", "models=lstm", "phases=train", "tool=nsys,torch")
    printed = fresh.snakemake("report", *asked, "--dry-run").stdout
    whole = rules(list_jobs(printed))
    assert {"derive_from_nsys", "derive_from_torch", "derive_across_tools"} <= whole and "join_kernels" not in whole
    grouped = fresh.snakemake(
        "results/lstm/train.kernels.csv", *asked, "--dry-run", "--group-components", "export=20"
    ).stdout
    one = rules(list_jobs(grouped))
    assert "join_kernels" in one and not {name for name in one if name.startswith("derive_")}
    assert "Group job" in grouped and "Group job" not in printed


@pytest.mark.slow
def test_what_joint_jobs_made_is_made_again_by_its_own_rules(fresh: Project) -> None:
    shutil.copyfile(DATA / "torch/unet.train.trace.json.gz", fresh.root / "rank0.json.gz")
    asked = ("import", "--config", "torch=rank0.json.gz", "name=run7", "tool=torch")
    names = ["derive_from_import", "draw_figures", "import", "tabulate_cells", "write_report"]
    assert sorted(job.rule for job in fresh.dry(*asked)) == names
    fresh.snakemake(*asked)
    assert fresh.dry(*asked) == []
    # Each output has the record of its own rule, which makes it again.
    for path in ("tables/verdicts.csv", "figures/steps.svg"):
        (fresh.root / "results" / path).unlink()
    made = rules(fresh.dry(*asked))
    assert {"tabulate_verdicts", "draw_figures"} <= made and not made & {
        "derive_from_import",
        "tabulate_cells",
        "tabulate",
    }


def test_a_run_that_collects_nothing_joins_what_is_made_across_cells(built: Project) -> None:
    names, results = ("tables", "figures"), built.root / "results"
    for name in names:
        (results / name).rename(built.root / name)
    try:
        made = rules(built.dry("report", "--config", "collect=false"))
    finally:
        for name in names:
            (built.root / name).rename(results / name)
    assert {"tabulate_cells", "draw_figures", "write_report"} <= made
    assert not made & {"tabulate", "tabulate_verdicts", "draw_figure", "derive_from_torch"}
