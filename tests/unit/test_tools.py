"""tools: every package has what the registry asks of it, and the registry asks every package."""

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from profzoo import tools
from profzoo.cell import schema
from profzoo.config import configuration
from profzoo.errors import ConfigError, DataError
from profzoo.tables import cell_tables
from profzoo.tools import defaults, kernel_signature, tool_versions
from profzoo.tools.defaults import files_by_rank
from profzoo.tools.kernel_signature import function_path, template_arguments
from profzoo.tools.ncu import activity as ncu_activity
from profzoo.tools.ncu.estimates import GPU_TIME
from profzoo.tools.nsys import activity
from profzoo.tools.nsys.steps import step_sequence

PARTS = {
    "command": (tools.Command, tools.commands),
    "files": (tools.Files, tools.files),
    "activity": (tools.Activity, tools.activities),
    "failures": (tools.Failures, tools.failures),
    "doctor": (tools.Doctor, tools.doctors),
}


def members(protocol: Any) -> set[str]:
    return {name for name in {*vars(protocol), *inspect.get_annotations(protocol)} if not name.startswith("_")}


@pytest.mark.parametrize("part", PARTS)
def test_a_module_has_all_that_is_asked_of_it(part: str) -> None:
    protocol, found = PARTS[part]
    assert found()
    for name, module in found().items():
        for member in members(protocol):
            assert hasattr(module, member), f"{name}.{part} lacks {member}"
            asked, given = getattr(protocol, member, None), getattr(module, member)
            if callable(asked):
                assert len(inspect.signature(given).parameters) == len(inspect.signature(asked).parameters) - 1


def test_what_a_module_leaves_out_is_filled_in() -> None:
    lean = ModuleType("lean")
    lean.name_parts = lambda own: ["lean", "lean-raw"]
    made = {"samples": Path("a.csv"), "sidecar": Path("a.csv.json"), "timed": Path("b.json")}
    command = defaults.Filled("lean", None, defaults.Command)
    assert command.PROGRAM is None and command.wrap_command([], made, 1) == command.program_options(made) == []
    assert command.adapt_command(["python"], gpu=False) == ["python"]
    assert command.check_settings({"window": 1}) == {"window": 1}
    assert command.output_files(made) == [Path("a.csv")] and command.arrange_outputs(made) is None
    files = defaults.Filled("lean", lean, defaults.Files)
    assert files.name_parts({}) == ["lean", "lean-raw"] and files.exported_files({}) == ["{phase}.lean.csv"]
    needed = ["{phase}.lean.csv", "{phase}.lean.csv.json"]
    assert files.required_files({}) == [*files.table_inputs({}).values()] == needed
    lean.table_inputs = lambda own: {"lean": "{phase}.other.csv"}
    assert files.required_files({}) == ["{phase}.other.csv"]
    filled = defaults.Filled("lean", lean, defaults.Activity)
    assert filled.PLACE is None is filled.summarise_kernels(None, {}) and filled.summarise_cell(None, {}) == {}
    with pytest.raises(AttributeError, match="TABLE"):
        _ = filled.TABLE


def test_every_tool_says_what_it_does() -> None:
    assert {does for tool in tools.names() for does in schema.tool_schemas()[tool]["does"]} == set(tools.DOES)
    assert tools.that(tools.TIME) == [tools.BASELINE] and tools.that(tools.ATTRIBUTE) == ["torch"]


def test_the_configuration_takes_every_tool_and_no_other() -> None:
    config = configuration.normalise_config({"tool": ",".join(tools.names())})
    assert config["tool"] == tools.names() and set(tools.names()) <= set(config)
    with pytest.raises(ConfigError, match="did you mean 'nsys'"):
        configuration.normalise_config({"tool": "nsyss"})


@pytest.mark.parametrize("tool", tools.names())
def test_names_of_its_files_are_known_as_targets(tool: str) -> None:
    config = configuration.normalise_config({})
    files = tools.files()[tool]
    for pattern in [*files.exported_files(config[tool]), *files.table_inputs(config[tool]).values()]:
        target = f"results/lstm/{pattern.format(phase='train')}"
        configuration.check_targets([target], "results", config)


def test_columns_that_a_tool_adds_to_the_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "summarise_cell", lambda table, facts: {"kernels": len(table)}, raising=False)
    baseline = pd.DataFrame({"model": ["a", "b"], "phase": ["train", "train"], "step_ns": [1, 2]})
    rows = pd.DataFrame({"kernel": ["x", "y"]})
    added = cell_tables.add_tool_columns(baseline, [("nsys", {"model": "b", "phase": "train"}, rows, {})])
    assert added["kernels"].isna().tolist() == [True, False] and added["kernels"][1] == 2
    assert added.drop(columns="kernels").equals(baseline)


@pytest.mark.parametrize(
    ("kernel", "path", "arguments"),
    [
        ("f", "f", ""), ("void f<int>(int)", "f", "int"), ("f()", "f", ""), ("a::f<int, 3>(g<int>)", "a::f", "int, 3"),
        # A return type ends at the space, with arguments of its own.
        ("std::enable_if<true, void>::type a::f(int)", "a::f", ""),
        ("std::enable_if<true, void>::type a::f<3>(int)", "a::f", "3"),
        # Copies and fills are not functions.
        ("[CUDA memcpy HtoD]", "[CUDA memcpy HtoD]", ""),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)", ""), ("Memset (Device)", "Memset (Device)", ""),
        ("MemcpyLike<3>(int)", "MemcpyLike", "3"),
        # Namespaces without a name.
        ("void a::(anonymous namespace)::f<3>(int)", "a::f", "3"), ("void (anonymous namespace)::f(int)", "f", ""),
        ("<unnamed>::f(int)", "f", ""),
        # Cut off, within the arguments, or within parameters in these.
        ("void f<int, float", "f", "int, float"), ("void f<g(int", "f", "g"), ("f<a<b>, c", "f", "a<b>, c"), ("f(int", "f", ""),
        # Within parentheses a bracket compares.
        ("f<g(a<b), c>(x)", "f", "g, c"), ("f<(int)5, (bool)1>(x)", "f", "5, 1"), ("f<g<h>(int (*)(long)), 2>(x)", "f", "g<h>, 2"),
        # Of a lambda that it is one.
        ("f<g(T &)::[lambda(int) (instance 1)]>(x)", "f", "g::lambda"), ("f<g()::{lambda(int)#1}, 3>(x)", "f", "g::lambda, 3"),
        ("<lambda>(int)", "<lambda>(int)", "lambda"), ("", "", ""),
        # Lengths stand before names.
        ("_Z1kv", "k", ""), ("_ZN2at6native3addIfLi4EEEvT_", "at::native::add", ""), ("_ZL3fooi", "foo", ""),
        ("_ZN1a1bIN1c2ddEEEvv", "a::b", "c::dd"), ("_Z1kILi4E1cEvv", "k", "c"), ("_Z1kILin12E3fooS0_1cEvv", "k", "foo::c"),
        # Nor is what has no name, as a compiler writes it, one; nor is a name whole that is cut off.
        ("_ZN12_GLOBAL__N_11kEv", "k", ""), ("_Z1kIN12_GLOBAL__N_13fooEEvv", "k", "foo"), ("_ZN1a20short", "a::short", ""),
        ("_ZNSt6vectorIiE", "vector", ""), ("_Z", "_Z", ""), ("_ZN", "_ZN", ""),
    ],
)  # fmt: skip
def test_the_parts_of_a_kernels_name(kernel: str, path: str, arguments: str) -> None:
    assert (function_path(kernel), template_arguments(kernel)) == (path, arguments)


def test_what_inductor_generates_computes_whatever_its_name() -> None:
    assert not kernel_signature.communicates("triton_poi_fused_all_reduce_0")
    assert kernel_signature.communicates("triton_all_reduce") and kernel_signature.communicates("_Z13all_reduce_kv")
    # A parameter is not the kernel's name, of a mangled one though it may be.
    assert not kernel_signature.communicates("f(ncclComm*)") and kernel_signature.communicates("_Z1fP8ncclComm")
    for expression in (kernel_signature.exclusion_expression(""), ""):
        assert kernel_signature.user_expression(expression) is None


OWN = {"-k": "ncu.kernel_name", "--kernel-name": "ncu.kernel_name", "--set": "ncu.set"}
REFUSED = {"-p": "cannot be", "--mode": "cannot be", "--model": "cannot be"}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("-k", "holds -k, which the workflow sets itself: change ncu.kernel_name"), ("-kfoo", "holds -k, "),
        ("-k=foo", "holds -k, "), ("--set", "holds --set, "), ("--set=full", "holds --set, "), ("--se", "holds --set, "),
        ("--kernel=a", "holds --kernel-name, "), ("-p", "holds -p, which cannot be: remove it"), ("-p3", "holds -p, which"),
        ("--mode=x", "holds --mode, which"), ("--model", "holds --model, which"),
        # Neither values nor other options; nor what is the beginning of two.
        ("k", None), ("set", None), ("-", None), ("--", None), ("-x", None), ("-xk", None), ("--sets", None), ("--mod", None),
        ("--m=3", None), ("--kernel-name-base=x", None),
        # What is an option of its own, though it is the beginning of another.
        ("--kernel-na", None), ("--kernel-na=demangled", None), ("-pw", None), ("-pw=1", None),
    ],
)  # fmt: skip
def test_which_words_are_refused(word: str, said: str | None) -> None:
    def check() -> None:
        defaults.check("ncu.extra", ["--fine", word], OWN, REFUSED, {"--kernel-na", "-pw"})

    if said is None:
        check()
        return
    with pytest.raises(ConfigError) as error:
        check()
    assert str(error.value).startswith(f"ncu.extra {said}")


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({"tool": "nsys", "torch": "2.9", "driver": "580.1", "tool_version": "Version 2025.3.1.0 (build 3)"},
         {"torch": "2.9", "driver": "580.1", "nsys": "2025.3.1.0"}),
        # torch.profiler and the baseline are of torch's version.
        ({"tool": "torch", "torch": "2.9", "tool_version": "2.9.1"}, {"torch": "2.9"}),
        ({"tool": "time", "driver": "580.1"}, {"driver": "580.1"}),
        ({"tool": "ncu", "tool_version": "unknown 3"}, {"ncu": "unknown 3"}),
        ({"tool": "ncu", "tool_version": None, "torch": "", "driver": None}, {}), ({"torch": 2.9, "driver": ["580"]}, {}), ({}, {}),
    ],
)  # fmt: skip
def test_versions_that_a_sidecar_tells(facts: dict, found: dict) -> None:
    assert tool_versions.versions_of(facts) == found


def test_versions_of_several_tools_with_who_had_which_where_they_differ() -> None:
    given = {"time": {"torch": "2.9"}, "nsys": {"torch": "2.9", "nsys": "2025.3"}, "ncu": {"torch": "2.10"}}
    assert tool_versions.merge_versions(given) == {"torch": "2.9 (time, nsys), 2.10 (ncu)", "nsys": "2025.3"}
    assert tool_versions.merge_versions({"time": {"torch": "2.9"}, "ncu": {"torch": "2.9"}}) == {"torch": "2.9"}
    assert tool_versions.merge_versions({}) == {}
    assert tool_versions.short("3") == "3" and tool_versions.short("v1.2 of 3.4") == "1.2"


def test_files_of_ranks_are_in_their_order() -> None:
    paths = [Path("r/b.10.csv"), Path("r/node.a.0.csv"), *(Path(f"r/c.{rank}.csv") for rank in range(1, 10))]
    found = files_by_rank(paths, ".csv", 11, "trace")
    inner = [("c", rank) for rank in range(1, 10)]
    assert [(host, rank) for host, rank, _ in found] == [("node.a", 0), *inner, ("b", 10)]
    assert found[10][2] == paths[0] and files_by_rank([], ".csv", 0, "trace") == []
    # More than there should be is not a fault of these.
    assert len(files_by_rank(paths, ".csv", 2, "trace")) == 11


@pytest.mark.parametrize("name", ["a.x.csv", "a.csv", "a.-1.csv", "a..csv", "a.²3.csv", "a.٣.csv", "b.0.csv"])
def test_a_file_of_no_rank_or_of_one_twice_is_named(name: str) -> None:
    with pytest.raises(DataError, match=r"is not named as the trace of a process \(HOST\.RANK\), or it occurs twice"):
        files_by_rank([Path("a.0.csv"), Path(name)], ".csv", 1, "trace")


def test_tools_are_gone_by_in_the_order_of_their_places() -> None:
    """Those without a place come last, and are held against none."""
    places = [activity.PLACE for activity in tools.activities().values()]
    known = [place for place in places if place is not None]
    assert known == sorted(known) and places == known + [None] * (len(places) - len(known))
    compared = list(tools.compared_activities())
    assert compared == list(tools.activities())[: len(known)] and compared[0] == "nsys"


def test_a_table_of_a_steps_launches_is_whole() -> None:
    table = pd.DataFrame({"id": [0, 1, 2, 3], "step": [0, 0, 1, 1]})
    assert step_sequence._numbered(table) is None and step_sequence._numbered(table.head(2)) is None
    assert "from 0 to 2: rows are missing" in str(step_sequence._numbered(table.drop(index=1)))
    assert "as many launches each" in str(step_sequence._numbered(table.head(3)))
    kinds = step_sequence.TABLE.columns
    assert {name for name in step_sequence.KEYS if kinds[name].kind == kinds["kernel"].kind} == {"mangled"}
    # By CUDA's names, in the order of grid, block and shared memory.
    assert step_sequence.KEYS == ["mangled", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "smem_static_bytes",
                             "smem_dynamic_bytes"]  # fmt: skip


def test_a_launch_of_ncus_census_counts_as_one_of_its_time() -> None:
    table = pd.DataFrame({"kernel": ["a", "b"], GPU_TIME: [5.0, 7.0]})
    found = ncu_activity.summarise_kernels(table, {})
    rows = [["kernel", "a", 1, 5.0], ["kernel", "b", 1, 7.0]]
    assert found[["kind", "name", "count", "ns"]].to_numpy().tolist() == rows
