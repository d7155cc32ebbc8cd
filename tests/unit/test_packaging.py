"""What is declared: every import among the dependencies, one version, a test folder."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from profzoo.config import configuration

PROJECT = Path(__file__).parents[2]
DECLARED = tomllib.loads((PROJECT / "pyproject.toml").read_text())
OWN = {"models", "profiles", "profzoo", "tests", "workflow"}
# Under what name a package is imported, where it is another.
NAMES = {
    "yaml": "pyyaml",
    "pynvml": "nvidia-ml-py",
    "PIL": "pillow",
    "xdist": "pytest-xdist",
    "snakemake_executor_plugin_slurm": "snakemake-executor-plugin-slurm",
}


def needed(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w-]+", words)[0].lower() for words in requirements}


RUN = needed(DECLARED["project"]["dependencies"])
BATCH = needed(DECLARED["project"]["optional-dependencies"]["cluster"])
# What only some formats of tables need; no lock holds it.
FORMATS = needed(DECLARED["project"]["optional-dependencies"]["parquet"])
DEVELOP = needed(DECLARED["dependency-groups"]["dev"])
# Libraries whose networks settings are tried on; whoever runs these trials installs them. No test imports them.
OF_TRIALS = {"transformers", "torch_geometric"}


def imported(*folders: str) -> dict[str, str]:
    """Packages that the Python of these folders, and their rules, import, each with a file that does."""
    found: dict[str, str] = {}
    for path in sorted(path for folder in folders for path in (PROJECT / folder).rglob("*")):
        if path.suffix == ".py":
            nodes = list(ast.walk(ast.parse(path.read_text())))
            names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
            names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
        elif path.suffix == ".smk":
            names = re.findall(r"^(?:from|import) ([\w.]+)", path.read_text(), re.MULTILINE)
        else:
            continue
        found |= {name.partition(".")[0]: str(path.relative_to(PROJECT)) for name in names}
    return {NAMES.get(name, name): path for name, path in found.items() if name not in {*sys.stdlib_module_names, *OWN}}


def test_every_import_is_declared() -> None:
    found = imported("profzoo", "models", "workflow", "profiles")
    assert {"numpy", "torch", "snakemake", "markupsafe"} <= set(found)
    assert {name: path for name, path in found.items() if name not in RUN | FORMATS} == {}


def test_every_import_of_tests_is_declared() -> None:
    found = imported("tests")
    assert {"pytest", "pandas"} <= set(found)
    undeclared = {name: path for name, path in found.items() if name not in RUN | BATCH | DEVELOP}
    # Triton comes with torch where there are GPUs.
    assert undeclared.pop("triton") == "tests/gpu/programs/triton_lines.py"
    assert set(undeclared) == OF_TRIALS
    assert all(path.startswith("tests/gpu/programs/libraries/") for path in undeclared.values())


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-cuda12.lock"])
def test_each_lock_holds_every_dependency(lock: str) -> None:
    locked = set(re.findall(r"^([\w-]+)==", (PROJECT / lock).read_text(), re.MULTILINE))
    assert locked >= RUN | BATCH | DEVELOP


def test_one_version_is_told_everywhere() -> None:
    version = DECLARED["project"]["version"]
    assert yaml.safe_load((PROJECT / "CITATION.cff").read_text())["version"] == version
    assert f"\n## [{version}] - " in (PROJECT / "CHANGELOG.md").read_text()


def test_the_test_folder_is_configured_for_one_model_on_the_cpu() -> None:
    config = configuration.normalise_config(yaml.safe_load((PROJECT / ".test/config/config.yaml").read_text()))
    assert (
        configuration.select_cells(config) == [("lstm", "train"), ("lstm", "inference")] and config["device"] == "cpu"
    )


def test_the_catalog_has_what_it_asks_for() -> None:
    usage = yaml.safe_load((PROJECT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert usage["software-stack-deployment"]["report"] is True
    assert all((PROJECT / path).is_file() for path in ("workflow/Snakefile", "config/README.md", "LICENSE"))
