"""harness/peaks: rates of known work, with their units, and how they were measured."""

import csv
import json
import time
from pathlib import Path

import pytest
import torch

from profzoo.calibration import peaks

CPU = torch.device("cpu")


def test_seconds_are_those_of_one_call() -> None:
    took = peaks.time_call(lambda: time.sleep(0.02), CPU)
    assert 0.02 <= took < 0.03


def test_rates_are_work_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "time_call", lambda work, device: (work(), 0.5)[1])
    found = {name: (rate, unit) for name, rate, unit, _ in peaks.measure_peaks(CPU, peaks.Sizes(1 << 20, 1 << 12, 8))}
    assert found == {
        "dram": (2 * (1 << 20) / 0.5, "byte/s"),
        "l2": (peaks.ROWS * (1 << 12) / 0.5, "byte/s"),
        "fp64": (2 * 4**3 / 0.5, "flop/s"),
        "fp32": (2 * 8**3 / 0.5, "flop/s"),
        "bf16": (2 * 8**3 / 0.5, "flop/s"),
        "int8": (2 * 8**3 / 0.5, "flop/s"),
    }


def test_command_line(tmp_path: Path) -> None:
    out, facts = tmp_path / "p.csv", tmp_path / "p.json"
    assert peaks.main(["--out", str(out), "--facts", str(facts), "--device", "cpu"]) == 0
    rows = {row["peak"]: float(row["rate"]) for row in csv.DictReader(out.open())}
    assert set(rows) == {"dram", "l2", "fp64", "fp32", "bf16", "int8"} and all(rate > 1e8 for rate in rows.values())
    assert json.loads(facts.read_text())["device_type"] == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert peaks.main(["--out", str(tmp_path / "p.csv"), "--device", "cuda"]) == 2
    assert "sees no GPU: " in capsys.readouterr().err and not (tmp_path / "p.csv").exists()
