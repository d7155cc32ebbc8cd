"""Copies of the project in which tests run snakemake, because they must not do so in the checkout itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import shared
from tests.workflow.project import STANDINS, TINY, Built, Project, copy


@pytest.fixture(scope="session")
def torch_build(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Return a project with all results of two models under torch, made without a given number of cores."""
    project = copy(tmp_path_factory.mktemp("torch") / "project")
    return Built(project, "all", kept=shared(tmp_path_factory) / "torch_build")


@pytest.fixture(scope="session")
def recorded(torch_build: Built) -> Path:
    """Return the results of the cells of `torch_build`, for tests of code around cells."""
    return torch_build.kept / "results"


@pytest.fixture
def built(torch_build: Built) -> Project:
    return torch_build.restored()


@pytest.fixture(scope="session")
def ncu_build(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Return a project with one cell under two section sets of the stand-in for ncu."""
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
    """Return a copy in which nothing is made yet."""
    return copy(tmp_path / "project")


@pytest.fixture
def counted(fresh: Project, ncu_build: Built) -> Project:
    """Return a copy in which nothing is made yet; ncu is the stand-in, and cells only copy recorded results."""
    fresh.path, fresh.recording = (STANDINS,), ncu_build.kept / "results"
    return fresh


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Return a copy for tests that must not make anything; this is checked afterwards."""
    project = copy(tmp_path_factory.mktemp("untouched") / "project")
    yield project
    assert not project.files()
