"""The workflow on a script as it is: its tables, what measures it again, and what is refused before it runs."""

import json
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pandas as pd
import pytest

from profzoo.collect import environment
from tests import slow
from tests.workflow.project import WAITING, Project, copy

SCRIPT = """\
import ctypes
import json
import os
import subprocess

names = ("MODE", "UNSET", "SOME_TOKEN", "OMPI_MCA_plm", "RANK", "OMP_NUM_THREADS")
seen = {name: os.environ.get(name) for name in names}
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
libraries = {name: (getenv(name.encode()) or b"").decode() for name in names}
child = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
import sizes
import torch
from torch import nn

told = {"seen": seen, "libraries": libraries, "child": "MODE=fast" in child, "threads": torch.get_num_threads()}
with open("told.jsonl", "a") as file:
    print(json.dumps(told), file=file)
print("as some print:", seen["SOME_TOKEN"])
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(6, sizes.WIDTH), nn.ReLU(), nn.Linear(sizes.WIDTH, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(200):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(torch.ones(3, 6)), torch.ones(3, 2)).backward()
    optimizer.step()
"""
CONFIGURATION = """\
tool: torch
models: [mine]
phases: [train]
device: cpu
torch: {window: 2}
settings:
  mine: {command: python own/train.py --fast, inputs: [own/data], window: 3}
"""
# RANK is of another launcher.
VARIABLES = {
    "MODE": "fast", "SOME_TOKEN": "opensesame-opensesame", "OMPI_MCA_plm": "isolated", "RANK": "3", "OMP_NUM_THREADS": "1",
    "UNREAD": "x", "TERM": "dumb",
}  # fmt: skip
TABLES = ("results/mine/train.layers.csv", "results/tables/cells.csv")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A script that was measured with torch.profiler, and timed."""
    project = copy(tmp_path_factory.mktemp("scripts") / "project", CONFIGURATION)
    (project.root / "own" / "data").mkdir(parents=True)
    (project.root / "own" / "train.py").write_text(SCRIPT)
    (project.root / "own" / "sizes.py").write_text("WIDTH = 7\n")
    (project.root / "own" / "unused.py").write_text("")
    (project.root / "own" / "data" / "words.txt").write_text("a b c\n")
    # No cell is forked: the process that forks would import torch for nothing.
    project.variables, project.forks_cells = VARIABLES, False
    said = project.snakemake(*TABLES).stderr
    (project.root / "said").write_text(said)
    return project


def test_a_script_has_the_tables_of_a_model(measured: Project) -> None:
    layers = pd.read_csv(measured.root / TABLES[0])
    assert {"(root)", "0", "1", "2", "(optimizer)", "(loss)"} <= set(layers["module"])
    assert set(layers.loc[layers["module"] == "0", "direction"]) == {"forward", "backward"}
    row = pd.read_csv(measured.root / TABLES[1]).iloc[0]
    assert (row["model"], row["batch"], row["steps"], row["parameters"]) == ("mine", 3, 3, 6 * 7 + 7 + 7 * 2 + 2)
    assert row["arguments"].startswith("mine train 'command=python own/train.py --fast'")
    facts = json.loads((measured.root / "results/mine/train.time.csv.json").read_text())
    assert [path for path in facts["read"] if path.startswith("own")] == ["own/sizes.py"] and "own/train.py" in facts[
        "sources"
    ]
    assert facts["script"]["step"] == "a step of SGD" and facts["cell"]["command"] == "python own/train.py --fast"


def test_a_script_gets_the_environment_of_its_user_whole(measured: Project) -> None:
    """But for what would disturb the measurement, which is named; a secret that it prints is in no log."""
    for line in measured.read("told.jsonl").splitlines():
        told = json.loads(line)
        passed = {**{name: VARIABLES[name] for name in told["seen"] if name in VARIABLES}, "RANK": None, "UNSET": None}
        assert told["seen"] == passed and told["threads"] == 1 and told["child"]
        assert told["libraries"] == {name: value or "" for name, value in passed.items()}
    said = measured.read("said")
    assert "these variables do not reach your programs: RANK (it describes a process of another launcher" in said
    log = measured.read("results/logs/mine/train.time.log")
    assert "as some print: (SOME_TOKEN)" in log and "opensesame" not in log


def test_what_changes_a_measurement_is_recorded_by_name_and_digest(measured: Project) -> None:
    facts = json.loads(measured.read("results/mine/train.time.csv.json"))
    own = {"OMPI_MCA_plm": environment.variable_digest("OMPI_MCA_plm", "isolated"), "OMP_NUM_THREADS": "1"}
    assert facts["variables"] == {**own, **WAITING}
    read = facts["read_variables"]
    assert (read["MODE"], read["UNSET"]) == (environment.variable_digest("MODE", "fast"), None)
    assert not {"SOME_TOKEN", "TERM", "UNREAD", "OMPI_MCA_plm"} & set(read)
    assert facts["withheld_variables"] == ["RANK"]
    assert facts["packages"]["numpy"] == metadata.version("numpy") and "pytest" not in facts["packages"]


MPI_SCRIPT = """\
import torch
from mpi4py import MPI

print("processes:", MPI.COMM_WORLD.Get_size())
model = torch.nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    model(torch.ones(3, 6)).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_script_that_starts_mpi_runs_in_a_job_below_mpirun(tmp_path: Path) -> None:
    """Open MPI ends a process that has a part of what mpirun gave to another one."""
    pytest.importorskip("mpi4py", exc_type=ImportError)
    if not (mpirun := shutil.which("mpirun")):
        pytest.skip("no mpirun on PATH")
    project = copy(tmp_path / "project", CONFIGURATION)
    (project.root / "own" / "data").mkdir(parents=True)
    (script := project.root / "own" / "train.py").write_text(MPI_SCRIPT)

    def launch(*words: str) -> subprocess.CompletedProcess[str]:
        started = [mpirun, "--allow-run-as-root", "-n", "1", "env", *words]
        return subprocess.run(started, capture_output=True, text=True, check=False)

    assert "processes: 1" in launch(sys.executable, str(script)).stdout
    part = launch("-u", "PMIX_RANK", sys.executable, str(script))
    assert part.returncode and "before MPI_INIT completed" in part.stderr and "processes" not in part.stdout
    given = dict(line.split("=", 1) for line in launch("-0").stdout.split("\0") if "=" in line)
    kinds = ("OMPI_", "PMIX_", "PRTE_", "OPAL_")
    project.variables = {name: value for name, value in given.items() if name.startswith(kinds)}
    said = project.snakemake("results/mine/train.time.csv").stderr
    assert "these variables do not reach your programs: OMPI_" in said
    assert "processes: 1" in project.read("results/logs/mine/train.time.log")


@pytest.mark.parametrize(
    ("changed", "again"),
    slow.first(
        [
            ({"MODE": "slow"}, True),
            ({"UNREAD": "y", "SOME_TOKEN": "another-another", "TERM": "xterm", "RANK": "2"}, False),
            ({"MODE": None}, True),
            ({"UNSET": "x"}, True),
            ({"OMPI_MCA_plm": "rsh"}, True),
            ({"OMP_NUM_THREADS": "2"}, True),
        ],
        2,
    ),
)
def test_a_variable_that_it_reads_measures_it_again(
    measured: Project, changed: dict[str, str | None], again: bool
) -> None:
    measured.variables = {key: one for key, one in (VARIABLES | changed).items() if one is not None}
    try:
        jobs = measured.dry(*TABLES)
    finally:
        measured.variables = VARIABLES
    assert ({"time_training", "profile_torch"} <= {job.rule for job in jobs}) == again == bool(jobs)


@pytest.mark.parametrize("name", slow.first(["own/train.py", "own/sizes.py", "own/data/words.txt"]))
def test_what_it_imports_and_its_inputs_measure_it_again(measured: Project, name: str) -> None:
    """And nothing else does; what is put back leaves nothing to be done."""
    path = measured.root / name
    text = path.read_text()
    try:
        path.write_text(f"{text}\n")
        assert {job.rule for job in measured.dry(*TABLES)} >= {"time_training", "profile_torch"}
    finally:
        path.write_text(text)
    (measured.root / "own" / "unused.py").write_text("again = 1\n")
    assert measured.dry(*TABLES) == []


@pytest.mark.parametrize(
    ("given", "said"),
    slow.first([
        ("settings={mine: {command: python own/train.py, batch: 3}}", "settings.mine.batch: cannot be applied to a script"),
        ("models=mine@graph", "variants.graph.graph: cannot be applied to a script from outside"),
        ("settings={mine: {command: python own/train.py, inputs: [own/dat]}}", "names 'own/dat', and there is no such"),
        ("settings={mine: {command: python own/train.py, step: optimiser}}", "settings.mine.step = 'optimiser'"),
        ("settings={lstm: {command: python own/train.py}}", "settings.lstm.command: the zoo has a model lstm"),
        ("settings={generation: {command: python own/train.py}}", "settings.generation.command: the zoo has a model generation, or a group"),
        ("settings={mine: {comand: python own/train.py}}", "unknown key 'settings.mine.comand' (value 'python own/train.py'): did you mean 'command'?"),
    ]),
)  # fmt: skip
def test_what_cannot_be_is_said_before_anything_runs(measured: Project, given: str, said: str) -> None:
    key, _, value = given.partition("=")
    folder = Path(measured.root)
    text = CONFIGURATION if key == "models" else CONFIGURATION[: CONFIGURATION.index("settings:")]
    (folder / "tiny.yaml").write_text(f"{text}\n")
    try:
        done = measured.snakemake("results/tables/cells.csv", "--config", f"{key}={value}", ok=False)
    finally:
        (folder / "tiny.yaml").write_text(CONFIGURATION)
    assert done.returncode and said in done.stdout + done.stderr, done.stdout + done.stderr
