"""What settings of torch.profiler export besides its last cycle, through the whole workflow."""

import csv
import io

import pytest

from tests import slow
from tests.workflow.project import Project, rules

CELL = "results/lstm/train"
WORDS = ["--config", "models=lstm", "phases=train", "tool=torch"]
PROFILING = {"profile_torch", "profile_torch_timed"}


def asked(settings: str) -> list[str]:
    return [*WORDS, f"torch={{window: 1, {settings}}}"]


CHOSEN = (
    ("snapshot: true", "profile_torch", True),
    ("baseline: 3, repeat: 2", "profile_torch_timed", True),
    ("repeat: 2", "profile_torch", True),
    ("repeat: 1", "profile_torch", False),
)


@pytest.mark.parametrize(("settings", "rule", "more"), slow.first(CHOSEN))
def test_settings_choose_what_a_job_leaves(fresh: Project, settings: str, rule: str, more: bool) -> None:
    printed = fresh.snakemake("--dry-run", f"{CELL}.torch.csv", *asked(settings)).stdout
    (block,) = [one for one in printed.split("\nrule ") if one.startswith(("profile_torch:", "profile_torch_timed:"))]
    assert block.startswith(f"{rule}:") and (f"{CELL}.torch-more" in block) == more


@pytest.mark.slow
def test_all_makes_what_settings_ask_for(fresh: Project) -> None:
    words = asked("baseline: 2, repeat: 2, memory: true, tensorboard: true")
    fresh.snakemake("all", *words)
    ends = {"torch-memory.csv", "torch-memory.svg", "torch-memory.png", "torch-memory.pdf", "torch.cycles.csv", "torch-time.csv",
            "torch.cycle-differences.csv", "torch.dtypes.csv"}  # fmt: skip
    assert {f"lstm/train.{end}" for end in ends} <= fresh.files()
    rows = list(csv.DictReader(io.StringIO(fresh.read(f"{CELL}.torch.cycles.csv"))))
    steps = {row["cycle"]: row["count"] for row in rows if (row["kind"], row["name"]) == ("range", "step")}
    assert steps == {"0": "1", "1": "1"}
    assert fresh.dry("all", *words) == []
    # Another figure or layout asks for no trace.
    assert not rules(fresh.dry("all", *asked("baseline: 2, repeat: 2, memory: true"))) & PROFILING


@pytest.mark.parametrize(
    ("name", "says"),
    slow.first(
        {
            "torch-memory.png": "this file needs torch.memory: set it to true",
            "torch.cycles.csv": "this file needs torch.repeat: set it to 2 or more",
        }.items()
    ),
)
def test_what_will_not_be_recorded_is_told_in_one_line_before_the_run(fresh: Project, name: str, says: str) -> None:
    told = fresh.snakemake(f"{CELL}.{name}", *asked("repeat: 1, memory: false"), ok=False).stderr
    assert f"lstm train: {says}" in told and "Traceback" not in told
    assert "lstm/train.trace.json.gz" not in fresh.files()
