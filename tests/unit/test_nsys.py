"""nsys: every key reaches the command line; what cannot be combined is refused; the words of older releases."""

import re
from pathlib import Path

import pytest

from profzoo.cell import schema
from profzoo.config import configuration as config
from profzoo.errors import CollectError, ConfigError
from profzoo.tools.nsys import command

CHANGES = {
    "traces": ({"traces": ["nvtx", "cuda"]}, "--trace=nvtx,cuda"),
    "capture": ({"capture": "run"}, None),
    "delay": ({"capture": "run", "delay": 2.5}, "--delay=2.5"),
    "duration": ({"capture": "run", "duration": 5}, "--duration=5 --kill=none"),
    "cuda_memory_usage": ({"cuda_memory_usage": True}, "--cuda-memory-usage=true"),
    "cuda_graph": ({"cuda_graph": "graph"}, "--cuda-graph-trace=graph"),
    "gpu_metrics": ({"gpu_metrics": True}, "--gpu-metrics-devices=cuda-visible"),
    "sample": ({"sample": "process-tree"}, "--sample=process-tree"),
    "cpuctxsw": ({"cpuctxsw": "system-wide"}, "--cpuctxsw=system-wide"),
    "backtrace": ({"backtrace": "dwarf"}, "--backtrace=dwarf"),
    "pytorch": ({"pytorch": "functions-trace"}, "--pytorch=functions-trace"),
    "modules": ({"modules": True}, "--env-var=PROFZOO_MODULES=1"),
    "extra": ({"extra": ["--stats=false"]}, "--stats=false"),
}
NEW = "\t--gpu-metrics-devices=\n\t--gpu-metrics-set=\n\t--pytorch=\n"
OLD = "\t--gpu-metrics-device=\n\t--gpu-metrics-set=\n"
BEFORE_2021 = "\t-t, --trace=\n"


def words(**given: object) -> str:
    return " ".join(command.options(config.normalise_config({"nsys": given})["nsys"]))


def test_no_key_is_left_untested() -> None:
    assert set(CHANGES) | {"envmodules", "window", "reports", "time_limit"} == set(
        schema.load_schema()["properties"]["nsys"]["properties"]
    )


@pytest.mark.parametrize(("given", "expected"), CHANGES.values(), ids=CHANGES)
def test_every_key_changes_the_command_line(given: dict, expected: str | None) -> None:
    assert words(**given) != words()
    if expected:
        assert expected in words(**given) and expected not in words()


def test_the_window_does_not_end_the_program() -> None:
    assert "--capture-range=cudaProfilerApi --capture-range-end=stop" in words()
    assert "--capture-range" not in words(capture="run")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"reports": "gpu_sum"}, "nsys.reports holds 'gpu_sum': "),
        ({"duration": 3}, "nsys.duration is for whole runs: set nsys.capture to run"),
        ({"capture": "run", "traces": "cuda", "pytorch": "autograd-nvtx"}, "nsys.pytorch = 'autograd-nvtx' annotates"),
        ({"traces": "nvtx", "cuda_memory_usage": True}, "nsys.cuda_memory_usage needs the cuda trace"),
        ({"traces": "nvtx,cuda", "backtrace": "fp"}, "nsys.backtrace has nothing to unwind"),
        ({"extra": ["-t", "cuda"]}, "nsys.extra holds -t, which the workflow sets itself: change nsys.traces"),
        ({"delay": 3}, "nsys.delay is for whole runs"),
        ({"traces": "cuda"}, "nsys.capture = 'window' finds the window by NVTX"),
        ({"capture": "run", "traces": "nvtx,none"}, "nsys.traces holds none beside others"),
        ({"extra": ["--export=json"]}, "nsys.extra holds --export, which the workflow sets itself"),
    ],
)
def test_what_cannot_be_combined_is_refused(given: dict, line: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(line)}"):
        config.normalise_config({"nsys": given})


@pytest.mark.parametrize(
    ("word", "help_text", "adapted"),
    [
        ("--gpu-metrics-devices=cuda-visible", NEW, ["--gpu-metrics-devices=cuda-visible"]),
        ("--gpu-metrics-devices=cuda-visible", OLD, ["--gpu-metrics-device=all"]),
        ("--pytorch=autograd-nvtx", NEW, ["--pytorch=autograd-nvtx"]),
        ("--trace=cuda,nvtx", OLD, ["--trace=cuda,nvtx"]),
        ("-x", OLD, ["-x"]),
        (command.GPU_CAPTURE, OLD, [command.GPU_CAPTURE]),
    ],
)
def test_adapt_on_a_gpu(word: str, help_text: str, adapted: list[str]) -> None:
    assert command.adapt_options([word], help_text, gpu=True) == adapted


@pytest.mark.parametrize(
    ("word", "help_text", "key"),
    [
        ("--pytorch=autograd-nvtx", OLD, "unset nsys.pytorch"),
        ("--gpu-metrics-devices=cuda-visible", BEFORE_2021, "unset nsys.gpu_metrics "),
    ],
)
def test_adapt_names_what_the_tool_does_not_offer(word: str, help_text: str, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        command.adapt_options([word], help_text, gpu=True)


def test_adapt_without_a_gpu_finds_the_window_by_its_range() -> None:
    given = [command.GPU_CAPTURE, "--capture-range-end=stop"]
    adapted = ["--capture-range=nvtx", "--nvtx-capture=profzoo_window@profzoo", "--capture-range-end=stop"]
    assert command.adapt_options(given, NEW, gpu=False) == adapted


@pytest.mark.parametrize(("new", "old"), [(new, old) for new, old in command.REPORTS.items() if old])
def test_report_names_of_both_times(new: str, old: str) -> None:
    assert command.current_names([old, new]) == [new]
    assert command.offered_names([new], f"  {old}[:base|mangled] -- Report\n") == [old]
    assert command.offered_names([new], f"  {new}[:base|mangled] -- Report\n") == [new]


# Options that a user may add: they change neither what is recorded of the steps nor how it ends.
HARMLESS = ["--cuda-um-cpu-page-faults", "--gpu-metrics-set", "--nic-metrics", "--python-sampling", "--stats", "-w"]
REFUSED = ["-p", "--nvtx-capture", "--start-later", "--duration-frames", "--cuda-trace-scope", "--kill", "-x"]
REFUSED += ["--nvtx-domain-include", "--stop-on-exit", "-n", "--env-var", "--command-file", "-h", "--help", "--wait"]


def test_options_that_change_nothing_of_the_steps_may_be_added() -> None:
    given = [f"{option}=x" for option in HARMLESS]
    assert config.normalise_config({"nsys": {"extra": given}})["nsys"]["extra"] == given


@pytest.mark.parametrize("option", REFUSED)
def test_options_that_change_what_is_recorded_are_refused_in_one_line(option: str) -> None:
    for word in [f"{option}x", option] if len(option) == 2 else [f"{option}=x", option, option[:-1]]:
        with pytest.raises(ConfigError, match=r"^nsys\.extra holds --?[a-zA-Z]") as error:
            config.normalise_config({"nsys": {"extra": [word]}})
        assert "\n" not in str(error.value)


def test_options_are_put_in_the_words_of_the_nsys_that_is_here(tmp_path: Path) -> None:
    """Up to the first `--output`: what follows is the program's."""
    program = tmp_path / "nsys"
    program.write_text('#!/bin/sh\n[ "$1 $2" = "profile --help" ] && echo " --gpu-metrics-device="\n')
    program.chmod(0o755)
    inner = ["--output", "r", "python", "--gpu-metrics-devices=cuda-visible", "--output", "x"]
    metrics = "--gpu-metrics-devices=cuda-visible"
    given = [str(program), "profile", "--sample=none", metrics, command.GPU_CAPTURE, *inner]
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
