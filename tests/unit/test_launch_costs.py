"""What the launches of a trace need, against a count of the operators that made them."""

from typing import Any

import pytest
import torch

from profzoo.op_costs.operators import COLUMNS, call_costs
from profzoo.op_costs.trace_calls import list_calls
from profzoo.tools.torch import launch_costs, owners
from profzoo.tools.torch import trace as torch_trace
from profzoo.tools.torch.nesting import nest_operators
from tests import owned
from tests.conftest import DATA


def test_operators_need_what_a_count_of_their_calls_says() -> None:
    torch.manual_seed(0)
    events = owned.traced(owned.Known())
    table = owners.tabulate_operators(torch_trace.make_trace(events))
    counted = call_costs(list_calls(events))
    assert table[COLUMNS].sum().tolist() == counted.sum().tolist()
    assert (
        table["needed_product_flop"].sum() > 0
        and table["needed_bytes"].notna().sum() == counted["needed_bytes"].notna().sum()
    )
    # Two steps with two batches of 11; its weight's gradient and its input's take as much each.
    widen = table[table["module"] == "widen"].groupby("direction", observed=True)["needed_product_flop"].sum()
    assert widen["forward"] == 4 * 2 * 11 * 23 * 29 and widen["backward"] == 2 * widen["forward"]


def test_launches_need_what_their_operators_do() -> None:
    """Of a step on an H200."""
    trace = torch_trace.read_trace(DATA / "torch/train.trace.json.gz")
    table, own = (
        owners.tabulate_launches(trace),
        launch_costs.known_operator_costs(trace, nest_operators(trace).parent)[1],
    )
    kernels = table[table["kind"] == "kernel"]
    assert kernels["needed_bytes"].notna().all()
    assert table["needed_product_flop"].sum() == own[:, 0].sum() > 0


def operator(name: str, number: int, at: float, **arguments: Any) -> dict[str, Any]:
    """A call of an operator that takes 10 us."""
    return {"cat": "cpu_op", "name": name, "tid": 1, "ts": at, "dur": arguments.pop("dur", 10),
            "args": {"External id": number, **arguments}}  # fmt: skip


def launch(correlation: int, number: int, at: float, call: str = "cudaLaunchKernel") -> list[dict[str, Any]]:
    """A call of the runtime and the kernel that it launched."""
    ids = {"correlation": correlation, "External id": number}
    return [
        {"cat": "cuda_runtime", "name": call, "tid": 1, "ts": at, "dur": 1, "args": ids},
        {"cat": "kernel", "name": f"k{correlation}", "tid": 7, "ts": at + 50, "dur": 2, "args": ids},
    ]


def test_the_first_launch_of_an_operator_has_what_it_needs() -> None:
    inputs = {"Input Dims": [[4, 5], [5, 6]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
    events = [
        operator("aten::mm", 1, 0, **inputs),
        # An operator without a formula, that a known one calls, and one that none knows.
        operator("aten::part", 2, 5, dur=4),
        operator("aten::other", 3, 20),
        *launch(10, 1, 1), *launch(11, 2, 6), *launch(12, 3, 21), *launch(13, 99, 40),
    ]  # fmt: skip
    table = owners.tabulate_launches(torch_trace.make_trace(events))
    assert table["needed_product_flop"].fillna(-1).tolist() == [240, 0, -1, -1]
    # Without shapes nothing is known.
    bare = [{**event, "args": {"External id": event["args"]["External id"]}} if event["cat"] == "cpu_op" else event
            for event in events]  # fmt: skip
    assert owners.tabulate_launches(torch_trace.make_trace(bare))[COLUMNS].isna().all(axis=None)


@pytest.mark.parametrize("replays", [1, 3])
def test_each_replay_of_a_graph_needs_it_all_again(replays: int) -> None:
    inputs = {"Input Dims": [[4, 5], [5, 6]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
    captured = [
        {"cat": "cuda_runtime", "name": name, "tid": 1, "ts": at, "dur": 0, "args": {"correlation": 1}}
        for name, at in {"cudaStreamBeginCapture": -1, "cudaStreamEndCapture": 15}.items()
    ]
    made = [launch(correlation, 1, at)[0] for correlation, at in ((10, 1), (11, 2))]
    replayed = []
    for replay in range(replays):
        call, kernel = launch(100 + replay, 0, 100 * (replay + 1), "cudaGraphLaunch")
        replayed += [call, kernel, {**kernel, "ts": kernel["ts"] + 3}]
    events = [operator("aten::mm", 1, 0, **inputs), *captured, *made, *replayed]
    table = owners.tabulate_launches(torch_trace.make_trace(events))
    assert table["needed_product_flop"].tolist() == [240, 0] * replays
