"""Reading what runs without a profiler left: a table of steps by its sidecar, of one process or several."""

from pathlib import Path

import pytest

from profzoo.errors import DataError
from profzoo.io.scripts import write_json
from profzoo.tables import baseline_steps

FACTS = {
    "device": "NVIDIA H100", "started": "2026-11-20T10:00:00+00:00", "parameters": 7, "batch": 2, "peak_rss_bytes": 9,
    "items": 4, "cell": {"workload": "full", "precision": "fp32"}, "steps": 2, "step_ns": 150.5,
    "peak_memory_bytes": None, "loss": None,
}  # fmt: skip
ONE = "step,wall_ns,gpu_ns,items\n0,200,190,2\n1,100,90,2\n"
SEVERAL = "side,process,step,wall_ns,gpu_ns,items\n,0,0,200,190,2\n,0,1,100,90,2\n,1,0,210,195,2\n,1,1,110,95,2\n"


def written(folder: Path, name: str, table: str, **facts: object) -> tuple[str, str]:
    """A table and its sidecar, of the cell of this name."""
    (folder / name).mkdir()
    csv, sidecar = folder / name / "train.time.csv", folder / name / "train.time.json"
    csv.write_text(table)
    write_json({**FACTS, **facts}, sidecar)
    return str(csv), str(sidecar)


def test_each_table_has_its_cell_and_its_sidecar(tmp_path: Path) -> None:
    one, one_sidecar = written(tmp_path, "lstm", ONE)
    two, two_sidecar = written(tmp_path, "unet@bf16", SEVERAL, steps=4, items=8, processes=[{}, {}])
    found = baseline_steps.read([one, two], [one_sidecar, two_sidecar])
    assert [cell for cell, _, _ in found] == [{"model": "lstm", "phase": "train"},
                                              {"model": "unet@bf16", "phase": "train"}]  # fmt: skip
    assert [steps["gpu_ns"].tolist() for _, steps, _ in found] == [[190, 90], [190, 90, 195, 95]]
    assert found[1][1]["process"].tolist() == [0, 0, 1, 1] and "process" not in found[0][1]
    assert [facts["items"] for _, _, facts in found] == [4, 8]


def test_a_table_that_lacks_steps_is_refused(tmp_path: Path) -> None:
    """The sidecar tells how many there were: rows that are missing at the end leave no gap among the others."""
    with pytest.raises(DataError, match=r"train\.time\.csv has 2 steps, but its sidecar says 3: delete it"):
        baseline_steps.read(*[[path] for path in written(tmp_path, "lstm", ONE, steps=3)])


def test_one_process_is_not_read_as_several_nor_several_as_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no column side"):
        baseline_steps.read(*[[path] for path in written(tmp_path, "one", ONE, processes=[{}])])
    with pytest.raises(DataError, match=r"has an unknown column .side.:"):
        baseline_steps.read(*[[path] for path in written(tmp_path, "several", SEVERAL, steps=4)])


def test_a_table_without_a_sidecar_is_no_cell(tmp_path: Path) -> None:
    csv, sidecar = written(tmp_path, "lstm", ONE)
    with pytest.raises(ValueError, match="shorter"):
        baseline_steps.read([csv, csv], [sidecar])
