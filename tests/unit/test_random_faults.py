"""tests/faults/random_faults: that it notices what a run leaves wrong, on runs that only pretend to be made."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults import random_faults
from tests.faults.random_faults import Bench, DifferenceError

TABLE = "tables/cells.csv"


class Pretended(Bench):
    """Whose runs say and do what a test tells them to, and end well."""

    says = ""
    mends = False
    code = 0

    def run(self, words: Sequence[str]) -> int:
        self.output += f"$ {' '.join(words)}\n{self.says}"
        if self.mends:
            for name, content in self.tables.items():
                (self.root / "results" / name).write_bytes(content)
        self.says = ""
        return self.code


@pytest.fixture
def bench(tmp_path: Path) -> Pretended:
    made = Pretended(tmp_path)
    (made.whole / "results/tables").mkdir(parents=True)
    (made.whole / "results" / TABLE).write_text("model,step_ns\nlstm,91\n")
    made.root.mkdir()
    made.restore()
    made.tables = made.told()
    return made


def test_a_digit_that_is_made_right_is_well(bench: Pretended) -> None:
    bench.mends = True
    assert random_faults.step(bench, "digit", random.Random(1))[:2] == (1, 0)


def test_a_digit_that_is_left_wrong_is_noticed(bench: Pretended) -> None:
    with pytest.raises(DifferenceError, match=r"results/tables/cells\.csv differs from that of an undisturbed run"):
        random_faults.step(bench, "digit", random.Random(1))


def test_a_table_that_is_left_away_is_noticed(bench: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(bench: Bench, draw: random.Random) -> str:
        (bench.root / "results" / TABLE).unlink()
        return "gone"

    monkeypatch.setitem(random_faults.KINDS, "kill", gone)
    with pytest.raises(DifferenceError, match="differs"):
        random_faults.step(bench, "kill", random.Random(1))


def test_a_run_that_asks_for_work_by_hand_is_noticed(bench: Pretended) -> None:
    bench.mends, bench.says = True, "It can be removed with the --unlock argument.\n"
    with pytest.raises(DifferenceError, match="asks for work by hand"):
        random_faults.step(bench, "digit", random.Random(1))


def test_runs_that_never_end_well_are_noticed(bench: Pretended) -> None:
    bench.mends, bench.code = True, 1
    with pytest.raises(DifferenceError, match="no run of 3 ended well"):
        random_faults.step(bench, "digit", random.Random(1))


def test_a_command_that_is_printed_is_typed(bench: Pretended) -> None:
    bench.mends, bench.says = True, "x is damaged: `snakemake --force results/x` makes it again\n"
    assert random_faults.step(bench, "digit", random.Random(1))[:2] == (2, 1)
    assert "$ --force results/x\n" in bench.output


def test_what_a_run_leaves_of_its_own_is_noticed(bench: Pretended) -> None:
    bench.mends = True
    (bench.whole / ".snakemake/locks").mkdir(parents=True)
    (bench.whole / ".snakemake/locks/0.output.lock").touch()
    with pytest.raises(DifferenceError, match="are left"):
        random_faults.step(bench, "digit", random.Random(1))
