"""`snakemake compare` and `trials` of a variant that skips layers: it is not called faster, and can fail the run."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.columns import undescribed
from tests.workflow.project import CHECKOUT, Project, copy

CONFIG = {
    "models": {"planted": {"module": "planted_numerics"}},
    "tool": "time", "device": "cpu", "phases": ["train"], "threads": 1, "repeats": 2, "time": {"window": 6},
    "variants": {"skipping": {"changed": "skipped_layers"}, "written": {"changed": "written_out"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project whose only model skips layers in a variant, and is written in another way in another one."""
    made = copy(tmp_path_factory.mktemp("numerics") / "project", json.dumps(CONFIG))
    shutil.copy(CHECKOUT / "tests/planted_numerics.py", made.root)
    return made


@pytest.mark.slow
def test_a_candidate_that_skips_layers_is_not_faster(project: Project) -> None:
    run = project.snakemake("compare", "--config", "candidate=skipping,written", "fail_on=different", ok=False)
    printed = run.stdout + run.stderr
    assert run.returncode != 0 and "computes something else" in printed and "faster," not in printed
    table = pd.read_csv(project.root / "results/tables/compare.csv").set_index("candidate")
    assert table["numerics"].to_dict() == {"skipping": "different", "written": "same"}
    skipping = table.loc["skipping"]
    assert skipping["verdict"] != "faster" and skipping["ratio"] < 0.8
    assert skipping["numerics_by"] == "parameters with a gradient" and "operations" in skipping["work"]
    assert undescribed(project.root / "results") == []
    assert project.snakemake("compare", "--config", "candidate=skipping,written").returncode == 0


@pytest.mark.slow
def test_settings_that_skip_layers_are_not_advised(project: Project) -> None:
    panel = "trials={panel: [skipping], max_settings: 1, budget: 120s, repeats: 2}"
    run = project.snakemake("trials", "--config", panel)
    rows = pd.read_csv(project.root / "results/tables/trials.csv").set_index("settings")
    row = rows.loc["skipping"]
    assert row["gain"] > 1.2 and row["numerics"] == "different" and row["verdict"] != "faster" and not row["chosen"]
    printed = run.stdout + run.stderr
    assert "no setting is clearly faster" in printed and "computes something else" in printed


def sidecar(project: Project) -> dict[str, object]:
    """The sidecar of the compared processes."""
    (path,) = Path(project.root, "results/planted").glob("*.rounds.csv.json")
    found: dict[str, object] = json.loads(path.read_text())
    return found


@pytest.mark.slow
def test_the_first_process_of_each_side_alone_repeats_its_steps(project: Project) -> None:
    processes = sidecar(project)["processes"]
    assert isinstance(processes, list) and len(processes) == 6
    repeated = [process["side"] for process in processes if "double_precision" in process]
    assert sorted(repeated) == ["plain", "skipping", "written"]
    assert all(len(process["first_steps"]["losses"]) == 9 for process in processes)
