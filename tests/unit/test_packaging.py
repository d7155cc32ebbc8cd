"""What is declared: every import among the dependencies, one version, a test folder; and no host of a registry."""

import ast
import gzip
import platform
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from profzoo import __main__, versions
from profzoo.config import configuration
from tests import parsed

PROJECT = Path(__file__).parents[2]
DECLARED = tomllib.loads((PROJECT / "pyproject.toml").read_text())
OWN = {"models", "profiles", "profzoo", "tests", "workflow"}
# Under what name a package is imported, where it is another.
NAMES = {
    "ncu_report": "ncu-report",
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
# What only some formats of tables, reports of ncu without an ncu, agents, and texts need; no lock holds it.
EXTRAS = DECLARED["project"]["optional-dependencies"]
FORMATS = needed([*EXTRAS["parquet"], *EXTRAS["ncu"], *EXTRAS["mcp"], *EXTRAS["text"]])
DEVELOP = needed(DECLARED["dependency-groups"]["dev"])
# Libraries whose networks settings are tried on, and frameworks of scripts; whoever wants these installs them. No test
# imports them.
OF_SCRIPTS = {"transformers", "torch_geometric", "accelerate", "pytorch_lightning", "torchmetrics", "tensorflow"}
THEIR_FOLDERS = ("tests/gpu/programs/libraries/", "tests/scripts/frameworks/", "tests/benchmarks/original_graphs.py")
# What comes with timm, which is declared.
OF_TIMM = {"safetensors"}
# Programs that tests run as a user's, whose modules are their own.
OF_USERS = "tests/workflow/programs_that_read"


def imported(known: set[str], *folders: str) -> dict[str, str]:
    """Packages that the Python of these folders, and their rules, import, each with a file; known: those declared."""
    found: dict[str, str] = {}
    for path in sorted(path for folder in folders for path in (PROJECT / folder).rglob("*")):
        if path.suffix not in (".py", ".smk") or path.is_relative_to(PROJECT / OF_USERS):
            continue
        lines = re.findall(r"^\s*(?:from +([\w.]+) +import\b|import +([\w., ]+))", path.read_text(), re.MULTILINE)
        names = packages(name for source, listed in lines for name in [source, *listed.split(",")])
        # Only texts in a file of Python seem to import something else.
        if path.suffix == ".py" and not names <= known:
            nodes = parsed.nodes(path)
            names = packages(alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names)
            names |= packages(str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level)
        found |= dict.fromkeys(names, str(path.relative_to(PROJECT)))
    return found


def packages(modules: Iterable[str]) -> set[str]:
    names = {name.split()[0].partition(".")[0] for name in modules if name.strip()} - sys.stdlib_module_names - OWN
    return {NAMES.get(name, name) for name in names - {""}}


def test_every_import_is_declared() -> None:
    found = imported(RUN | FORMATS, "profzoo", "models", "workflow", "profiles")
    assert {"numpy", "torch", "snakemake", "markupsafe"} <= set(found) <= RUN | FORMATS, found


def test_every_import_of_tests_is_declared() -> None:
    found = imported(RUN | BATCH | DEVELOP | OF_TIMM, "tests")
    assert {"pytest", "pandas"} <= set(found)
    # Candidates and chains that are judged import the file beside them.
    known = RUN | BATCH | DEVELOP | OF_TIMM | {"program", "plan"}
    undeclared = {name: path for name, path in found.items() if name not in known}
    # Triton comes with torch where there are GPUs.
    of_triton = {"tests/gpu/programs/triton_lines.py", "tests/planted/sealed/separation_own_kernel.py"}
    assert undeclared.pop("triton") in of_triton
    assert set(undeclared) == OF_SCRIPTS
    assert all(path.startswith(THEIR_FOLDERS) for path in undeclared.values())


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-cuda12.lock"])
def test_each_lock_holds_every_dependency(lock: str) -> None:
    locked = set(re.findall(r"^([\w-]+)==", (PROJECT / lock).read_text(), re.MULTILINE))
    assert locked >= RUN | BATCH | DEVELOP


def test_one_version_is_told_everywhere() -> None:
    version = DECLARED["project"]["version"]
    assert yaml.safe_load((PROJECT / "CITATION.cff").read_text())["version"] == version == versions.RELEASE
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


def test_the_command_tells_the_release_and_what_decides_what_it_measures(capsys: pytest.CaptureFixture) -> None:
    for option in ("--version", "-V"):
        assert __main__.main([option]) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"profzoo {DECLARED['project']['version']} (Python {platform.python_version()}, ")
        assert f"snakemake {metadata.version('snakemake')}" in said and f"torch {metadata.version('torch')}" in said
    assert "profzoo --version" in __main__.describe_commands()


# Hosts that serve packages or images, in two parts, so that this file names none.
REGISTRIES = [f"{name}.{end}" for name, end in (
    ("pypi", "org"), ("pythonhosted", "org"), ("anaconda", "org"), ("anaconda", "com"), ("docker", "io"), ("ghcr", "io"),
    ("docker", "com"), ("quay", "io"), ("nvcr", "io"), ("npmjs", "org"), ("npmjs", "com"), ("crates", "io"),
    ("rubygems", "org"), ("download.pytorch", "org"), ("pypi.nvidia", "com"), ("pypi.ngc.nvidia", "com"),
    ("developer.download.nvidia", "com"), ("deb.debian", "org"), ("snapshot.debian", "org"), ("archive.ubuntu", "com"),
    ("mirrors.kernel", "org"), ("conda", "io"), ("jsdelivr", "net"), ("unpkg", "com"), ("huggingface", "co"),
)]  # fmt: skip
ADDRESS = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, REGISTRIES))})(?![\w-])", re.IGNORECASE)


def find_addresses(files: Iterable[Path]) -> list[str]:
    """Each line with the host of a registry, as `file:line: host`; packed files are unpacked."""
    found = []
    for path in files:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lower = content.lower()
        if not any(host.encode() in lower for host in REGISTRIES):
            continue
        for number, line in enumerate(content.decode("utf-8", errors="replace").splitlines(), 1):
            found += [f"{path}:{number}: {host}" for host in ADDRESS.findall(line)]
    return found


def list_committed() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\0")[:-1] if listed.returncode == 0 else []
    return [PROJECT / name for name in names if (PROJECT / name).is_file()]


def test_no_file_names_the_host_of_a_registry() -> None:
    """Packages come from wherever the reader's pip, uv or apt is configured to look."""
    files = list_committed()
    if not files:
        pytest.skip("not a git checkout")
    assert len(files) > 1000 and find_addresses(files) == []


@pytest.mark.parametrize("text", ["url: https://{}/project/profzoo/", "image: {}/nvidia/cuda", "FILES.{}"])
def test_a_host_of_a_registry_is_found(text: str, tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.yml", tmp_path / "a.csv.gz"
    line = text.format(REGISTRIES[0])
    plain.write_text(f"name: a\n{line}\n")
    packed.write_bytes(gzip.compress(line.encode()))
    assert find_addresses([plain, packed]) == [f"{plain}:2: {REGISTRIES[0]}", f"{packed}:1: {REGISTRIES[0]}"]
