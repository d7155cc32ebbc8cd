"""Copies of the project for tests to run snakemake in: never the checkout itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workflow.project import STANDINS, TINY, Built, Project, copy


@pytest.fixture(scope="session")
def torch_build(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Everything for two models under torch, made without naming a core count."""
    return Built(copy(tmp_path_factory.mktemp("torch") / "project"), "all")


@pytest.fixture
def built(torch_build: Built) -> Project:
    return torch_build.restored()


@pytest.fixture(scope="session")
def ncu_build(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """One cell under two section sets of the ncu stand-in."""
    project = copy(tmp_path_factory.mktemp("ncu") / "project", TINY.replace("device: cpu", "device: auto"))
    project.path = (STANDINS,)
    cell = "results/lstm/train"
    targets = [f"{cell}.{end}" for end in ("ncu.csv", "ncu-details.csv", "ncu.roofline.csv", "time.csv")]
    return Built(project, *targets)


@pytest.fixture
def ncu_built(ncu_build: Built) -> Project:
    return ncu_build.restored()


@pytest.fixture
def fresh(tmp_path: Path) -> Project:
    """A copy in which nothing was made yet."""
    return copy(tmp_path / "project")


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A copy for tests that must not make anything, which is checked."""
    project = copy(tmp_path_factory.mktemp("untouched") / "project")
    yield project
    assert not project.files()
