"""ncu's words for sets, cells, runs and processes, written out; and which sets are planned, sampled or of ranges."""

from pathlib import Path
from typing import Any

import pytest

from profzoo.config import configuration as config
from profzoo.errors import ConfigError
from profzoo.tools.kernel_signature import exclusion_expression
from profzoo.tools.ncu import command as ncu

SETS = {
    "own": {"sections": ["A", "B"], "metrics": ["x.sum", "y.sum", "x.sum"], "launches": 3},
    "pattern": {"set": "basic", "sections": "regex:^S", "cache_control": "none"},
    "parts": {"metrics": ["x.sum"], "replay": "range", "ranges": ["forward", "step"]},
}
SHARED = "launch__shared_mem_per_block_static,launch__shared_mem_per_block_dynamic"


def options(**given: Any) -> dict:
    return config.normalise_config({"ncu": {"sets": SETS} | given})["ncu"]


def test_all_words_of_a_set_of_launches() -> None:
    given = options(
        target_processes_filter="exclude:sh", devices=[0, 2], sass=True, clock_control="none", extra=["--verbose"]
    )
    assert " ".join(ncu.options(given, "own")) == (
        "--force-overwrite --target-processes all --profile-from-start off --nvtx --nvtx-push-pop-scope process "
        "--cache-control all --clock-control none --import-sass yes --import-source yes "
        "--target-processes-filter exclude:sh --devices 0,2 "
        f"--section A --section B --metrics x.sum,y.sum,{SHARED} --verbose"
    )


def test_all_words_of_a_set_of_ranges() -> None:
    assert " ".join(ncu.options(options(sass=False), "parts")) == (
        "--force-overwrite --target-processes all --replay-mode range --nvtx-include profzoo@profzoo_forward/ "
        "--nvtx-include profzoo@profzoo_step/ --nvtx --nvtx-push-pop-scope process --cache-control all "
        f"--clock-control {options()['clock_control']} --import-sass no --metrics x.sum"
    )


@pytest.mark.parametrize(("replay", "mode"), [("auto", "kernel"), ("application", "application"), ("kernel", "kernel")])
def test_words_of_the_census_that_no_plan_decides(replay: str, mode: str) -> None:
    words = " ".join(ncu.options(options(replay=replay, kernel_name="gemm"), "launch"))
    assert f"--profile-from-start off --replay-mode {mode} --kernel-name regex:gemm --nvtx " in words


@pytest.mark.parametrize(
    ("launches", "words"),
    [
        ("all", ""),
        (7, "--launch-count 7"),
        ("sampled", "--filter-mode per-launch-config --launch-count 1 --kernel-name-base mangled"),
        ("distinct", "--filter-mode per-launch-config --launch-count 1 --kernel-name-base mangled"),
    ],
)
def test_words_that_select_launches(launches: str | int, words: str) -> None:
    assert " ".join(ncu.selection_options(options(launches=launches), "pattern")) == words
    named = ncu.selection_options(options(launches=launches, kernel_name="gemm"), "pattern")
    assert " ".join(named) == f"{words} --kernel-name regex:gemm".strip()
    # A set's own selection goes before that of all.
    assert ncu.selection_options(options(launches=launches), "own") == ["--launch-count", "3"]


def test_what_is_collected() -> None:
    assert ncu.section_options(SETS["pattern"]) == ["--set", "basic", "--section", "regex:^S"]
    assert ncu.section_options(SETS["pattern"], ["z.sum"])[-2:] == ["--metrics", "z.sum"]
    assert ncu.section_options({"sections": ["A"]}) == ["--section", "A"]
    assert ncu.section_options(SETS["own"], ["y.sum", "z.sum"])[-1] == "x.sum,y.sum,z.sum"


@pytest.mark.parametrize(
    ("name", "launches", "planned", "sampled", "ranged"),
    [
        ("launch", "sampled", False, False, False),
        ("own", "sampled", True, False, False),
        ("pattern", "sampled", True, True, False),
        ("pattern", "distinct", True, False, False),
        ("parts", "sampled", False, False, True),
    ],
)
def test_which_sets_are_planned(name: str, launches: str, planned: bool, sampled: bool, ranged: bool) -> None:
    given = options(launches=launches)
    found = [check(given, name) for check in (ncu.needs_plan, ncu.samples_launches, ncu.measures_ranges)]
    assert found == [planned, sampled, ranged]


@pytest.mark.parametrize(
    ("replay", "census", "other"),
    [("range", "kernel", "range"), ("app-range", "kernel", "app-range"), ("application", "application", "application")],
)
def test_the_census_is_never_of_ranges(replay: str, census: str, other: str) -> None:
    given = options() | {"replay": replay}
    assert [ncu.replay_mode(given, name) for name in ("launch", "pattern", "parts")] == [census, other, "range"]


@pytest.mark.parametrize(
    ("census", "name", "sets"),
    [("ncu", "own", ["own", "launch"]), ("nsys", "own", ["own"]), ("ncu", "parts", ["launch"]), ("auto", "parts", [])],
)
def test_sets_whose_launches_are_counted(census: str, name: str, sets: list[str]) -> None:
    assert ncu.launch_sets(options() | {"census": census, "set": name}) == sets


CELL = {"model": "bert", "phase": "train", "compile": "none", "gpus": 1, "nodes": 1}


def test_a_cell_of_one_process_is_profiled_as_it_is_asked_for() -> None:
    given = options(kernel_name="gemm")
    assert ncu.adapt_to_cell(given, "own", CELL) == given
    assert ncu.adapt_to_cell(given, "own", CELL | {"graph": False}) == given


@pytest.mark.parametrize("other", [{"gpus": 2}, {"nodes": 2}])
def test_of_several_processes_what_communicates_is_not_replayed(other: dict) -> None:
    given = options(kernel_name="gemm")
    assert ncu.adapt_to_cell(given, "own", CELL | other) == given | {"kernel_name": exclusion_expression("gemm")}
    assert ncu.adapt_to_cell(given, "launch", CELL | other) == given


@pytest.mark.parametrize(
    ("extra", "other", "words"),
    [
        ([], {"graph": True}, ["--graph-profiling", "node"]),
        ([], {"compile": "reduce-overhead"}, ["--graph-profiling", "node"]),
        (["--verbose"], {"graph": True}, ["--verbose", "--graph-profiling", "node"]),
        (["--graph-profiling", "graph"], {"graph": True}, ["--graph-profiling", "graph"]),
        (["--verbose"], {"compile": "default"}, ["--verbose"]),
    ],
)
def test_kernels_of_graphs_are_launches(extra: list[str], other: dict, words: list[str]) -> None:
    assert ncu.adapt_to_cell(options() | {"extra": extra}, "own", CELL | other)["extra"] == words


def test_ranges_that_a_captured_step_has_not() -> None:
    given = options()
    with pytest.raises(ConfigError, match=r"ncu\.sets\.parts\.ranges holds forward, and bert replays its step"):
        ncu.adapt_to_cell(given, "parts", CELL | {"graph": True})
    # Inference has them, and so has a step that is not captured; a set of other ranges asks for none of them.
    assert ncu.adapt_to_cell(given, "parts", CELL | {"graph": True, "phase": "inference"})["sets"] == given["sets"]
    assert ncu.adapt_to_cell(given, "parts", CELL) == given
    step = options(sets={"parts": {"metrics": ["x.sum"], "replay": "range", "ranges": ["step"]}})
    assert ncu.adapt_to_cell(step, "parts", CELL | {"graph": True})["sets"] == step["sets"]


RANKS = "python -m profzoo.collect.profile_ranks"
MADE = {"report": Path("r/x.ncu-rep"), "more": Path("r/more")}


@pytest.mark.parametrize(
    ("words", "made", "processes", "command"),
    [
        ("--set full", MADE, 1, "ncu --set full --export r/x.ncu-rep"),
        ("--set full", MADE, 2, "python -m profzoo.collect.profile_ranks first ncu --set full --export r/x.ncu-rep --"),
        (
            "--set full",
            MADE | {"ranks": Path("r/ranks")},
            2,
            "python -m profzoo.collect.profile_ranks all ncu --set full --export r/ranks/%h.%q{RANK} --",
        ),
        ("-c 1 --in-all --set full", MADE, 1, "ncu -c 1 --set full --export r/x.ncu-rep"),
        ("--metrics a --in-all --metrics a,b --nvtx", MADE, 1, "ncu --metrics a --nvtx --export r/x.ncu-rep"),
        (
            "-c 1 --then -c 2 --in-all --set full",
            MADE,
            1,
            "python -m profzoo.tools.ncu.multi_run r/more -c 1 --then -c 2 --in-all ncu --set full --export r/x.ncu-rep --",
        ),
    ],
)
def test_ncu_around_a_program(words: str, made: dict, processes: int, command: str) -> None:
    assert " ".join(ncu.wrap_command(words.split(), made, processes)) == command


def test_words_of_each_run() -> None:
    words = "-c 1 --then -k x -c 2 --then -c 3 --in-all --set full"
    assert ncu.run_options(words.split()) == [["-c", "1"], ["-k", "x", "-c", "2"], ["-c", "3"]]
    assert ncu.run_options(["-c", "1", "--set", "full"]) == [["-c", "1", "--set", "full"]]
    assert ncu.run_options(["-c", "1", "--in-all", "--set", "full"]) == [["-c", "1"]]


def test_what_a_run_leaves(tmp_path: Path) -> None:
    assert ncu.output_files(MADE) == [MADE["report"]] and ncu.output_files(MADE | {"ranks": Path("r")}) == []
    more = tmp_path / "more"
    for _ in range(2):
        # The second time it is there already.
        ncu.arrange_outputs({"report": tmp_path / "x", "more": more})
        assert more.is_dir()
    ncu.arrange_outputs({"report": tmp_path / "x"})
    assert sorted(tmp_path.iterdir()) == [more]


@pytest.mark.parametrize(("error", "fits"), [("0.1%", True), ("0.09%", False), ("100%", True), ("101%", False)])
def test_errors_from_a_thousandth_to_the_whole(error: str, fits: bool) -> None:
    given = options() | {"error": error}
    if fits:
        assert ncu.check_settings(given) == given
    else:
        with pytest.raises(ConfigError, match=r"give 0\.1% to 100%"):
            ncu.check_settings(given)


def test_a_budget_asks_for_a_choice_of_launches() -> None:
    """The census is always of all of them; a set of ranges has none."""
    sets = {"launch": {"metrics": ["x.sum"], "launches": "all"}, "parts": SETS["parts"], "own": {"set": "full"}}
    given = {**options(), "sets": sets, "set": "own"}
    for launches in ("sampled", "distinct"):
        assert ncu.check_settings(given | {"budget": 60, "launches": launches})
    with pytest.raises(ConfigError, match=r"set the launches of ncu\.sets\.own to sampled or distinct, not 'all'"):
        ncu.check_settings(given | {"budget": 60, "launches": "all"})
    assert ncu.check_settings(given | {"budget": None, "launches": "all"})


def test_filters_of_processes_need_child_processes() -> None:
    alone, chosen = {"target_processes": "application-only"}, {"target_processes_filter": "x"}
    assert ncu.check_settings(options() | alone) and ncu.check_settings(options() | chosen)
    with pytest.raises(ConfigError, match=r"set ncu\.target_processes to all"):
        ncu.check_settings(options() | alone | chosen)


def test_what_sets_of_ranges_cannot_take() -> None:
    """A replay of a set's own leaves what is said of launches in general to the others."""
    only = {**options(), "sets": {"own": {"set": "full"}}, "set": "own", "replay": "range"}
    with pytest.raises(ConfigError, match=r"^ncu\.replay = 'range' measures whole ranges: set ncu\.launches to all, "):
        ncu.check_settings(only | {"launches": "sampled"})
    assert ncu.check_settings(only | {"launches": "all"})
    with pytest.raises(ConfigError, match=r"unset ncu\.kernel_name"):
        ncu.check_settings(only | {"launches": "all", "kernel_name": "x"})
    with pytest.raises(ConfigError, match=r"set ncu\.sets\.own\.launches to all, not 2"):
        ncu.check_settings(only | {"launches": "all", "sets": {"own": {"set": "full", "launches": 2}}})
    own = only | {"replay": "kernel", "sets": {"own": {"set": "full", "replay": "range"}}}
    assert ncu.check_settings(own | {"launches": "sampled", "kernel_name": "x"})
    with pytest.raises(ConfigError, match=r"^ncu\.sets\.own\.replay = 'range' measures .* set ncu\.sets\.own\.launch"):
        ncu.check_settings(own | {"sets": {"own": {"set": "full", "replay": "range", "launches": "sampled"}}})
