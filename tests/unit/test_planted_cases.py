"""Planted steps: each computes what its mended twin computes, and the records of both halves fit the programs."""

import ast
import importlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from profzoo.cell import schema, settings
from profzoo.config import configuration
from profzoo.harness import inspection, interface
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import step_loop
from profzoo.harness.step.batches import iterate_batches
from tests import slow
from tests.planted import cases
from tests.planted import configuration as planted

CASES = cases.all_cases()
# Twins differ by rounding; `albert_cast_weights` computes in bf16 either way.
TOLERANCE = 2e-3
STEPS = 2


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Several threads wait for each other longer than such small steps take."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(known: cases.Case, name: str) -> list[Any]:
    """Losses of two steps of a tiny cell in fp32, or outputs, with the weights after them."""
    config = configuration.normalise_config(planted.given([known], tiny=True))
    cell = settings.resolve_cell(name, known.phase, "time", config) | {"precision": "fp32", "workers": 0}
    cpu, model = torch.device("cpu"), interface.load_functions(cell["module"])
    network = step_loop.make_network(cell, model, cpu, None)
    repeated = step_loop.make_step(cell, model, network, cpu, Ranges())
    batches = iter(iterate_batches(cell, model))
    made = [repeated.step(repeated.transfer(next(batches), cpu)) for _ in range(STEPS)]
    return [*inspection.find_tensors(made), *network.parameters()]


@pytest.mark.parametrize("case", slow.first(CASES, 5), ids=lambda case: case.name)
def test_a_twin_computes_the_same(case: cases.Case) -> None:
    faulty, mended = (run(case, name) for name in (case.name, case.twin))
    assert len(faulty) == len(mended) > STEPS - 1
    for one, other in zip(faulty[:STEPS], mended[:STEPS], strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=TOLERANCE, atol=TOLERANCE)
    assert all(torch.isfinite(one).all() for one in faulty)


def test_halves_have_twenty_cases_of_the_same_kinds_and_each_program_a_record() -> None:
    assert len({case.name for case in CASES}) == len(CASES) == 40
    assert {case.family for case in CASES} == set(cases.FAMILIES)
    for half in cases.HALVES:
        found = cases.find_cases(half)
        assert Counter(case.kind for case in found) == Counter(cases.KINDS) and {case.half for case in found} == {half}
        modules = {path.stem for path in (Path(cases.__file__).parent / half).glob("*.py")} - {"__init__", "records"}
        assert modules == {case.name for case in found}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_records_fit_the_programs(case: cases.Case) -> None:
    assert case.first_cause and set(case.first_cause) <= set(cases.CAUSES)
    module = importlib.import_module(case.module)
    assert module.SHAPE["fault"] is True and list(module.WORKLOADS["trimmed"]) == [case.phase]
    assert set(module.TINY) <= {*module.SHAPE, "batch"} and not set(module.SHAPE) & set(schema.cell_properties())
    # What is wrong is in the program, or in settings that the twin changes.
    read = [node for node in ast.walk(ast.parse(Path(module.__file__).read_text())) if isinstance(node, ast.Attribute)]
    assert any(node.attr == "fault" for node in read) or case.mended
