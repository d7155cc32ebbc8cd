"""Programs in a file: what is read is what was written, as far as steps are kept, and answers alike."""

import random
from pathlib import Path

import numpy as np
import pytest

from profzoo.errors import DataError
from profzoo.what_if import changes, predicted_gains, simulator, storage, tables
from profzoo.what_if.program import Program


@pytest.fixture(scope="module")
def recorded(recording) -> Program:
    (program,) = tables.read_programs(recording("nsys/train.sqlite"))
    return program


def test_a_program_is_run_again_from_its_file(
    recorded: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "KEPT", 6)
    storage.write([recorded], tmp_path / "p.npz")
    (found,) = storage.read(tmp_path / "p.npz").values()
    assert found.steps == storage.KEPT < recorded.steps
    assert list(found.gpu["room"]) == list(recorded.gpu["room"][: len(found.gpu)])
    assert list(storage.read(tmp_path / "p.npz")) == [1082]
    whole, kept = (simulator.step_times(one, simulator.simulate(one)) for one in (recorded, found))
    # But for the last, whose end is another where nothing follows.
    assert np.allclose(kept[:-1], whole[: storage.KEPT - 2])
    assert set(found.kernels.values()) == set(recorded.kernels.values())
    for change in predicted_gains.PANEL.values():
        one, other = (predicted_gains.predict_gain(program, change(program)).gain for program in (recorded, found))
        assert other == pytest.approx(one, rel=0.1)
    assert predicted_gains.predict_gain(found, changes.capture_as_graph(found)).gain > 3


def test_what_is_no_file_of_programs_is_said(tmp_path: Path) -> None:
    path = tmp_path / "p.npz"
    for content in (b"", b"PK\x03\x04 cut off"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"p\.npz: no programs of steps"):
            storage.read(path)
    np.savez(path, other=np.zeros(2))
    with pytest.raises(DataError, match="no programs of steps"):
        storage.read(path)
    storage.write([], path)
    assert storage.read(path) == {}


def test_a_damaged_file_is_said_to_be_damaged(recorded: Program, tmp_path: Path) -> None:
    storage.write([recorded], tmp_path / "whole.npz")
    whole, path = (tmp_path / "whole.npz").read_bytes(), tmp_path / "p.npz"
    chance, refused = random.Random(0), 0
    for _ in range(300):
        content = bytearray(whole)
        # Most of what tells what is where stands at the end.
        at = chance.choice([chance.randrange(len(whole)), len(whole) - chance.randrange(1, 4000)])
        content[at] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(content[: chance.randrange(len(whole))] if chance.random() < 0.2 else content))
        try:
            storage.read(path)
        except DataError as error:
            assert "no programs of steps" in str(error) and "\n" not in str(error)
            refused += 1
    assert refused > 200
