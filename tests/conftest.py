"""Recordings of real tools, as tests/data/README.md describes them."""

import gzip
import shutil
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory):
    """Unpack a recording, named without .gz, and return its path."""
    folder = tmp_path_factory.mktemp("recordings")

    def unpack(name: str) -> Path:
        path = folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with gzip.open(DATA / f"{name}.gz") as packed, path.open("wb") as plain:
                shutil.copyfileobj(packed, plain)
        return path

    return unpack
