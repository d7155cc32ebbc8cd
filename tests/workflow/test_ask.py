"""`profzoo ask` on results of a workflow: what it answers there, and the same in the file that export=json makes."""

import json
import subprocess
import sys
from typing import Any

import pytest

from profzoo.__main__ import main
from profzoo.referee import envelope
from tests.workflow.project import CHECKOUT, Project


def ask(project: Project, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the answer of the command in the project's folder."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "profzoo", "ask", *words], cwd=project.root, check=False, text=True,
        env=project.environment() | {"PYTHONPATH": str(CHECKOUT)}, capture_output=True,
    )  # fmt: skip
    assert not done.stderr, done.stderr
    found = json.loads(done.stdout)
    envelope.check(found)
    return done.returncode, found


def ask_here(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """The same of the command's function, which imports nothing anew."""
    code, (printed, said) = main(["ask", *words]), capsys.readouterr()
    assert not said
    found = json.loads(printed)
    envelope.check(found)
    return code, found


def test_a_workflow_is_asked_from_its_list_to_the_command_of_a_claim(
    built: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, listed = ask(built, "list")
    assert code == 0 and [claim["id"] for claim in listed["claims"]] == [
        f"cell:{model}/{phase}" for model in ("lstm", "unet") for phase in ("train", "inference")]  # fmt: skip
    assert all(claim["value"] > 0 and claim["unit"] == "ns" for claim in listed["claims"])
    commands = {one["file"]: one["command"] for one in listed["claims"][0]["evidence"]}
    assert commands["tables/cells.csv"] == "snakemake results/tables/cells.csv"
    assert commands["lstm/train.time.csv"].startswith("python -m models.run lstm train ")
    monkeypatch.chdir(built.root)
    _, diagnosed = ask_here(capsys, "diagnose", "lstm", "train")
    told = [*diagnosed["claims"], *diagnosed["abstained"]]
    assert told and {"lstm train under ncu", "lstm train under nsys"} <= {one["subject"] for one in told}
    code, shown = ask_here(capsys, "evidence", "cell:lstm/train")
    (claim,) = shown["claims"]
    assert code == 0 and claim["evidence"][0]["fields"]["model"] == "lstm"
    assert float(claim["evidence"][0]["fields"]["step_ns"]) == claim["value"]
    code, none = ask_here(capsys, "compare")
    assert code == 3 and "`snakemake compare" in none["abstained"][0]["why"]


@pytest.mark.slow
def test_the_claims_beside_the_tables_in_json_are_those_that_are_told(built: Project) -> None:
    built.snakemake("results/tables.json", "--config", "collect=false")
    _, told = ask(built, "claims")
    assert json.loads(built.read("results/tables.json/claims.json")) == told and told["claims"]
    # Nothing is made again for it.
    assert built.dry("results/tables.json", "--config", "collect=false") == []
