"""What a run's end says of cells of which no gain is expected: the first verdict of each, with its next step."""

from pathlib import Path

from profzoo.terminal import run_end
from profzoo.terminal.cell_verdicts import SHOWN, list_cell_verdicts
from tests.unit.test_terminal import other, run_of

HEAD = "model,phase,level,verdict,gain,settings,next_step,by\n"
ROWS = (
    'mine,train,cell,undecided,,,"operator-bound: between 0% and 100% of the step, undecided because steps vary",profzoo\n'
    "mine,train,cell,input-bound,,,,profzoo\n"
    "mine,inference,layer,slow,,,,profzoo\nmine,inference,cell,advice,9,,,ncu\n"
    "mine,inference,cell,operator-bound,,,see the operator,profzoo\n"
)
TOLD = [
    "mine train: operator-bound: between 0% and 100% of the step, undecided because steps vary",
    "mine inference: operator-bound; see the operator",
]


def test_each_cell_has_its_first_verdict(tmp_path: Path) -> None:
    table = tmp_path / "verdicts.csv"
    table.write_text(HEAD + ROWS)
    assert list_cell_verdicts(table) == TOLD
    table.write_text(HEAD + "".join(f"m{number},train,cell,undecided,,,,profzoo\n" for number in range(9)))
    assert list_cell_verdicts(table) == [f"m{number} train: undecided" for number in range(SHOWN)]
    table.write_text(HEAD)
    assert list_cell_verdicts(table) == []
    assert list_cell_verdicts(tmp_path / "nothing.csv") == []


def test_a_run_without_expected_gains_ends_with_verdicts(tmp_path: Path) -> None:
    table = tmp_path / "verdicts.csv"
    (tmp_path / "cells.csv").write_text("model,phase,step_ns\nmine,train,10\nmine,inference,10\n")
    table.write_text(HEAD + ROWS)
    progress = run_of(other("tabulate_verdicts", "tables", str(table)))
    progress.finish(0, 0)
    assert run_end.format_run_end(progress, 1, 300)[1:] == [f"verdict {TOLD[0]}", f"        {TOLD[1]}"]
    table.write_text(HEAD + ROWS + "mine,train,cell,launch-bound,2,graph=true,,profzoo\n")
    assert not any(line.startswith("verdict") for line in run_end.format_run_end(progress, 1, 300))
