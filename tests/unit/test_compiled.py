"""tools/torch/compiled: owners of kernels of compiled graphs, and amounts that are divided among their parts."""

import json
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from profzoo.tools.torch import compiled, owners
from profzoo.tools.torch import trace as torch_trace
from profzoo.tools.torch.compiled import Graph, Module, Root, divide_parts

BLOCK = [Module(0, "fc", "Linear", 1), Module(0, "", "Block", 0), Module(-1, "", "", 0)]
ROW = {
    "operator": "fused add",
    "shapes": "[[1]]",
    "caller": "c",
    "module": "body",
    "type": "Body",
    "direction": "forward",
}


@pytest.mark.parametrize(
    ("root", "called", "expected"),
    [
        # Code of one block that another one of its class runs.
        (Root("blocks.0", "Block", False), ("blocks.3.(compiled)", "Block"), ("blocks.3.fc", "blocks.3", "blocks.3.(compiled)")),
        (Root("", "Net", True), ("(compiled)", "Net"), ("fc", "(root)", "(compiled)")),
        # Compiled below a graph break, where only one module can be meant, and where several can.
        (Root("body", "Body", True), ("(compiled)", "Net"), ("body.fc", "body", "(compiled)")),
        (Root("blocks.0", "Block", False), ("(compiled)", "Net"), ("(compiled)", "(compiled)", "(compiled)")),
        (Root(None, "", False), ("(compiled)", "Net"), ("(compiled)", "(compiled)", "(compiled)")),
        # A function that a module calls, and one that is called outside of modules.
        (Root("blocks.0", "Block", False), ("blocks.3", "Block"), ("blocks.3.fc", "blocks.3", "blocks.3")),
        (Root("", "Net", True), ("(forward)", ""), ("fc", "(root)", "(forward)")),
        (Root("other", "Net", True), ("(root)", "Net"), ("fc", "(root)", "(root)")),
    ],
)  # fmt: skip
def test_modules_lie_in_the_one_from_which_the_graph_is_called(
    root: Root, called: tuple[str, str], expected: tuple[str, ...]
) -> None:
    graph = Graph([root], BLOCK, [])
    assert tuple(graph.place(number, *called)[0] for number in range(3)) == expected


def test_a_function_without_modules_belongs_to_the_module_that_is_compiled() -> None:
    graph = Graph([], [Module(-1, "", "", 0)], [])
    assert graph.place(0, "head.(compiled)", "Head") == ("head", "Head")
    assert graph.place(0, "(compiled)", "Net") == ("(root)", "Net") and graph.place(0, "(loss)", "") == ("(loss)", "")


def called_graph(*operators: tuple[str, int, int]) -> list[dict[str, Any]]:
    """Events of one run of a graph, and of operators with their begin and duration in µs."""
    run = {
        "cat": "user_annotation",
        "name": "## Call CompiledFxGraph g ##",
        "ts": 100,
        "dur": 100,
        "args": {},
        "tid": 1,
    }
    rest = [{"cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "args": {"External id": place}, "tid": 1}
            for place, (name, ts, dur) in enumerate(operators, 1)]  # fmt: skip
    return [run, *rest]


def told(*kernels: str) -> dict[str, Any]:
    """A graph of these kernels, each of which is one addition in a module of its own."""
    modules = [[0, f"m{place}", "Block", 1] for place in range(len(kernels))]
    parts = [[name, [["aten::add", place, "a.py:1", 4]]] for place, name in enumerate(kernels)]
    return {"g": {"roots": [["", "Net", True]], "modules": modules, "kernels": parts}}


def modules_of(given: Any, *operators: tuple[str, int, int]) -> list[str]:
    """The module of each operator."""
    trace = replace(torch_trace.make_trace(called_graph(*operators)), compiled=given)
    return owners.tabulate_operators(trace)["module"].astype(str).tolist()


def test_calls_of_one_name_follow_one_another() -> None:
    """What an operator calls is of the same kernel; what runs outside of the graph is of none."""
    ran = ("aten::mm", 110, 20), ("aten::empty", 115, 5), ("triton_poi_fused_add_0", 140, 5), ("aten::mm", 150, 9)
    graph = told("aten::mm", "triton_poi_fused_add_0", "aten::mm")
    assert modules_of(graph, *ran, ("aten::mm", 300, 5)) == ["m0", "m0", "m1", "m2", "(outside)"]
    assert modules_of(told("cpp_fused_add_0"), ("graph_0_cpp_fused_add_0", 110, 5)) == ["m0"]
    # With a call too many it is not known which is which; the others are.
    assert modules_of(graph, *ran, ("aten::mm", 170, 5)) == ["(outside)"] * 2 + ["m1"] + ["(outside)"] * 2


@pytest.mark.parametrize("given", [{}, {"g": {}}, {"g": {"roots": [[1]], "modules": [], "kernels": []}}, {"g": 5}])
def test_a_trace_that_tells_nothing_is_read_as_before(given: Any) -> None:
    assert compiled.read_graphs(given) == {} and modules_of(given, ("aten::mm", 110, 20)) == ["(outside)"]


def test_amounts_are_divided_by_elements() -> None:
    """A quarter of 80 is the first part's; a launch of another owner stays whole."""
    parts = [["aten::add", "body.a", "A", "a.py:1", 0.25], ["aten::mul", "body.b", "B", "a.py:2", 0.75]]
    one = [["", "head", "Linear", "a.py:3", 1.0]]
    rows = pd.DataFrame([ROW, ROW | {"operator": "aten::mm"}, ROW | {"operator": "aten::sum"}]).assign(
        total_ns=[80.0, 50.0, 7.0], parts=[json.dumps(parts), json.dumps(one), ""]
    )
    found = divide_parts(rows.astype({"module": "category"}), ["total_ns"]).set_index("operator")
    assert found["total_ns"].to_dict() == {"aten::sum": 7, "aten::add": 20, "aten::mul": 60, "aten::mm": 50}
    assert found.loc["aten::add", ["module", "type", "caller", "shapes", "lines"]].tolist() == [
        "body.a", "A", "fused add", "", "a.py:1"]  # fmt: skip
    # What Inductor calls as it is keeps its name and its shapes.
    assert found.loc["aten::mm", ["module", "caller", "shapes", "divided"]].tolist() == ["head", "c", "[[1]]", False]
    assert found["divided"].tolist() == found["divided_layers"].tolist() == [False, True, True, False]
    described = compiled.describe_divided(found.reset_index().assign(all=1), ["all"], compiled.DIVIDED)
    assert described["divided_share"].tolist() == [pytest.approx(80 / 137)]
    assert described["lines"].tolist() == ["a.py:1; a.py:2; a.py:3"]
    plain = rows.drop(columns="parts")
    assert divide_parts(plain, ["total_ns"]) is plain


def test_views_alone_have_equal_shares() -> None:
    """A kernel with no elements to count, such as one that fills; it belongs to what holds both."""
    parts = [compiled.Part("aten::full", 0, "", 0), compiled.Part("aten::zeros", 1, "", 0)]
    modules = [Module(0, "body.a", "A", 1), Module(0, "body.b", "B", 1), Module(0, "body", "Body", 1)]
    graph = Graph([Root("", "Net", True)], modules, [("k", parts)])
    module, kind, written = compiled.describe_parts((graph, 0), "(compiled)", "Net", fused=True)
    assert (module, kind) == ("body", "Body") and [part[-1] for part in json.loads(written)] == [0.5, 0.5]
