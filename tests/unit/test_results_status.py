"""What the status says of measurements, from sidecars written here; whether they are up to date is asked of a function."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from profzoo.records.output_status import OutputState, OutputVerdict
from profzoo.terminal import results_status

BEGAN = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)


def measured(results: Path, name: str, **facts: object) -> Path:
    """A measured file with its sidecar; results/{name}."""
    path = results / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x" * 1000)
    known = {"started": BEGAN.isoformat(), "torch": "2.11.0", "commit": "0123456789abcdef", "commit_changed": False}
    path.with_name(f"{path.name}.json").write_text(json.dumps(known | facts))
    return path


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Four measurements of three cells, and an export, which is none."""
    folder = tmp_path / "results"
    measured(folder, "lstm/train.time.csv", tool="time", commit_changed=True)
    measured(folder, "lstm/train.roofline.ncu-rep", tool="ncu", set="roofline", tool_version="Version 2025.3.1.0 (b)",
             started=(BEGAN + timedelta(hours=1)).isoformat())  # fmt: skip
    measured(
        folder, "lstm@bf16/train.nsys-rep", tool="nsys", tool_version="NVIDIA Nsight Systems version 2023.4.4.54-2"
    )
    measured(folder, "lstm@bf16/train.nsys.csv", tool="nsys")
    measured(folder, "unet/inference.base-bf16.rounds.csv", tool="time", sides={}, commit="")
    return folder


def rows(results: Path, *models: str) -> list[list[str]]:
    """Fields of each measurement, but for the hour at which it was made, which depends on the place."""
    found = results_status.list_measurements(results, models, lambda sidecar: f"out of date: {sidecar.name}")
    lines = results_status.format_status(found, results, BEGAN + timedelta(days=2, hours=1))
    parts = [re.split(r" {2,}", line) for line in lines[1:-2]]
    return [[*part[:2], *part[3:]] for part in parts]


def test_each_measurement_has_a_line(results: Path) -> None:
    assert rows(results) == [
        ["lstm train", "time", "2 days", "2.11.0", "-", "0123456+", "out of date: train.time.csv.json"],
        ["lstm train", "ncu roofline", "2 days", "2.11.0", "2025.3.1.0", "0123456", "out of date: train.roofline.ncu-rep.json"],
        ["lstm@bf16 train", "nsys", "2 days", "2.11.0", "2023.4.4.54", "0123456", "out of date: train.nsys-rep.json"],
        ["unet inference", "time, comparison", "2 days", "2.11.0", "-", "-", "out of date: inference.base-bf16.rounds.csv.json"],
    ]  # fmt: skip
    assert [row[0] for row in rows(results, "unet")] == ["unet inference"]
    # A sidecar that cannot be read is left out.
    (results / "lstm/train.time.csv.json").write_text("{")
    assert [row[1] for row in rows(results, "lstm")] == ["ncu roofline"]


def test_the_last_line_counts_states(results: Path) -> None:
    states = iter(["up to date", "damaged: it has 3 of 1000 bytes", "up to date", "out of date: a"])
    found = results_status.list_measurements(results, (), lambda sidecar: next(states))
    last = results_status.format_status(found, results, BEGAN)[-1]
    total = sum(path.stat().st_size for path in results.rglob("*") if path.is_file())
    counts = "4 measurements of 3 cells: 2 up to date, 1 damaged, 1 out of date"
    assert last == f"{counts}; {results} takes {total / 1e3:.2g} kB"


def test_a_model_stands_for_its_variants(monkeypatch: pytest.MonkeyPatch, results: Path) -> None:
    monkeypatch.chdir(results.parent)

    def printed(*models: str) -> str:
        results_status.write_status(Path("results"), list(models), lambda sidecar: "up to date")
        return results_status.PRINTED.read_text()

    every = ["lstm train", "lstm train", "lstm@bf16 train", "unet inference"]
    for models, shown in (["lstm"], every[:3]), (["lstm@bf16"], every[2:3]), ([], every):
        assert [line.split("  ")[0] for line in printed(*models).splitlines()[1:-2]] == shown
    assert printed("lstn") == "results has no measurement of lstn; did you mean 'lstm'?\n"
    assert printed("gpt") == "results has no measurement of gpt; valid are: lstm, lstm@bf16, unet\n"
    results.rename(results.parent / "away")
    assert printed().startswith("results has no measurement yet")
    assert printed("lstm") == "results has no measurement of lstm; no model was measured\n"


@pytest.mark.parametrize("state", OutputState)
def test_every_state_has_words(state: OutputState) -> None:
    reasoned = state in (OutputState.OTHER, OutputState.DAMAGED)
    words = results_status.describe_state(OutputVerdict(state, ("because",)))
    assert words == results_status.STATES[state] + (": because" if reasoned else "")
