"""ncu: every key reaches the command line in options that ncu has; what cannot be combined is refused."""

import os
from pathlib import Path

import pytest

from profzoo.cell import schema
from profzoo.config import configuration as config
from profzoo.errors import CollectError, ConfigError
from profzoo.tools.ncu import command as ncu
from tests.conftest import DATA

# A value other than the default for each key, and the words it becomes.
CHANGES = {
    "launches": ("all", None),
    "replay": ("application", "--replay-mode application"),
    "target_processes": ("application-only", "--target-processes application-only"),
    "target_processes_filter": ("exclude:sh", "--target-processes-filter exclude:sh"),
    "kernel_name": ("gemm.*", "--kernel-name regex:gemm.*"),
    "devices": ([0, 2], "--devices 0,2"),
    "cache_control": ("none", "--cache-control none"),
    "clock_control": ("base", "--clock-control base"),
    "sass": (True, "--import-sass yes --import-source yes"),
    "extra": (["--verbose"], "--verbose"),
}
# Budget, error and operations are those of tests/unit/test_run_planning.py, the census that of test_step_sequence.py.
NOT_OPTIONS = {"envmodules", "set", "sets", "window", "budget", "error", "time_limit", "census", "detailed_kernels",
               "operations"}  # fmt: skip


def listed() -> dict[str, str]:
    """Every option that ncu's help names, by its long name, with its short one."""
    rows = [line.split() for line in (DATA / "ncu/options.txt").read_text().splitlines() if not line.startswith("#")]
    return {long: short for long, short, _ in rows}


def words(name: str = "roofline", **given: object) -> str:
    """The command line's options of a section set, with those that its plan starts from."""
    filled = config.normalise_config({"ncu": given})["ncu"]
    planned = ["--replay-mode", ncu.replay_mode(filled, name), *ncu.selection_options(filled, name)]
    return " ".join([*ncu.options(filled, name), *(planned if ncu.needs_plan(filled, name) else [])])


def test_no_key_is_left_untested() -> None:
    assert set(CHANGES) | NOT_OPTIONS == set(schema.load_schema()["properties"]["ncu"]["properties"])


@pytest.mark.parametrize(("key", "value", "expected"), [(key, *change) for key, change in CHANGES.items()])
def test_every_key_changes_the_command_line(key: str, value: object, expected: str | None) -> None:
    assert words(**{key: value}) != words()
    if expected:
        assert expected in words(**{key: value}) and expected not in words()


@pytest.mark.parametrize("name", sorted(config.normalise_config({})["ncu"]["sets"]))
def test_ncu_knows_every_option(name: str) -> None:
    given = {key: value for key, (value, _) in CHANGES.items() if key not in ("target_processes", "launches")}
    used = {word for word in words(name, **given).split() if word.startswith("--")}
    assert used <= {f"--{option}" for option in listed()} and len(used) >= 11


@pytest.mark.parametrize(
    ("launches", "present", "absent"),
    [
        ("distinct", "--filter-mode per-launch-config --launch-count 1 --kernel-name-base mangled", "--launch-skip"),
        ("all", "--nvtx-push-pop-scope process", "--launch-count"),
        (25, "--launch-count 25", "--filter-mode"),
    ],
)
def test_selection_of_launches(launches: object, present: str, absent: str) -> None:
    assert present in words(launches=launches) and absent not in words(launches=launches)


def test_a_sets_own_selection_and_cache_control_go_first() -> None:
    sets = {"mine": {"set": "basic", "launches": 3, "cache_control": "none"}}
    assert "--launch-count 3" in words("mine", sets=sets, launches="all")
    assert "--cache-control none" in words("mine", sets=sets)
    assert "--cache-control none" in words("launch") and "--cache-control all" in words("roofline")
    assert "--import-sass yes --import-source yes" in words("source") and "--import-sass no" in words("roofline")
    own = {"mine": {"set": "full", "sass": False}}
    assert "--import-sass no" in words("mine", sets=own, sass=True) and "--import-source" not in words("roofline")
    # Shared memory is always asked for once.
    own = {"mine": {"metrics": ["a.sum", ncu.SHARED_MEMORY[0]]}, "regex": {"sections": "regex:Mem.*"}}
    assert f"--metrics a.sum,{','.join(ncu.SHARED_MEMORY)}" in words("mine", sets=own)
    assert f"--section regex:Mem.* --metrics {','.join(ncu.SHARED_MEMORY)}" in words("regex", sets=own)


@pytest.mark.parametrize("replay", ["range", "app-range"])
def test_the_census_is_of_launches_whatever_the_replay(replay: str) -> None:
    every = words(replay=replay, launches="all")
    assert "--profile-from-start" not in every and "launch__shared_mem" not in every
    filled = config.normalise_config({"ncu": {"replay": replay, "launches": "all"}})["ncu"]
    assert not ncu.measures_ranges(filled, ncu.CENSUS)
    assert "--replay-mode kernel" in " ".join(ncu.options(filled, ncu.CENSUS))
    assert ncu.measures_ranges(filled, "roofline") and ncu.launch_sets(filled) == [ncu.CENSUS]


def test_a_set_measures_ranges_by_its_own_replay() -> None:
    for name, sets in {"launch": ["launch"], "roofline": ["roofline", "launch"], "ranges": ["launch"]}.items():
        assert ncu.launch_sets(config.normalise_config({"tool": "ncu", "ncu": {"set": name}})["ncu"]) == sets
    given = words("ranges", kernel_name="gemm", launches=3)
    included = " ".join(f"--nvtx-include profzoo@profzoo_{part}/" for part in ("forward", "loss"))
    assert f"--replay-mode app-range {included}" in given
    assert "--launch-count" not in given and "--kernel-name" not in given and "--profile-from-start" not in given


RANGES = "measures whole ranges: "
REFUSED = [
    ({"set": "nothing"}, "ncu.set = 'nothing': "),
    ({"replay": "range"}, f"ncu.replay = 'range' {RANGES}set ncu.launches to all, not 'sampled'"),
    ({"replay": "range", "launches": "all", "kernel_name": "x"}, f"ncu.replay = 'range' {RANGES}unset"),
    (
        {"replay": "app-range", "launches": "all", "sets": {"mine": {"set": "full", "launches": 2}}},
        f"ncu.replay = 'app-range' {RANGES}set ncu.sets.mine.launches to all, not 2",
    ),
    ({"sets": {"mine": {"cache_control": "all"}}}, "ncu.sets.mine collects nothing"),
    ({"budget": "soon"}, "ncu.budget = 'soon' is not a time: give seconds, or such as 120s, 10m or 1h"),
    ({"budget": 60, "launches": "all"}, "ncu.budget chooses among launches: set the launches of "),
    (
        {"sets": {"mine": {"set": "full", "ranges": ["step"]}}},
        "ncu.sets.mine.ranges needs range replay: set ncu.sets.mine.replay to app-range",
    ),
    (
        {"sets": {"launch": {"metrics": ["a.sum"], "replay": "app-range"}}},
        "ncu.sets.launch.replay = 'app-range': all launches are counted in it, not ranges",
    ),
    (
        {"sets": {"mine": {"metrics": ["a.sum"], "replay": "app-range", "launches": 2}}},
        f"ncu.sets.mine.replay = 'app-range' {RANGES}set ncu.sets.mine.launches to all, not 2",
    ),
    ({"target_processes": "application-only", "target_processes_filter": "x"}, "ncu.target_processes_filter choose"),
    ({"extra": ["--verbose", "-k", "x"]}, "ncu.extra holds -k, which the workflow sets itself: change ncu.kernel_"),
]


@pytest.mark.parametrize(("given", "line"), REFUSED)
def test_what_cannot_be_combined_is_refused(given: dict, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        config.normalise_config({"ncu": given})
    assert str(error.value).startswith(line)


def test_budgets_are_times() -> None:
    for budget, expected in {"120s": 120, "2m": 120, "1.5h": 5400, 30: 30, "30": 30}.items():
        assert ncu.parse_budget(config.normalise_config({"ncu": {"budget": budget}})["ncu"]["budget"]) == expected


# All options of ncu 2025.3 that a user may add: they change neither the launches that are profiled nor their numbers.
HARMLESS = {
    "port", "max-connections", "config-file", "mps-num-clients", "mps-timeout", "check-exit-code", "forward-signals",
    "injection-path-32", "injection-path-64", "preload-library", "call-stack", "call-stack-type", "support-32bit",
    "null-stdin", "app-replay-buffer", "graph-profiling", "range-replay-options", "section-folder",
    "section-folder-recursive", "apply-rules", "rule", "source-folders", "quiet", "verbose",
    "pipeline-boost-state", "rename-kernels", "rename-kernels-export", "rename-kernels-path", "disable-extra-suffixes",
    "pm-sampling-interval", "pm-sampling-buffer-size", "pm-sampling-max-passes", "warp-sampling-interval",
    "warp-sampling-max-passes", "warp-sampling-buffer-size", "print-source", "resolve-source-file", "print-details",
    "print-metric-name", "print-units", "print-metric-attribution", "print-fp", "print-kernel-base",
    "print-metric-instances", "print-nvtx-rename", "print-rule-details", "print-summary",
}  # fmt: skip


@pytest.mark.parametrize("option", sorted(listed()))
def test_every_option_of_ncu_is_allowed_or_refused_on_purpose(option: str) -> None:
    short = listed()[option]
    for word in [f"--{option}", f"--{option}=1", *([] if short == "-" else [f"-{short}", f"-{short}3"])]:
        if option in HARMLESS:
            assert config.normalise_config({"ncu": {"extra": [word]}})["ncu"]["extra"] == [word]
        else:
            with pytest.raises(ConfigError, match=r"^ncu\.extra holds --?[a-z]") as error:
                config.normalise_config({"ncu": {"extra": [word]}})
            assert "\n" not in str(error.value)


@pytest.mark.parametrize("word", ["--launch-skip", "--launch-skip-b=3", "-s", "-s5", "--range-filt", "--nvtx-ex"])
def test_options_that_shift_launches_are_refused_however_they_are_written(word: str) -> None:
    with pytest.raises(ConfigError, match="profiles other launches than the workflow expects"):
        config.normalise_config({"ncu": {"extra": [word, "1"]}})
    with pytest.raises(ConfigError) as error:
        config.normalise_config({"ncu": {"extra": ["--launch-skip", "10"]}})
    assert str(error.value) == (
        "ncu.extra holds --launch-skip, which profiles other launches than the workflow expects, so results would be "
        "matched with wrong launches; warmup says which steps come first, ncu.kernel_name which kernels count: remove it"
    )


def answering(folder: Path, text: str, code: int = 0) -> str:
    """PATH with a program called nvidia-smi before all others, which prints this."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '{text}'\nexit {code}\n")
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


DRAM = "dram__bytes_read.sum,dram__bytes_write.sum"
OF_12 = "dram__bytes_op_read.sum,dram__bytes_op_write.sum"


@pytest.mark.parametrize(
    ("said", "code", "asked"),
    [
        ("9.0\\n", 0, DRAM),
        ("12.0\\n", 0, OF_12),
        ("12.0\\n12.1\\n", 0, OF_12),
        ("9.0\\n12.0\\n", 0, f"{DRAM},{OF_12}"),
        # Drivers that do not know the question, or the answer.
        ("Field compute_cap is not a valid field to query.\\n", 2, DRAM),
        ("[N/A]\\n", 0, DRAM),
    ],
)
def test_metrics_are_asked_for_by_the_names_that_the_gpu_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: int, asked: str
) -> None:
    monkeypatch.setenv("PATH", answering(tmp_path, said, code))
    command = ["ncu", "--set", "basic", "--metrics", DRAM, "--nvtx", "--", "python", "-m", "x"]
    assert ncu.adapt_command(command, True) == [asked if word == DRAM else word for word in command]


def test_without_a_gpu_nothing_is_profiled() -> None:
    with pytest.raises(CollectError, match="ncu profiles GPUs only"):
        ncu.adapt_command(["ncu"], False)
