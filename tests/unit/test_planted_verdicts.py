"""Planted steps are told rightly whatever the CPU: on a simulated H200, from one that is fast to one that is slow."""

from pathlib import Path

import pytest

from tests import planted_simulated, slow
from tests.gpu import test_planted

# Of one operator: a fast CPU by itself, to one of a virtual machine whose cores are shared.
OPERATORS_US = (3.5, 5.0, 8.0, 12.0, 20.0, 30.0)
# By how much the gain of the right verdict is larger than that of the next.
AHEAD = 1.1


@pytest.mark.parametrize("operator_us", slow.first(OPERATORS_US))
@pytest.mark.parametrize("program", slow.first(["items", "waits", "doubles", "tiny"], 2))
def test_a_planted_bottleneck_is_named_first_whatever_the_cpu(program: str, operator_us: float, tmp_path: Path) -> None:
    precision, right = test_planted.SETTINGS.get(program, {}).get("precision", "fp32"), test_planted.VERDICTS[program]
    cells = {
        fault: planted_simulated.told(program, fault, precision, 1e3 * operator_us, tmp_path) for fault in (True, False)
    }
    first, *others = cells[True].verdicts
    measured = cells[True].step_ns / cells[False].step_ns
    assert measured > 1.3
    assert first["verdict"] in right and first["method"] == "replay"
    assert all(first["gain"] > AHEAD * row["gain"] for row in others if row["verdict"] not in right)
    if program in test_planted.GAINS:
        assert 1 - 1 / first["gain"] == pytest.approx(1 - 1 / measured, rel=0.15)
    left = cells[False].verdicts[0]
    assert left["verdict"] not in right or left["gain"] < first["gain"]


@pytest.mark.parametrize("program", ["items", "waits"])
def test_the_work_of_a_cpu_that_waits_fits_beside_the_gpu(program: str) -> None:
    acts = planted_simulated.step(program, False, "bf16", 1e3 * max(OPERATORS_US)).acts
    inside = [act for act in acts if act.part == "forward"]
    assert sum(act.before + act.call for act in inside) < 0.8 * sum(act.ns for act in inside)
