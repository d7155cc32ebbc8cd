"""Jobs that run the scripts of several rules of a cell."""

import shutil

from tests.conftest import DATA
from tests.workflow.project import Project, rules


def test_a_whole_report_takes_a_third_of_the_jobs_and_a_file_its_own(fresh: Project) -> None:
    whole = fresh.dry("report", "--config", "models=lstm", "phases=train", "tool=nsys,torch")
    assert {"derive_from_nsys", "derive_from_torch", "derive_across_tools"} <= rules(whole) and "join_kernels" not in rules(whole)
    one = fresh.dry("results/lstm/train.kernels.csv", "--config", "models=lstm", "phases=train", "tool=nsys,torch")
    assert "join_kernels" in rules(one) and not {name for name in rules(one) if name.startswith("derive_")}


def test_an_imported_trace_has_joint_jobs_too(fresh: Project) -> None:
    shutil.copyfile(DATA / "torch/unet.train.trace.json.gz", fresh.root / "rank0.json.gz")
    jobs = fresh.dry("import", "--config", "torch=rank0.json.gz", "name=run7", "tool=torch")
    assert {"import_torch", "derive_from_nsys", "derive_from_torch", "derive_across_tools"} <= rules(jobs)
    assert not {"export_nsys", "condense_step", "join_kernels", "add_up_layers"} & rules(jobs)


def test_a_dry_run_has_groups_of_jobs_where_its_profile_has(fresh: Project) -> None:
    asked = ("report", "--config", "models=lstm", "phases=train", "tool=torch", "--dry-run", "--quiet", "reason")
    assert "Group job" not in fresh.snakemake(*asked).stdout
    assert "Group job" in fresh.snakemake(*asked, "--group-components", "export=20").stdout
