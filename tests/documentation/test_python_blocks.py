"""Every documented block of Python runs: a model, a script on recorded results, or a workflow that uses this one."""

import ast
import contextlib
import io
import re
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from snakemake.sourcecache import GithubFile, GitlabFile

from tests import recorded_results, slow
from tests.documentation import declared, folder, pages
from tests.documentation.pages import Block
from tests.workflow import forked
from tests.workflow.project import Project

SHOWN = [block for block in pages.all_blocks() if block.language in ("python", "snakemake", "py")]
MODULE = re.compile(r"^(module|rule|use rule) .*$", re.MULTILINE)
HOSTED = re.compile(r'\bgit(?:hub|lab)\("[^"]+", [^)]*\)')
# What a script that reads tables says, and one that records its loop.
TABLES, RECORDS = "load(", "profzoo.record("
BATCH = 2


def kind(block: Block) -> str:
    if declared.of_extending(block) or declared.of_recipe(block):
        return "elsewhere"
    if MODULE.search(block.text):
        return "workflow"
    tree = ast.parse(block.text)
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if "build" in names:
        return "model"
    return "expressions" if all(isinstance(node, ast.Expr) for node in tree.body) else "script"


def of_kind(name: str) -> list[Block]:
    return [block for block in SHOWN if kind(block) == name]


def places(block: Block) -> str:
    return block.place


@pytest.mark.parametrize("block", of_kind("model"), ids=places)
def test_a_model_is_built_and_takes_its_samples(block: Block) -> None:
    module = ModuleType("mine")
    exec(compile(block.text, block.place, "exec"), module.__dict__)
    shape = SimpleNamespace(**getattr(module, "SHAPE", {}))
    samples = [module.sample(shape, torch.Generator().manual_seed(seed)) for seed in range(BATCH)]
    collated = torch.utils.data.default_collate(samples)
    given = collated[0] if isinstance(collated, list | tuple) else collated
    assert len(module.build(shape)(given)) == BATCH
    assert set(module.WORKLOADS["trimmed"]) <= {"train", "inference"}


@pytest.mark.slow
@pytest.mark.parametrize("block", of_kind("model"), ids=places)
def test_a_model_is_profiled(block: Block, tmp_path: Path) -> None:
    project = folder.make_folder(tmp_path / "project")
    project.write("models/mine.py", block.text)
    project.snakemake("results/mine/train.torch.csv", "results/mine/inference.time.csv")
    assert {"mine/train.torch.csv", "mine/inference.time.csv"} <= project.files()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recorded results of the whole zoo, and the trace of one training."""
    home = tmp_path_factory.mktemp("reader")
    recorded_results.write(home / "results")
    folder.unpack("a.sqlite", home / "results/mobilenetv2/train.nsys.sqlite")
    return home


@pytest.mark.parametrize(
    "block", [one for one in of_kind("script") if TABLES not in one.text and RECORDS not in one.text], ids=places
)
def test_a_script_runs_on_a_recorded_trace(block: Block, tmp_path: Path) -> None:
    folder.unpack("a.sqlite", tmp_path / "results/mobilenetv2/train.nsys.sqlite")
    run_in(tmp_path, block)


@pytest.mark.slow
@pytest.mark.parametrize("block", [one for one in of_kind("script") if TABLES in one.text], ids=places)
def test_a_script_runs_on_recorded_tables(block: Block, results: Path) -> None:
    run_in(results, block)


@pytest.mark.slow
@pytest.mark.parametrize("block", [one for one in of_kind("script") if RECORDS in one.text], ids=places)
def test_a_loop_records_itself(block: Block, tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 2)
    data = torch.utils.data.TensorDataset(torch.randn(160, 4), torch.randint(0, 2, (160,)))
    names = {
        "model": model, "loader": torch.utils.data.DataLoader(data, batch_size=4), "criterion": torch.nn.CrossEntropyLoss(),
        "optimizer": torch.optim.SGD(model.parameters()),
    }  # fmt: skip
    run_in(tmp_path, block, **names)
    assert (tmp_path / "profzoo-results/results/tables/plans.csv").exists()


def run_in(home: Path, block: Block, **names: object) -> None:
    """Run a script in this folder, with these names."""
    with contextlib.chdir(home), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(block.text, block.place, "exec"), {"__name__": "shown", **names})


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return folder.make_folder(tmp_path_factory.mktemp("reader") / "project")


@cache
def hosted(text: str) -> object:
    """The file that an expression for a repository stands for."""
    return eval(text, {"github": GithubFile, "gitlab": GitlabFile})


@pytest.mark.parametrize("block", slow.first(of_kind("workflow")), ids=places)
def test_a_workflow_that_uses_this_one_is_planned(block: Block, reader: Project, tmp_path: Path) -> None:
    """Repositories stand for the copy of the project here; tests/workflow/test_module.py takes one by git."""
    snakefile = str(reader.root / "workflow/Snakefile")
    for found in HOSTED.findall(block.text):
        assert hosted(found)
    text = HOSTED.sub(repr(snakefile), block.text).replace("path/to/profzoo/workflow/Snakefile", snakefile)
    rule = re.findall(r"^rule (\w+):", text, re.MULTILINE)
    text += "" if "use rule" in text else "\nuse rule * from profzoo\n"
    (tmp_path / "Snakefile").write_text(text)
    target = [*rule[:1]] or ["results/lstm/train.time.csv"]
    run = forked.snakemake([*target, "--dry-run", "--cores", "1"], tmp_path, reader.environment())
    assert run.returncode == 0, f"{block.place}\n{run.stdout}{run.stderr}"


def test_expressions_have_values() -> None:
    for block in of_kind("expressions"):
        for node in ast.parse(block.text).body:
            assert hosted(ast.unparse(node)), block.place
