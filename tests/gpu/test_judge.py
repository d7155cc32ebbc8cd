"""The referee on a GPU: cheats are refused there, a compiled program is not, and a gain of 3 % is told from none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from profzoo.experiments.forked_runs import ProcessStarter
from profzoo.referee import judge
from profzoo.referee.judge import Options
from profzoo.statistics.speedup import EQUIVALENT, FASTER, UNDECIDED
from tests.benchmarks import judge_gains
from tests.unit.test_judge_cheats import judged


@pytest.fixture(scope="module")
def starter() -> Iterator[ProcessStarter]:
    """Forks all contestants from one process, which imports torch once."""
    starter = ProcessStarter(fork=True)
    yield starter
    starter.close()


@pytest.mark.parametrize("name", ["side_stream", "patched_synchronize", "patched_events", "lower_precision"])
def test_a_cheat_on_a_gpu_is_refused(name: str, tmp_path: Path, starter: ProcessStarter) -> None:
    found = judged(name, tmp_path, starter, device="cuda")
    assert found.outcome in ("different", "invalid"), found


def test_a_compiled_program_is_not_refused(tmp_path: Path, starter: ProcessStarter) -> None:
    found = judged("honest_compiled", tmp_path, starter, budget_s=60.0, device="cuda")
    assert found.outcome in (FASTER, EQUIVALENT, UNDECIDED), found


@pytest.mark.parametrize(("after", "outcomes"), [(3, [FASTER]), (judge_gains.NOWHERE, [EQUIVALENT, UNDECIDED])])
def test_a_gain_of_3_percent_is_told_from_none(
    after: int, outcomes: list[str], tmp_path: Path, starter: ProcessStarter
) -> None:
    sides = [
        judge_gains.write_state(tmp_path / "a", after),
        judge_gains.write_state(tmp_path / "b", judge_gains.NOWHERE),
    ]
    found = judge.judge(*sides, Options(module="model.py", device="cuda", budget_s=30.0), starter=starter)
    assert found.outcome in outcomes, found
