"""A window in which no step was recorded is named in one line by every reader, and leaves no table empty in silence."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.tables import step_timeline
from profzoo.tools.ncu import export as export_ncu
from profzoo.tools.nsys import tables as export_nsys
from profzoo.tools.nsys.steps import ranks, step_sequence
from profzoo.tools.nsys.steps import steps as nsys_steps
from profzoo.tools.torch import export as export_torch
from profzoo.what_if import tables as replay
from tests import slow
from tests.conftest import DATA
from tests.unit.test_nsys_tables import ONE, export, kernel
from tests.unit.test_own_ranges import add_theirs

WINDOW = "holds no step of the window, so no values per step are known, and launches have no range: "
RUN = "holds no whole step of the window, so no values per step are known: raise nsys.duration"
THEIRS = "; its ranges named step are the program's own, or those of an earlier profzoo"


@pytest.fixture
def launched(tmp_path: Path) -> Path:
    """A trace of a launch in no step, as where nsys is older than the nvtx that opens ranges."""
    return export(tmp_path / "node.0.sqlite", [kernel(100, 110, 7, ONE)], [(50, 7, ONE + 1)], [])


def sidecar(path: Path, **facts: object) -> str:
    path.write_text(json.dumps({"capture": "window", "device_type": "cuda", **facts}))
    return str(path)


@pytest.mark.parametrize(("capture", "line", "theirs"), [("window", WINDOW, True), ("run", RUN, False)])
def test_the_export_of_nsys_says_it(tmp_path: Path, launched: Path, capture: str, line: str, theirs: bool) -> None:
    if theirs:
        add_theirs(launched, [(0, 200, ONE + 1, "step")])
    said: list[str] = []
    csv, steps, out = (tmp_path / name for name in ("n.csv", "s.csv", "n.json"))
    facts = sidecar(tmp_path / "r.json", capture=capture)
    export_nsys.export_trace(str(launched), facts, str(csv), str(steps), str(out), said.append)
    (only,) = said
    assert only.startswith(f"{csv}: the trace {line}") and (THEIRS in only) == theirs and "\n" not in only
    assert steps.read_text() == ",".join(nsys_steps.COLUMNS) + "\n"
    # What is known of it is there.
    assert pd.read_csv(csv)[["launches", "total_ns"]].to_numpy().tolist() == [[1, 10]]


@pytest.mark.parametrize(("ran", "held"), [(3, 2), (2, 2)])
def test_the_export_of_nsys_says_that_steps_are_lacking(tmp_path: Path, ran: int, held: int) -> None:
    steps = [(100 * place, 100 * place + 90, ONE + 1, "step") for place in range(held)]
    path = export(tmp_path / "a.sqlite", [kernel(10, 20, 7, ONE)], [(5, 7, ONE + 1)], steps)
    said: list[str] = []
    outputs = [str(tmp_path / name) for name in ("n.csv", "s.csv", "n.json")]
    export_nsys.export_trace(str(path), sidecar(tmp_path / "r.json", steps=ran), *outputs, said.append)
    lacking = "the trace holds 2 of the 3 steps of the window: nsys lost some, so values per step are low"
    assert said == ([] if ran == held else [f"{outputs[0]}: {lacking}"])


def test_other_readers_of_nsys_say_it(
    tmp_path: Path, launched: Path, capsys: pytest.CaptureFixture, recording: Callable
) -> None:
    facts, timeline = sidecar(tmp_path / "r.json"), tmp_path / "t.json"
    step_timeline.main(str(launched), facts, str(timeline), str(tmp_path / "tracks.csv"))
    assert capsys.readouterr().out.startswith(f"{timeline} is empty, as {launched} {WINDOW}")
    rows = pd.DataFrame({"step": [0, 1], "wall_ns": 9, "gpu_ns": 9, "items": 8, "peak_memory_bytes": 0})
    rows.to_csv(tmp_path / "time.csv", index=False)
    timed = sidecar(tmp_path / "time.json", step_ns=9.0)
    outputs = {name: str(tmp_path / name) for name in ("changes", "host", "program")}
    replay.main(str(launched), facts, str(tmp_path / "time.csv"), timed, outputs)
    assert capsys.readouterr().out.startswith(f"{outputs['changes']} has no row, as {launched} {WINDOW}")
    # Nothing is said where there are steps.
    step_timeline.main(str(recording("nsys/train.sqlite")), facts, str(timeline), str(tmp_path / "tracks.csv"))
    assert capsys.readouterr().out == ""
    for read in (lambda: step_sequence.read_step_launches(launched, 1), lambda: ranks.tabulate_ranks([launched], 1)):
        with pytest.raises(DataError) as error:
            read()
        assert str(error.value).startswith(f"{launched} {WINDOW}") and "\n" not in str(error.value)


@pytest.mark.parametrize("named", slow.first(["step", "profzoo:step"]))
def test_the_export_of_torch_says_it(tmp_path: Path, named: str) -> None:
    events = json.loads(gzip.decompress((DATA / "torch/train.trace.json.gz").read_bytes()))
    kept = [
        {**one, "name": named} if one["name"] == "profzoo:step" else one
        for one in events["traceEvents"]
        if one.get("cat") != "gpu_user_annotation"
    ]
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": kept}).encode()))
    facts = sidecar(tmp_path / "t.json", cell={"profiler": {"memory": False}})
    table = tmp_path / "operators.csv"
    table.write_bytes(gzip.decompress((DATA / "torch/train.torch-operators.csv.gz").read_bytes()))
    outputs = {name: str(tmp_path / f"{name}.csv") for name in ("csv", "launches", "modules", "ranges", "dtypes")}
    said: list[str] = []
    export_torch.main(str(table), str(tmp_path / "t.json.gz"), facts, outputs, said.append)
    step = pd.read_csv(outputs["launches"])["step"]
    if named == "profzoo:step":
        assert said == [] and step.max() == 2
    else:
        (only,) = said
        assert only.startswith(f"{outputs['csv']}: the trace {WINDOW}") and step.isna().all()


@pytest.mark.parametrize("seen", slow.first([False, True]))
def test_the_export_of_ncu_says_it(tmp_path: Path, recording: Callable, seen: bool) -> None:
    pages, said = tmp_path / "pages", list[str]()
    pages.mkdir()
    for kind in ("mangled", "demangled"):
        page = recording(f"ncu/launch.raw.{kind}.csv").read_text()
        assert "profzoo:step:" in page or kind == "demangled"
        # As of a program whose ranges are all its own.
        (pages / f"train.{kind}.csv").write_text(page if seen else page.replace("profzoo:", "theirs:"))
    out, facts = tmp_path / "o.csv", sidecar(tmp_path / "r.json", command=["ncu"])
    export_ncu.main(str(pages), facts, None, "all", [], False, str(out), str(tmp_path / "o.json"), said.append)
    table = pd.read_csv(out, keep_default_na=False)
    if seen:
        assert said == [] and set(table["range"]) == {"backward", "forward", "loss", "optimizer"}
    else:
        assert said == [f"{out}: {export_ncu.NO_STEP}"] and set(table["range"]) == {""} and len(table) == 468
