"""Planted steps: each computes what its mended twin computes, and the records of both halves fit the programs."""

import ast
import importlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import optimizer as optim
from torch.utils._python_dispatch import TorchDispatchMode

from profzoo import schema
from profzoo.cell import settings
from profzoo.config import configuration
from profzoo.harness import data_loading, interface, step_loop, tensor_trees
from profzoo.harness.ranges import Ranges
from tests import slow
from tests.planted import cases
from tests.planted import configuration as planted

CASES = cases.all_cases()
BY_NAME = {case.name: case for case in CASES}
# Operators that give the host a number or a size.
WAITING = {"_local_scalar_dense", "item", "is_nonzero", "nonzero", "masked_select", "_unique2", "unique_consecutive"}
# Kinds that prevent a graph otherwise: by copies from pageable memory, or by shapes that change.
OTHERWISE = ("host data", "changing shapes")
# On a CPU `one_hot` looks at its numbers; on a GPU it does not.
ONE_HOT = {"gpt_moe_nonzero-mended", "recommender_one_hot"}
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


class Waits(TorchDispatchMode):
    """Counts operators for whose results the host has to wait on a GPU, outside of optimizers."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.counting = 0, True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and count it if it is one."""
        name, given = func.overloadpacket.__name__, list(tensor_trees.find_tensors(list(args)))
        masked = name.startswith("index") and any(one.dtype is torch.bool for one in given[1:])
        self.count += self.counting and (name in WAITING or masked)
        return func(*args, **(kwargs or {}))

    def set_counting(self, wanted: bool) -> None:
        """Count or not."""
        self.counting = wanted


@contextmanager
def counted() -> Iterator[Waits]:
    """Count waits; an optimizer on a CPU reads its number of steps, which is not on the GPU elsewhere either."""
    waits = Waits()
    hooks = [
        optim.register_optimizer_step_pre_hook(lambda *_: waits.set_counting(False)),
        optim.register_optimizer_step_post_hook(lambda *_: waits.set_counting(True)),
    ]
    with waits:
        yield waits
    for hook in hooks:
        hook.remove()


@cache
def run(case: str, name: str) -> tuple[list[Any], int]:
    """Losses of two steps of a tiny cell in fp32, or outputs, with the weights after them; and how often they wait."""
    known = BY_NAME[case]
    config = configuration.normalise_config(planted.given([known], tiny=True))
    cell = settings.resolve_cell(name, known.phase, "time", config) | {"precision": "fp32", "workers": 0}
    cpu, model = torch.device("cpu"), interface.load_functions(cell["module"])
    network = step_loop.make_network(cell, model, cpu, None)
    repeated = step_loop.make_step(cell, model, network, cpu, Ranges())
    batches = iter(data_loading.iterate_batches(cell, model))
    given = [repeated.transfer(next(batches), cpu) for _ in range(STEPS)]
    with counted() as waits:
        made = [repeated.step(batch) for batch in given]
    return [*tensor_trees.find_tensors(made), *network.parameters()], waits.count


@pytest.mark.parametrize("case", slow.first(CASES, 5), ids=lambda case: case.name)
def test_a_twin_computes_the_same(case: cases.Case) -> None:
    faulty, mended = (run(case.name, name)[0] for name in (case.name, case.twin))
    assert len(faulty) == len(mended) > STEPS - 1
    for one, other in zip(faulty[:STEPS], mended[:STEPS], strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=TOLERANCE, atol=TOLERANCE)
    assert all(torch.isfinite(one).all() for one in faulty)


def test_halves_have_twenty_cases_of_the_same_kinds() -> None:
    assert len({case.name for case in CASES}) == len(CASES) == 40
    for half in cases.HALVES:
        found = Counter(case.kind for case in cases.find_cases(half))
        assert found == Counter(cases.KINDS), half
        assert all(case.half == half for case in cases.find_cases(half))
    assert {case.family for case in CASES} == set(cases.FAMILIES)


@pytest.mark.parametrize("half", cases.HALVES)
def test_each_program_has_a_record(half: str) -> None:
    folder = Path(cases.__file__).parent / half
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "records"}
    assert modules == {case.name for case in cases.find_cases(half)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_records_fit_the_programs(case: cases.Case) -> None:
    assert case.first_cause and set(case.first_cause) <= set(cases.CAUSES)
    module = importlib.import_module(case.module)
    assert module.SHAPE["fault"] is True and list(module.WORKLOADS["trimmed"]) == [case.phase]
    assert set(module.TINY) <= {*module.SHAPE, "batch"} and not set(module.SHAPE) & set(schema.cell_properties())
    # What is wrong is in the program, or in settings that the twin changes.
    read = [node for node in ast.walk(ast.parse(Path(module.__file__).read_text())) if isinstance(node, ast.Attribute)]
    assert any(node.attr == "fault" for node in read) or case.mended


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_graph_is_impossible_where_the_host_waits(case: cases.Case) -> None:
    waits = {name: run(case.name, name)[1] for name in (case.name, case.twin) if name not in ONE_HOT}
    if case.name in waits and case.kind not in OTHERWISE:
        assert (waits[case.name] > 0) == (case.graph_possible is False)
        assert (waits[case.name] > 0) == ("synchronisation" in case.first_cause)
    assert waits.get(case.twin, 0) == 0
