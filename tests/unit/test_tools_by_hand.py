"""What is shared by the tools, case by case: kernels' names apart, options, versions, files of ranks, nsys' own words."""

from pathlib import Path

import pandas as pd
import pytest

from profzoo import tools
from profzoo.config import configuration as config
from profzoo.errors import CollectError, ConfigError, DataError
from profzoo.tools import communication_kernels, extra_options, tool_versions
from profzoo.tools.kernel_signature import function_path, template_arguments
from profzoo.tools.nsys import command, step_schema
from profzoo.tools.nsys import doctor as nsys_doctor
from profzoo.tools.rank_files import files_by_rank
from profzoo.tools.torch import doctor as torch_doctor


@pytest.mark.parametrize(
    ("kernel", "path", "arguments"),
    [
        ("f", "f", ""), ("void f<int>(int)", "f", "int"), ("f()", "f", ""), ("a::f<int, 3>(g<int>)", "a::f", "int, 3"),
        # A return type ends at the space, with arguments of its own.
        ("std::enable_if<true, void>::type a::f(int)", "a::f", ""),
        ("std::enable_if<true, void>::type a::f<3>(int)", "a::f", "3"),
        # Copies and fills are no functions.
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
    assert not communication_kernels.communicates("triton_poi_fused_all_reduce_0")
    assert communication_kernels.communicates("triton_all_reduce") and communication_kernels.communicates(
        "_Z13all_reduce_kv"
    )
    # A parameter is not the kernel's name, of a mangled one though it may be.
    assert not communication_kernels.communicates("f(ncclComm*)") and communication_kernels.communicates(
        "_Z1fP8ncclComm"
    )
    assert (
        communication_kernels.user_expression(communication_kernels.exclusion_expression("")) is None
        and communication_kernels.user_expression("") is None
    )


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
        extra_options.check("ncu.extra", ["--fine", word], OWN, REFUSED, {"--kernel-na", "-pw"})

    if said is None:
        check()
        return
    with pytest.raises(ConfigError) as error:
        check()
    assert str(error.value).startswith(f"ncu.extra {said}")


def test_no_option_is_meant_by_two_dashes_alone() -> None:
    """Which end the options, though an option may be the only one that begins so."""
    extra_options.check("x.extra", ["--"], {"--set": "x.set"}, {"--mode": "cannot be"})


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
    assert (
        tool_versions.merge_versions({}) == {}
        and tool_versions.short("3") == "3"
        and tool_versions.short("v1.2 of 3.4") == "1.2"
    )


def test_files_of_ranks_are_in_their_order() -> None:
    paths = [Path("r/b.10.csv"), Path("r/node.a.0.csv"), *(Path(f"r/c.{rank}.csv") for rank in range(1, 10))]
    found = files_by_rank(paths, ".csv", 11, "trace")
    assert [(host, rank) for host, rank, _ in found] == [
        ("node.a", 0),
        *(("c", rank) for rank in range(1, 10)),
        ("b", 10),
    ]
    assert found[10][2] == paths[0] and files_by_rank([], ".csv", 0, "trace") == []
    # More than there should be is no fault of these.
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
    assert (
        list(tools.compared_activities()) == list(tools.activities())[: len(known)]
        and next(iter(tools.compared_activities())) == "nsys"
    )


def test_options_are_put_in_the_words_of_the_nsys_that_is_here(tmp_path: Path) -> None:
    """Up to the first `--output`: what follows is the program's."""
    program = tmp_path / "nsys"
    program.write_text('#!/bin/sh\n[ "$1 $2" = "profile --help" ] && echo " --gpu-metrics-device="\n')
    program.chmod(0o755)
    inner = ["--output", "r", "python", "--gpu-metrics-devices=cuda-visible", "--output", "x"]
    given = [
        str(program),
        "profile",
        "--sample=none",
        "--gpu-metrics-devices=cuda-visible",
        command.GPU_CAPTURE,
        *inner,
    ]
    start = [str(program), "profile", "--sample=none", "--gpu-metrics-device=all"]
    assert command.adapt_command(given, gpu=True) == [*start, command.GPU_CAPTURE, *inner]
    unsampled = [word for word in given[:5] if not word.startswith("--gpu")]
    assert command.adapt_command([*unsampled, *inner], gpu=False) == [*start[:-1], *command.NVTX_CAPTURE, *inner]
    with pytest.raises(ConfigError, match=r"nsys.gpu_metrics samples a GPU, and the cell runs on a CPU"):
        command.adapt_command(given, gpu=False)


def test_an_option_may_be_listed_without_its_value() -> None:
    word = "--gpu-metrics-devices=cuda-visible"
    assert command.adapt_options([word], "  --gpu-metrics-devices  which GPUs", gpu=True) == [word]
    assert command.adapt_options(["--pytorch=a=b"], "--pytorch", gpu=True) == ["--pytorch=a=b"]


@pytest.mark.parametrize(
    "given",
    [
        {"capture": "run", "traces": "none"}, {"capture": "run", "delay": 3, "duration": 5}, {"backtrace": "fp", "sample": "process-tree"},
        {"backtrace": "fp", "traces": "cuda,nvtx,osrt"}, {"traces": "nvtx,cuda", "cuda_memory_usage": True},
        {"capture": "run", "traces": "cuda", "pytorch": "none"}, {"capture": "run", "traces": "cuda"},
    ],
)  # fmt: skip
def test_what_nsys_can_do_together_is_taken(given: dict) -> None:
    if given.get("traces") == "none":
        given = {**given, "backtrace": "none", "sample": "none"}
    assert config.normalise_config({"nsys": given})["nsys"]["capture"] == given.get("capture", "window")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"delay": 3}, "nsys.delay is for whole runs"),
        ({"traces": "cuda"}, "nsys.capture = 'window' finds the window by NVTX"),
        ({"capture": "run", "traces": "nvtx,none"}, "nsys.traces holds none beside others"),
    ],
)
def test_what_nsys_cannot_do_together_is_refused(given: dict, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        config.normalise_config({"nsys": given})


def test_of_several_processes_the_first_stands_for_the_cell(tmp_path: Path) -> None:
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    made = {"ranks": ranks, "report": tmp_path / "x.nsys-rep", "sqlite": tmp_path / "x.sqlite"}
    assert command.output_files(made) == [] and command.wrap_command([], made, 2)[-1] == str(ranks / "%h.%q{RANK}")
    for rank in (0, 1, 10):
        for ending in (".nsys-rep", ".sqlite"):
            (ranks / f"host.{rank}{ending}").write_text(f"{rank}{ending}")
    command.arrange_outputs(made)
    assert made["report"].read_text() == "0.nsys-rep" and made["sqlite"].read_text() == "0.sqlite"
    (ranks / "other.0.nsys-rep").write_text("")
    with pytest.raises(CollectError, match=r"2 files \*\.0\.nsys-rep of the first process"):
        command.arrange_outputs(made)
    alone = {"report": tmp_path / "y.nsys-rep", "sqlite": tmp_path / "z.sqlite"}
    assert command.output_files(alone) == [alone["report"], tmp_path / "y.sqlite"]
    assert command.wrap_command([], alone, 1)[-1] == str(alone["report"])
    (tmp_path / "y.sqlite").write_text("y")
    command.arrange_outputs(alone)
    assert alone["sqlite"].read_text() == "y" and not (tmp_path / "y.sqlite").exists()


@pytest.mark.parametrize(
    ("lacking", "nsys", "torch"),
    [
        ([], "nsys", "torch (on the GPU)"), (["GPU", "torch CUDA"], "nsys", "torch (on the CPU)"),
        (["torch CUDA"], "nsys", "torch (on the CPU, where device is cpu)"), (["torch", "GPU"], None, None),
        (["nsys"], None, "torch (on the GPU)"), (["nsys importer"], None, "torch (on the GPU)"), (["nvtx"], None, "torch (on the GPU)"),
        (["ncu"], "nsys", "torch (on the GPU)"),
    ],
)  # fmt: skip
def test_which_tools_can_profile_where_something_is_lacking(
    lacking: list[str], nsys: str | None, torch: str | None
) -> None:
    assert (
        nsys_doctor.describe_use(frozenset(lacking)) == nsys and torch_doctor.describe_use(frozenset(lacking)) == torch
    )


def test_a_table_of_a_steps_launches_is_whole() -> None:
    table = pd.DataFrame({"id": [0, 1, 2, 3], "step": [0, 0, 1, 1]})
    assert step_schema._numbered(table) is None and step_schema._numbered(table.head(2)) is None
    assert "from 0 to 2: rows are missing" in str(step_schema._numbered(table.drop(index=1)))
    assert "as many launches each" in str(step_schema._numbered(table.head(3)))
    kinds = step_schema.TABLE.columns
    assert {name for name in step_schema.KEYS if kinds[name] == kinds["kernel"]} == {"mangled"}
    # By CUDA's names, in the order of grid, block and shared memory.
    assert step_schema.KEYS == ["mangled", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "smem_static_bytes",
                             "smem_dynamic_bytes"]  # fmt: skip
