"""Pauses of the host: verdict and gain on simulated steps, whose twins without the pauses are simulated too."""

import gzip
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.tables.cell_tables import LAUNCHING, PARTS, step_shares
from profzoo.verdicts.gain_models import STEP_CHANGES, CellSimulation, RequestedChange
from profzoo.verdicts.rules import step_quality
from profzoo.what_if import host_time, predicted_gains, tables
from profzoo.what_if.program import read_programs, write_programs
from tests import simulated_waits, slow
from tests.simulated import MAIN, Act, Recording
from tests.simulated_waits import operator

DATA = Path(__file__).parents[1] / "data"
GIL, WORK, LOADING, PAGEABLE = "GIL contention", "host work", "code loading within the window", "pageable copies"
NEW = {GIL, WORK, LOADING, PAGEABLE}
# A step that keeps the GPU busy, and a pause of the host of three times the longest that counts as an operator's work.
BUSY = [operator(2e4) for _ in range(120)]
PAUSE_NS = 3e6
PAUSED = [*BUSY[:60], replace(BUSY[60], before=PAUSE_NS), *BUSY[61:]]
CHANGES = ("lock_waits_removed", "host_work_removed", "loading_removed", "copies_pinned")


def add_lock_waits(path: Path, made: Recording, thread: int = MAIN) -> None:
    """Let a thread wait for the interpreter's lock during each pause, in two waits as CPython does."""
    pauses = [(start - act.before, start) for act, start, _, _ in made.calls if act.before >= PAUSE_NS]
    rows = [(1_000_000 + round(begin), 1_000_000 + round((begin + end) / 2), thread, 900) for begin, end in pauses]
    rows += [(row[1], 1_000_000 + round(end), thread, 900) for row, (_, end) in zip(rows, pauses, strict=True)]
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE OSRT_API (start, end, globalTid, nameId)")
        database.execute("INSERT INTO StringIds VALUES (900, 'pthread_cond_timedwait')")
        database.executemany("INSERT INTO OSRT_API VALUES (?, ?, ?, ?)", rows)
        database.commit()


def name_memory(path: Path, kind: int) -> None:
    """Say from which kind of memory copies to the device read: 0 is pageable, 1 pinned memory."""
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY ADD COLUMN srcKind DEFAULT {kind}")
        database.commit()


def told_by_all(inside: simulated_waits.Inside, folder: Path, **given: Any) -> simulated_waits.Told:
    return simulated_waits.told(inside, folder, every_rule=True, **given)


def measured(paused: simulated_waits.Inside, mended: simulated_waits.Inside) -> float:
    return simulated_waits.step_ns(paused) / simulated_waits.step_ns(mended)


@pytest.mark.parametrize(("thread", "verdict", "other"), slow.first([(MAIN, GIL, WORK), (MAIN + 7, WORK, GIL)]))
def test_lock_waits_are_named_and_gain_their_cost(tmp_path: Path, thread: int, verdict: str, other: str) -> None:
    """Those of a thread that launches nothing are not contention, and the pause is work of the host."""
    told = told_by_all(PAUSED, tmp_path, amend=lambda path, made: add_lock_waits(path, made, thread))
    first = told.of_cell.iloc[0]
    assert (first["verdict"], first["method"]) == (verdict, "replay")
    assert first["gain"] == pytest.approx(measured(PAUSED, BUSY), rel=0.1)
    assert first["gain"] > 1.5 and other not in set(told.of_cell["verdict"])


@pytest.mark.slow
def test_the_same_pause_without_a_wait_for_the_lock_is_work_of_the_host(tmp_path: Path) -> None:
    told = told_by_all(PAUSED, tmp_path)
    first = told.of_cell.iloc[0]
    assert first["verdict"] == WORK and first["gain"] == pytest.approx(measured(PAUSED, BUSY), rel=0.1)
    assert NEW.isdisjoint(told_by_all(BUSY, tmp_path).of_cell["verdict"])


@pytest.mark.slow
def test_pauses_come_before_launches_whose_share_no_longer_holds_them(tmp_path: Path) -> None:
    """The host launches more slowly than the GPU works: a graph would gain more, but not do the work of the pause."""
    small = [operator(2e3) for _ in range(200)]
    paused = [*small[:60], replace(small[60], before=PAUSE_NS), *small[61:]]
    told, twin = told_by_all(paused, tmp_path), told_by_all(small, tmp_path)
    assert list(told.of_cell["verdict"].head(2)) == [WORK, "launch-bound"]
    assert told.of_cell.iloc[0]["gain"] == pytest.approx(measured(paused, small), rel=0.1)
    # Idle time that launches cause is as long as in the twin.
    idle = [one.of_cell.set_index("verdict").loc["launch-bound", "share"] * one.row["step_ns"] for one in (told, twin)]
    assert idle[0] == pytest.approx(idle[1], rel=0.2)
    shares = step_shares(told.row.to_frame().T.infer_objects()).iloc[0].to_dict()
    charged = step_quality.charge_pauses(shares, CellSimulation(told.program), told.row)
    assert sum(charged[name] for name in PARTS) == pytest.approx(1)


@pytest.mark.parametrize("part", slow.first(["optimizer", "data"]))
def test_pauses_of_the_optimizer_and_of_the_input_are_told_of_by_other_verdicts(part: str, tmp_path: Path) -> None:
    paused = [*BUSY[:60], replace(BUSY[60], before=PAUSE_NS, part=part), *BUSY[61:]]
    assert WORK not in set(told_by_all(paused, tmp_path).of_cell["verdict"])


@pytest.mark.slow
def test_what_happens_now_and_then_is_not_the_steps_own(tmp_path: Path) -> None:
    """A pause in three of seven steps, and one in every step at another place: the machine's, not the program's."""

    def seldom(step: int) -> list[Act]:
        return PAUSED if step in (2, 4, 6) else BUSY

    def elsewhere(step: int) -> list[Act]:
        acts = [replace(one, group=place % 40) for place, one in enumerate(BUSY)]
        acts[7 * step + 3] = replace(acts[7 * step + 3], before=PAUSE_NS)
        return acts

    for inside in (seldom, elsewhere):
        assert WORK not in set(told_by_all(inside, tmp_path).of_cell["verdict"])


@pytest.mark.slow
def test_code_that_is_loaded_in_each_step_is_named(tmp_path: Path) -> None:
    load = Act("load", 0, "forward", PAUSE_NS, 5e4)
    loading = [*BUSY[:60], load, *BUSY[60:]]
    told = told_by_all(loading, tmp_path, cudnn_benchmark=True)
    first = told.of_cell.iloc[0]
    assert first["verdict"] == LOADING and first["gain"] == pytest.approx(measured(loading, BUSY), rel=0.1)
    assert first["settings"] == "cudnn_benchmark=false"
    plain = told_by_all(loading, tmp_path)
    assert plain.of_cell.iloc[0]["next_step"].startswith("code for the GPU is compiled or loaded within the steps: use")

    def at_first(step: int) -> list[Act]:
        return loading if step == 0 else BUSY

    assert NEW.isdisjoint(told_by_all(at_first, tmp_path).of_cell["verdict"])


@pytest.mark.slow
def test_what_the_host_does_while_a_library_tries_kernels_is_no_other_pause(tmp_path: Path) -> None:
    """In each step two kernels are timed, one of any shape, behind a pause of 3 ms and the loading of their code."""

    def inside(step: int) -> list[Act]:
        wait = Act("sync", 0, "forward", 2e3, 2e3)
        tried = [one for plan in (1, 10 * step + 2) for one in [operator(1e4, group=plan), wait] * 2]
        makes = [replace(wait, before=PAUSE_NS), Act("load", 0, "forward", PAUSE_NS, 2e5)]
        return [*BUSY, *makes, *tried, operator(1e4, group=1), *BUSY]

    told = told_by_all(inside, tmp_path)
    program = told.program
    assert host_time.find_host_work(program).sum() == 0
    assert host_time.remove_loading(program).host["own"].equals(program.host["own"].astype(float))
    assert told.of_cell["verdict"].tolist()[0] == "tuning for changing shapes" and not NEW & {*told.verdicts["verdict"]}


def test_copies_from_pageable_memory_cost_what_their_calls_take_longer(tmp_path: Path) -> None:
    """Two copies through the staging buffer, of which the second waits for the first, in each step of little work."""
    small = [operator(6e3) for _ in range(60)]
    staged = [Act("staged", 0, "transfer", 5e3, 3e5, ns=2e5), Act("staged", 0, "transfer", 5e3, 3e5, ns=2e5)]
    pinned = [replace(one, kind="copy", call=5e3) for one in staged]
    told = told_by_all([*staged, *small], tmp_path, amend=lambda path, _: name_memory(path, 0), pin_memory=False)
    row = told.of_cell.set_index("verdict").loc[PAGEABLE]
    assert row["gain"] == pytest.approx(measured([*staged, *small], [*pinned, *small]), rel=0.15)
    assert row["settings"] == "pin_memory=true"
    for kind, acts in ((1, [*pinned, *small]), (7, [*staged, *small])):
        twin = told_by_all(acts, tmp_path, amend=lambda path, _, kind=kind: name_memory(path, kind))
        assert PAGEABLE not in set(twin.of_cell["verdict"])


@pytest.mark.slow
def test_stored_programs_keep_pauses_and_those_of_an_earlier_version_have_none(tmp_path: Path) -> None:
    program, _ = simulated_waits.traced(PAUSED, tmp_path, add_lock_waits)
    write_programs([program], tmp_path / "program.npz")
    (kept,) = read_programs(tmp_path / "program.npz").values()
    assert np.array_equal(kept.host["locked"], program.host["locked"]) and kept.host["locked"].sum() > 7 * PAUSE_NS
    assert np.array_equal(kept.gpu["pageable"], program.gpu["pageable"])
    earlier = replace(
        program, host=program.host.drop(columns=["locked", "loads"]), gpu=program.gpu.drop(columns="pageable")
    )
    write_programs([earlier], tmp_path / "earlier.npz")
    (old,) = read_programs(tmp_path / "earlier.npz").values()
    row = told_by_all(BUSY, tmp_path).row
    for change in ("lock_waits_removed", "loading_removed", "copies_pinned"):
        assert predicted_gains.predict_gain(old, STEP_CHANGES[change](old, row)).gain == pytest.approx(1)


def test_a_recorded_training_of_the_zoo_has_none_of_these(tmp_path: Path) -> None:
    """Ten steps of MobileNetV2 on an H200."""
    trace = tmp_path / "train.sqlite"
    trace.write_bytes(gzip.decompress((DATA / "nsys" / "train.sqlite.gz").read_bytes()))
    (program,) = tables.read_programs(trace)
    replayed, row = CellSimulation(program), pd.Series({"process": 1})
    gains = {change: replayed.gain(RequestedChange(change), row, 0.0) for change in CHANGES}
    assert all(found and found.gain < 1.02 for found in gains.values())
    assert not host_time.find_pageable_copies(program).all()


@pytest.mark.parametrize(("saved", "moved"), [(0.0, 0.0), (0.1, 0.1), (0.3, 0.3), (0.9, 0.4)])
def test_what_pauses_take_moves_from_launching(saved: float, moved: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than the 0.4 that waits for launches; each part of it keeps its share of the rest."""
    monkeypatch.setattr(step_quality, "saved_share", lambda replayed, change, step: saved)
    first, *others = LAUNCHING
    shares = dict.fromkeys(PARTS, 0.0) | {"idle_unknown": 0.25, first: 0.3}
    shares |= dict.fromkeys(others, 0.1 / len(others))
    found = step_quality.charge_pauses(shares, CellSimulation.__new__(CellSimulation), pd.Series())
    assert found["idle_unknown"] == pytest.approx(0.25 + moved)
    assert found[first] == pytest.approx(0.3 * (0.4 - moved) / 0.4)
    assert sum(found[name] for name in LAUNCHING) == pytest.approx(0.4 - moved)
