"""Copies of the project for tests to run snakemake in: never the checkout itself."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workflow.project import STANDINS, TINY, Built, Project, copy


def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all of pytest-xdist's workers have in common."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def torch_build(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Everything for two models under torch, made without naming a core count."""
    project = copy(tmp_path_factory.mktemp("torch") / "project")
    return Built(project, "all", kept=shared(tmp_path_factory) / "torch_build")


@pytest.fixture(scope="session")
def recorded(torch_build: Built) -> Path:
    """What its cells left, for tests of what is around a cell."""
    return torch_build.kept / "results"


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
    return Built(project, *targets, kept=shared(tmp_path_factory) / "ncu_build")


@pytest.fixture
def ncu_built(ncu_build: Built) -> Project:
    return ncu_build.restored()


@pytest.fixture
def fresh(tmp_path: Path) -> Project:
    """A copy in which nothing was made yet."""
    return copy(tmp_path / "project")


@pytest.fixture
def counted(fresh: Project, ncu_build: Built) -> Project:
    """A copy in which nothing was made yet, for what the ncu stand-in makes of a cell that only pretends to run."""
    fresh.path, fresh.recording = (STANDINS,), ncu_build.kept / "results"
    return fresh


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A copy for tests that must not make anything, which is checked."""
    project = copy(tmp_path_factory.mktemp("untouched") / "project")
    yield project
    assert not project.files()
