"""nsys: every key reaches the command line; what cannot be combined is refused; the words of older releases."""

import pytest

from profzoo import schema
from profzoo.config import configuration as config
from profzoo.errors import ConfigError
from profzoo.tools.nsys import command as nsys

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
    """The command line's options."""
    return " ".join(nsys.options(config.normalise_config({"nsys": given})["nsys"]))


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
        ({"capture": "run", "traces": "none,nvtx"}, "nsys.traces holds none beside others"),
        ({"capture": "run", "traces": "cuda", "pytorch": "autograd-nvtx"}, "nsys.pytorch = 'autograd-nvtx' annotates"),
        ({"traces": "nvtx", "cuda_memory_usage": True}, "nsys.cuda_memory_usage needs the cuda trace"),
        ({"traces": "nvtx,cuda", "backtrace": "fp"}, "nsys.backtrace has nothing to unwind"),
        ({"extra": ["-t", "cuda"]}, "nsys.extra holds -t, which the workflow sets itself: change nsys.traces"),
        ({"extra": ["--export=json"]}, "nsys.extra holds --export, which the workflow sets itself"),
    ],
)
def test_what_cannot_be_combined_is_refused(given: dict, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        config.normalise_config({"nsys": given})
    assert str(error.value).startswith(line)


@pytest.mark.parametrize(
    ("word", "help_text", "adapted"),
    [
        ("--gpu-metrics-devices=cuda-visible", NEW, ["--gpu-metrics-devices=cuda-visible"]),
        ("--gpu-metrics-devices=cuda-visible", OLD, ["--gpu-metrics-device=all"]),
        ("--pytorch=autograd-nvtx", NEW, ["--pytorch=autograd-nvtx"]),
        ("--trace=cuda,nvtx", OLD, ["--trace=cuda,nvtx"]),
        ("-x", OLD, ["-x"]),
        (nsys.GPU_CAPTURE, OLD, [nsys.GPU_CAPTURE]),
    ],
)
def test_adapt_on_a_gpu(word: str, help_text: str, adapted: list[str]) -> None:
    assert nsys.adapt_options([word], help_text, gpu=True) == adapted


@pytest.mark.parametrize(
    ("word", "help_text", "key"),
    [
        ("--pytorch=autograd-nvtx", OLD, "unset nsys.pytorch"),
        ("--gpu-metrics-devices=cuda-visible", BEFORE_2021, "unset nsys.gpu_metrics "),
    ],
)
def test_adapt_names_what_the_tool_does_not_offer(word: str, help_text: str, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        nsys.adapt_options([word], help_text, gpu=True)


def test_adapt_without_a_gpu_finds_the_window_by_its_range() -> None:
    given = [nsys.GPU_CAPTURE, "--capture-range-end=stop"]
    adapted = ["--capture-range=nvtx", "--nvtx-capture=profzoo_window@profzoo", "--capture-range-end=stop"]
    assert nsys.adapt_options(given, NEW, gpu=False) == adapted


def test_metrics_of_a_gpu_are_refused_on_a_cpu() -> None:
    with pytest.raises(ConfigError, match=r"the cell runs on a CPU: set nsys\.gpu_metrics to false"):
        nsys.adapt_options(words(gpu_metrics=True).split(), NEW, gpu=False)


@pytest.mark.parametrize(("new", "old"), [(new, old) for new, old in nsys.REPORTS.items() if old])
def test_report_names_of_both_times(new: str, old: str) -> None:
    assert nsys.current_names([old, new]) == [new]
    assert nsys.offered_names([new], f"  {old}[:base|mangled] -- Report\n") == [old]
    assert nsys.offered_names([new], f"  {new}[:base|mangled] -- Report\n") == [new]


def test_a_report_that_the_tool_does_not_know_keeps_its_name() -> None:
    assert nsys.offered_names(["network_congestion"], "  gpukernsum") == ["network_congestion"]


# Options of nsys 2023.4 and 2025 that a user may add: they change neither what is recorded of the steps nor how it ends.
HARMLESS = [
    "--cpu-core-events",
    "--cuda-flush-interval",
    "--cuda-um-cpu-page-faults",
    "--cuda-um-gpu-page-faults",
    "--cudabacktrace",
    "--event-sample",
    "--event-sampling-interval",
    "--flush-on-cudaprofilerstop",
    "--ftrace",
    "--ftrace-keep-user-config",
    "--gpu-metrics-frequency",
    "--gpu-metrics-set",
    "--gpu-video-device",
    "--gpuctxsw",
    "--mpi-impl",
    "--nic-metrics",
    "--opengl-gpu-workload",
    "--os-events",
    "--osrt-backtrace-stack-size",
    "--osrt-backtrace-threshold",
    "--osrt-threshold",
    "--python-backtrace",
    "--python-nvtx-annotations",
    "--python-sampling",
    "--python-sampling-frequency",
    "--resolve-symbols",
    "--run-as",
    "--samples-per-backtrace",
    "--sampling-period",
    "--session-new",
    "--stats",
    "--trace-fork-before-exec",
    "--vulkan-gpu-workload",
    "-w",
    "--show-output",
    "--cuda-event-trace",
    "--cuda-trace-all-apis",
]
REFUSED = [
    "-p",
    "--nvtx-capture",
    "-Y",
    "--start-later",
    "--start-frame-index",
    "--duration-frames",
    "--hotkey-capture",
    "--cuda-trace-scope",
    "--nvtx-domain-include",
    "--nvtx-domain-exclude",
    "--kill",
    "--wait",
    "-x",
    "--stop-on-exit",
    "-n",
    "--inherit-environment",
    "-e",
    "--env-var",
    "--command-file",
    "-h",
    "--help",
]


@pytest.mark.parametrize("option", HARMLESS)
def test_options_that_change_nothing_of_the_steps_may_be_added(option: str) -> None:
    given = [f"{option}=x"]
    assert config.normalise_config({"nsys": {"extra": given}})["nsys"]["extra"] == given


@pytest.mark.parametrize("option", REFUSED)
def test_options_that_change_what_is_recorded_are_refused_in_one_line(option: str) -> None:
    for word in [f"{option}x", option] if len(option) == 2 else [f"{option}=x", option, option[:-1]]:
        with pytest.raises(ConfigError, match=r"^nsys\.extra holds --?[a-zA-Z]") as error:
            config.normalise_config({"nsys": {"extra": [word]}})
        assert "\n" not in str(error.value)
