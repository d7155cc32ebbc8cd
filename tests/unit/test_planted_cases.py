"""Planted steps: each computes what its mended twin computes, and the records of all groups fit the programs."""

import ast
import hashlib
import importlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from profzoo.cell import schema, settings
from profzoo.config import configuration
from profzoo.harness import inspection, interface
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import step_loop
from profzoo.harness.step.batches import iterate_batches
from tests import slow
from tests.planted import cases, scoring
from tests.planted import configuration as planted

CASES = cases.all_cases()
# Twins differ by rounding; `albert_cast_weights` computes in bf16 either way.
TOLERANCE = 2e-3
STEPS = 2
# Of what counts as right for the sealed cases, since before any of them ran on a GPU.
SEAL = "ba09145a83035d816b00df032440cd128fea1ba63902c8d85421949830c14974"


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


def test_groups_have_twenty_cases_each_and_each_program_a_record() -> None:
    assert len({case.name for case in CASES}) == len(CASES) == 60
    for half in cases.GROUPS:
        found = cases.find_cases(half)
        assert len(found) == 20 and {case.half for case in found} == {half}
        modules = {path.stem for path in (Path(cases.__file__).parent / half).glob("*.py")} - {"__init__", "records"}
        assert modules == {case.name for case in found}


def test_halves_have_the_same_kinds_and_sealed_cases_other_families() -> None:
    halves = [cases.find_cases(half) for half in cases.HALVES]
    assert all(Counter(case.kind for case in half) == Counter(cases.KINDS) for half in halves)
    assert {case.family for half in halves for case in half} == set(cases.FAMILIES)
    sealed = {case.family for case in cases.find_cases(cases.SEALED)}
    assert len(sealed) == 20 and not sealed & set(cases.FAMILIES)


def test_what_counts_as_right_is_what_was_sealed() -> None:
    assert hashlib.sha256(cases.describe_causes(cases.SEALED).encode()).hexdigest() == SEAL


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_records_fit_the_programs(case: cases.Case) -> None:
    assert case.first_cause and set(case.first_cause) <= set(cases.CAUSES)
    module = importlib.import_module(case.module)
    assert module.SHAPE["fault"] is True and list(module.WORKLOADS["trimmed"]) == [case.phase]
    assert set(module.TINY) <= {*module.SHAPE, "batch"} and not set(module.SHAPE) & set(schema.cell_properties())
    # What is wrong is in the program, or in settings that the twin changes.
    read = [node for node in ast.walk(ast.parse(Path(module.__file__).read_text())) if isinstance(node, ast.Attribute)]
    assert any(node.attr == "fault" for node in read) or case.mended


@pytest.mark.parametrize(
    ("said", "right", "among", "expected"),
    [
        (["input-bound", "host work"], True, True, 2.0),
        (["host work", "input-bound"], False, True, 3.0),
        (["host work", "launch-bound", "input-bound"], False, False, 2.0),
        ([], False, False, None),
    ],
)
def test_the_gain_of_the_right_verdict_among_two_is_scored(
    said: list[str], right: bool, among: bool, expected: float | None, tmp_path: Path
) -> None:
    (case,) = (case for case in cases.find_cases(cases.SEALED) if case.name == "speech_slow_augmentation")
    for name, step_ns in ((case.name, 6e6), (case.twin, 2e6)):
        (tmp_path / name).mkdir()
        pd.DataFrame({"gpu_ns": [step_ns] * 5, "wall_ns": step_ns}).to_csv(tmp_path / name / "train.time.csv")
    rows = [
        {"model": case.name, "phase": "train", "level": level, "rank": place, "verdict": verdict, "settings": None,
         "gain": place + 1.0, "gain_low": place, "gain_high": 2.0 * place}
        for level, names in (("launch", ["input-bound"]), ("cell", said)) for place, verdict in enumerate(names, 1)
    ]  # fmt: skip
    scored = scoring.score_case(case, pd.DataFrame(rows), scoring.read_mapping(), tmp_path)
    assert scored is not None and (scored.right, scored.among_two) == (right, among)
    assert scored.measured.gain == pytest.approx(3)
    if expected:
        assert (scored.expected, scored.width) == (expected, 2.0)
    assert f"among the first two: {int(among)} of 1" in scoring.summarise([scored])
