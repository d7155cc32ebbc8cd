"""Which ranges of a program made elsewhere are its steps: for both tools, by other names, threads and orders."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.foreign_reports import nsys_import, steps, torch_import
from profzoo.foreign_reports.steps import Steps, Work, find_steps
from profzoo.io.scripts import read_json
from profzoo.tools.nsys.events.intervals import find_open
from tests import slow
from tests.traced_programs import Foreign

# Four steps of 10 ms: two kernels forward, two backward, one of the optimizer, of 0.5 ms each.
COUNT, PERIOD = 4, 10_000
PLACES = {"mm": 200, "relu": 1200, "mm_b": 2300, "relu_b": 3300, "adam": 4500}
PARTS = {"forward": (100, 2100), "backward": (2200, 4200), "optimizer": (4300, 5300)}
TOOLS = ("torch", "nsys")
# Names of ranges around the optimizer, or beside the steps, that hold too little, and of operators.
OF_OPTIMIZER = ("## optimizer_step ##", "opt.step()", "lr_scheduler.step", "Adam.step 3", "log_step",
                "aten::batch_norm", "aten::batch_norm, op_id = 2", "nccl:batch_isend_irecv",
                "forward_step", "save checkpoint of iteration", "clip_step")  # fmt: skip


def program(names: dict[str, str], around: str = "", inner: str = "", threads: bool = False) -> Foreign:
    """A program of COUNT steps whose parts have these names, with a range around each step and around each kernel.

    threads: the backward pass is launched by another thread.
    """
    made = Foreign()
    for step in range(COUNT):
        zero = step * PERIOD
        if around:
            made.range(around.format(step), zero, zero + 9000)
        for part, (start, end) in PARTS.items():
            if part in names:
                made.range(names[part].format(step), zero + start, zero + end)
        for name, at in PLACES.items():
            if inner:
                made.range(inner.format(step), zero + at - 60, zero + at + 160)
            made.launch(name, zero + at, thread=2 if threads and name.endswith("_b") else 1)
    return made


@pytest.fixture
def found(tmp_path: Path, recording: Callable) -> Callable[..., dict]:
    """Imports a program by a tool; returns what its sidecar says, with the number of launches in steps."""

    def take(tool: str, made: Foreign, step: str | None = None) -> dict:
        said: list[str] = []
        sidecar = str(tmp_path / "s.json")
        if tool == "torch":
            made.as_torch(source := tmp_path / "t.json")
            outputs = {name: str(tmp_path / name) for name in ("operators", "trace")} | {"sidecar": sidecar}
            torch_import.main(str(source), "run7", step, outputs, said.append)
        else:
            (tmp_path / "a.sqlite").unlink(missing_ok=True)
            made.as_nsys(source := tmp_path / "a.sqlite", recording("nsys/train.sqlite"))
            nsys_import.main(
                str(source), "run7", step, {"sqlite": str(tmp_path / "b"), "sidecar": sidecar}, said.append
            )
        return read_json(sidecar)["imported"] | {"said": said}

    return take


def test_names_of_parts_and_operators_are_none_of_steps() -> None:
    called = ["eval_step", "log_steps", "batch", "Iter 3", "profzoo:step", "DeepSpeedEngine.step"]
    expected = [False] * 11 + [True, False, True, True, False, True]
    assert [steps._is_step(name) for name in (*OF_OPTIMIZER, *called)] == expected


@pytest.mark.parametrize(("tool", "name"), [("torch", "opt.step()"), ("nsys", "aten::batch_norm, op_id = 2")])
def test_a_range_of_a_part_is_no_step(found: Callable, tool: str, name: str) -> None:
    told = found(tool, program({"forward": "fwd", "optimizer": name}))
    assert told["steps_from"] == "repetition: the same 5 launches over and over"
    # From one step to the next are 10 ms, also where the trace ends before the last one.
    assert told["wall_ns"] == [PERIOD * 1000] * COUNT
    assert not any("in no step" in line for line in told["coverage"])


@pytest.mark.parametrize(
    ("tool", "around", "names", "inner"),
    [
        pytest.param("torch", "iteration{}", {"optimizer": "opt.step()"}, "", marks=pytest.mark.slow),
        pytest.param(
            "torch", "train_step", dict.fromkeys(["forward", "backward"], "micro_batch"), "", marks=pytest.mark.slow
        ),
        ("nsys", "train_step", dict.fromkeys(PARTS, "micro step"), "batch"),
        ("torch", "Step {}", {part: f"{part}_step" for part in PARTS}, ""),
        ("torch", "[pl][profile]run_training_batch", {"optimizer": "[pl]Adam.optimizer_step"}, "iter {}"),
        ("nsys", "train_batch, op_id = {}", {}, "aten::batch_norm, op_id = {}"),
    ],
)
def test_the_outermost_ranges_that_hold_nearly_all_are_steps(
    found: Callable, tool: str, around: str, names: dict, inner: str
) -> None:
    told = found(tool, program(names, around, inner, threads=True))
    assert told["steps_from"] == f"the ranges {around.format(0)}"
    assert told["wall_ns"] == [9_000_000] * COUNT and told["coverage"] == []


@pytest.mark.parametrize("tool", slow.first(TOOLS))
def test_a_step_that_the_trace_cuts_off_is_left_out_alone(found: Callable, tool: str) -> None:
    made = program({"optimizer": "opt.step()"}, "iteration{}")
    made.ranges = [one for one in made.ranges if one[0] != "iteration3"]
    told = found(tool, made)
    assert told["steps_from"] == "the ranges iteration0" and len(told["wall_ns"]) == 3
    assert [line for line in told["coverage"] if "5 of 20 launches (25.0% of GPU time) are in no step" in line]


@pytest.mark.parametrize("tool", slow.first(TOOLS))
def test_what_was_passed_over_is_named_and_can_be_asked_for(found: Callable, tool: str) -> None:
    made = program({"optimizer": "eval_step"})
    (line,) = found(tool, made)["coverage"]
    # They hold 4 of 20 kernels; one of the four before the first may be of a step that was cut off.
    assert line.startswith("the ranges eval_step: not taken for steps, as they hold 21% of what was launched")
    assert "step='eval_step'" in line
    told = found(tool, made, "eval_step")
    assert told["steps_from"] == "the ranges eval_step" and told["wall_ns"] == [1_000_000] * COUNT


def test_several_passes_of_one_update_are_one_step(found: Callable) -> None:
    made = program({"optimizer": "Optimizer.step#SGD.step"})
    for step in range(COUNT):
        for at in (100, 2200):
            made.range("DistributedDataParallel.forward", step * PERIOD + at, step * PERIOD + at + 900)
    told = found("torch", made)
    assert told["steps_from"].startswith("Optimizer.step") and told["wall_ns"] == [PERIOD * 1000] * (COUNT - 1)


def on_cpu(made: Foreign, folder: Path, gpu: bool = False) -> tuple[dict, list[dict]]:
    """What is told of a program's trace, and its events, without those of a GPU where there is none."""
    events = [one for one in made.events() if gpu or one["cat"] in ("cpu_op", "user_annotation")]
    (folder / "t.json").write_text(json.dumps({"traceEvents": events}))
    outputs = {name: str(folder / name) for name in ("operators", "trace", "sidecar")}
    torch_import.main(str(folder / "t.json"), "run7", None, outputs, lambda line: None)
    return read_json(outputs["sidecar"])["imported"], events


def test_on_a_cpu_steps_hold_nearly_all_operators(tmp_path: Path) -> None:
    told, _ = on_cpu(program({"optimizer": "eval_step"}, "batch {}"), tmp_path)
    assert told["steps_from"] == "the ranges batch 0"


@pytest.mark.parametrize(("inside", "step"), [(4, True), (3, False)])
def test_steps_hold_four_fifths(inside: int, step: bool) -> None:
    """Of each period of 10 ns, `inside` of 5 launches of 1 ns are in a range."""
    ranges = pd.DataFrame({"name": "step", "start": np.arange(6) * 10, "ns": inside, "process": 1, "thread": 1})
    made = (np.arange(6)[:, None] * 10 + np.arange(5)).ravel()
    work = Work(made, np.ones(30, dtype=np.int64), np.ones(30, dtype=np.int64))
    launches = pd.DataFrame({"name": [f"k{at}" for at in range(30)], "category": "kernel", "begin": made, "made": made})
    found: Steps = find_steps(ranges, launches, (0, 60), work)
    assert found.whole != step and (found.passed == "") == step


@pytest.mark.parametrize(
    ("launched", "ends", "right"),
    [
        # Two steps of 10 ns on the host. Their work ends late, early, at once with it, or is launched with the next one.
        ([1, 11], [30, 70], [30, 40]),
        ([11, 1], [70, 30], [30, 40]),
        ([1, 11], [5, 15], [10, 10]),
        ([], [], [10, 10]),
        ([10], [50], [10, 40]),
        ([9], [50], [50, 0]),
        ([20], [50], [10, 10]),
        # What was launched first may end last; before the first step it ends within it.
        ([1, 2], [30, 20], [30, 0]),
        ([-5, 1], [4, 30], [26, 0]),
        ([-5], [-2], [10, 10]),
    ],
)
def test_what_the_gpu_takes_of_steps(launched: list[int], ends: list[int], right: list[int]) -> None:
    spans = np.array([[0, 10], [10, 20]])
    given = (np.array(numbers, dtype=np.int64) for numbers in (launched, ends))
    assert steps.gpu_step_ns(spans, *given).tolist() == right


def test_steps_hold_their_beginning_and_not_their_end() -> None:
    moments = np.array([-1, 0, 9, 10, 19, 20, 29, 30])
    spans = np.array([[0, 10], [20, 30]])
    inside = [False, True, True, False, False, True, True, False]
    assert steps.in_steps(moments, spans).tolist() == inside
    assert find_open(moments, spans[:, 0], spans[:, 1]).tolist() == [-1, 0, 0, -1, -1, 1, 1, -1]


@pytest.mark.parametrize(
    ("names", "edges"),
    [
        ("abcd" * 3, [0, 4, 8, 12]),
        # Twice may be chance, and three launches a loop; six of them are not.
        ("abcd" * 2, []),
        ("abc" * 4, []),
        ("abc" * 6, [0, 6, 12, 18]),
        # What comes before is at most a tenth, and what is cut off at the end ends in no edge.
        ("x" + "abcd" * 3, [1, 5, 9, 13]),
        ("xy" + "abcd" * 3, []),
        ("xy" + "abcd" * 5, [2, 6, 10, 14, 18, 22]),
        ("abcd" * 3 + "ab", [0, 4, 8, 12]),
        ("abcd" * 3 + "x", []),
        # Of layers within a step, the step: ab ab ab cd.
        ("abababcd" * 3, [0, 8, 16, 24]),
        ("", []),
    ],
)
def test_sequences_that_repeat(names: str, edges: list[int]) -> None:
    assert steps.find_repetition(np.array([*names], dtype="<U1")).tolist() == edges


def test_repeated_launches_last_until_the_next_or_as_long_as_most() -> None:
    """Begins at 0, 10 and 30, so that 15 ns are usual; the last one launches until 44, or 50."""
    launches = pd.DataFrame({"begin": [0, 2, 10, 12, 30, 32], "made": [1, 3, 11, 13, 31, 33]})
    cut = steps._repeated(launches, np.array([0, 2, 4, 6]))
    assert cut.tolist() == [[0, 10], [10, 30], [30, 45]]
    late = steps._repeated(launches.assign(made=[1, 3, 11, 13, 31, 50]), np.array([0, 2, 4, 6]))
    assert late.tolist() == [[0, 10], [10, 30], [30, 51]]
    # Of 10, 10 and 40 ns most are 10, and 20 is none of them.
    most = pd.DataFrame({"begin": [0, 10, 20, 60], "made": [1, 11, 21, 61]})
    assert steps._repeated(most, np.arange(5)).tolist() == [[0, 10], [10, 20], [20, 60], [60, 70]]
    followed = steps._repeated(launches, np.array([0, 2, 4]))
    assert followed.tolist() == [[0, 10], [10, 30]]


def work(*rows: tuple[int, int, object]) -> Work:
    made, ns, threads = zip(*rows, strict=True) if rows else ((), (), ())
    return Work(np.array(made, dtype=np.int64), np.array(ns, dtype=np.int64), np.array(threads, dtype=object))


@pytest.mark.parametrize(
    ("rows", "several", "share"),
    [
        # Spans from 0 to 10 and from 20 to 30; times at 0 and 20 are within, at 10 and 30 are not.
        ([(0, 4, 1), (20, 4, 1)], True, 1.0),
        ([(0, 4, 1), (10, 2, 1), (20, 4, 1)], True, 0.8),
        # 3 ns of a step that is cut off do not count; of 6, a whole step's 4 do not.
        ([(0, 4, 1), (20, 4, 1), (30, 3, 1)], True, 1.0),
        ([(0, 4, 1), (20, 4, 1), (30, 6, 1)], True, 0.8),
        ([(-1, 6, 1), (0, 4, 1), (20, 4, 1)], True, 0.8),
        ([(-1, 5, 1), (0, 4, 1), (20, 3, 1), (31, 5, 1)], True, 7 / 9),
        ([(0, 4, 1), (20, 4, 1), (30, 2, 1)], False, 0.8),
        # Where nothing took time, launches count.
        ([(0, 0, 1), (10, 0, 1), (20, 0, 1), (21, 0, 1)], True, 0.75),
        ([(-1, 4, 1)], True, 0.0),
    ],
)
def test_the_share_of_work_in_steps(rows: list, several: bool, share: float) -> None:
    spans = np.array([[0, 10], [20, 30]])
    assert steps.held_share(spans, work(*rows), several) == pytest.approx(share)


def marked(*rows: tuple[int, int, object]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["start", "ns", "thread"]).assign(name="step", process=1)


def test_spans_of_ranges_in_a_row_and_in_one_another() -> None:
    made = work((1, 5, 1), (11, 5, 1), (12, 2, 2))
    ranges = marked((0, 10, 1), (2, 3, 1), (9, 11, 1), (30, 0, 1), (40, 5, 1), (0, 50, 2))
    # 2 to 5 is inside the first; that ends behind the second's beginning; one of no length is none.
    assert steps._outermost(ranges, made).tolist() == [[0, 9], [9, 20], [40, 45]]
    assert steps._between(ranges, made, (0, 99)).tolist() == [[0, 9], [9, 40], [40, 99]]
    assert steps._behind(ranges, made).tolist() == [[9, 20], [20, 45]]
    assert steps._between(ranges[:2], made, (0, 99)).tolist() == steps._behind(ranges[:2], made).tolist() == []
    # Of one that begins with another the longer one, and one that ends with another is inside it.
    assert steps._outermost(marked((0, 5, 1), (0, 10, 1), (4, 6, 1)), made).tolist() == [[0, 10]]
    assert steps._outermost(ranges[:0], made).tolist() == []


def test_the_thread_of_ranges_is_the_one_that_launches_most() -> None:
    ranges = marked((0, 10, 1), (0, 10, 2), (5, 10, 2), (0, 10, 3))
    assert steps._thread(ranges, work((0, 5, 1), (1, 3, 1), (2, 7, 2), (3, 99, 9))) == 1
    # Of equal ones, that with most ranges.
    assert steps._thread(ranges, work((0, 5, 1), (1, 5, 2))) == 2
    assert steps._thread(ranges, work((0, 5, 9))) == 2 and steps._thread(ranges[:0], work((0, 5, 1))) is None


@pytest.mark.parametrize(
    ("own", "others", "kept"), [(1, 9, True), (1, 10, False), (0, 0, True), (5, 0, True), (0, 1, False)]
)
def test_steps_are_of_a_thread_that_launches_a_tenth_of_them(own: int, others: int, kept: bool) -> None:
    """Work outside of the spans does not count; of threads that are not known nothing is asked."""
    spans, ranges = np.array([[0, 10]]), marked((0, 10, 1))
    rows = [(1, own, 1), (2, others, 2), (50, 99, 1)]
    assert steps._launching(spans, ranges, work(*rows)).tolist() == ([[0, 10]] if kept else [])
    for unknown in ("", 0):
        nameless = work(*((made, ns, unknown) for made, ns, _ in rows))
        assert not nameless.known() and steps._launching(spans, ranges, nameless).tolist() == [[0, 10]]
    assert work(*rows).known() and work((1, 1, ""), (2, 1, "7")).known() and not work().known()


def test_only_first_and_last_spans_are_left_out_where_nothing_was_launched() -> None:
    spans = np.array([[0, 10], [10, 20], [20, 30], [30, 40], [40, 50]])
    assert steps._working(spans, np.array([39, 10])).tolist() == [[10, 20], [20, 30], [30, 40]]
    assert steps._working(spans, np.array([50, -1])).tolist() == []
    assert steps._working(spans, np.array([0, 40])).tolist() == spans.tolist()


def test_of_several_names_the_most_frequent_counts() -> None:
    ranges = pd.DataFrame({"name": ["Optimizer.step#A", "Optimizer.step#B", "Optimizer.step#B", "x", "x", "x"]})
    assert steps._of_one_name(ranges, steps.OPTIMIZER).index.tolist() == [1, 2]
    assert steps._of_one_name(ranges, "nothing").empty
    assert steps._known(ranges.assign(name=["a 1", "a 2", "b", "profzoo:window", "c", "c"])).startswith(
        "it has a # (2), c (2), b (1)"
    )
    assert steps._known(ranges[:0]) == "it has no ranges at all"


NS = steps.ROUNDING_NS


@pytest.mark.parametrize(
    ("span", "right"),
    [
        # What is known lasts from 100,000 to 200,000, and from 300,000 to 400,000.
        ((0, 100_000), (0, 100_000)),
        ((0, 100_000 + NS), (0, 100_000)),
        ((0, 100_001 + NS), None),
        ((200_000, 300_000), (200_000, 300_000)),
        ((200_000 - NS, 300_000 + NS), (200_000, 300_000)),
        ((199_999 - NS, 250_000), None),
        ((250_000, 300_001 + NS), None),
        ((120_000, 150_000), None),
        ((50_000, 250_000), None),
        ((400_000, 500_000), (400_000, 500_000)),
        ((400_000 - NS, 500_000), (400_000, 500_000)),
        # Nothing is left of what is as short as clocks are rounded by.
        ((200_000 - NS, 200_000), None),
    ],
)
def test_parts_that_are_free(span: tuple[int, int], right: tuple[int, int] | None) -> None:
    kept = pd.DataFrame({"name": "forward", "start": [300_000, 100_000], "end": [400_000, 200_000], "found_by": ""})
    found = pd.DataFrame({"name": ["loss"], "start": [span[0]], "end": [span[1]], "found_by": ""})
    free = steps._keep_free(found, kept)
    assert [tuple(row) for row in free[["start", "end"]].to_numpy().tolist()] == ([right] if right else [])
    assert steps._keep_free(found, kept[:0]).equals(found)


def test_parts_by_names_and_by_nodes_of_autograd() -> None:
    """Of ranges in one another the outer one counts, and one that meets the next is cut off; nodes count by steps."""
    ranges = pd.DataFrame({"name": ["fwd", "Forward_Pass", "optim", "nothing", "criterion"],
                           "start": [0, 10, 60, 0, 55], "ns": [50, 20, 30, 99, 10]})  # fmt: skip
    engine = steps.ENGINE
    nodes = pd.DataFrame({"name": [f"{engine}A", f"{engine}B", "aten::mm", f"{engine}C", f"{engine}D"],
                          "start": [105, 120, 101, 190, 200], "ns": [5, 30, 90, 20, 5]})  # fmt: skip
    found = steps.find_parts(ranges, nodes, np.array([[0, 100], [100, 200]]))
    assert found[["name", "start", "end"]].to_numpy().tolist() == [
        ["forward", 0, 50], ["loss", 55, 60], ["optimizer", 60, 90], ["backward", 105, 210]
    ]  # fmt: skip
    assert found["found_by"].tolist() == ["the program's own ranges"] * 3 + ["nodes of autograd"]
    # A node that begins a step is in it, and one at its end is of the next one.
    split = steps._backward(nodes, np.array([[100, 190], [190, 200], [200, 300]]))
    assert split[["start", "end"]].to_numpy().tolist() == [[105, 150], [190, 210], [200, 205]]


@pytest.mark.parametrize("on_gpu", slow.first([False, True]))
def test_a_whole_trace_lasts_from_its_first_event_to_its_last(on_gpu: bool, tmp_path: Path) -> None:
    """A range begins 3 us before the first call; on a CPU operators alone are left, the last of which ends it."""
    made = Foreign()
    made.range("warm", 7, 12)
    for name, at in (("mm", 10), ("relu", 40), ("adam", 90)):
        made.launch(name, at)
    told, events = on_cpu(made, tmp_path, on_gpu)
    timed = [one for one in events if one.get("ph") == "X"]
    last = max(one["ts"] + one["dur"] for one in timed)
    assert told["steps_from"] == "the whole trace"
    assert told["wall_ns"] == [round(1000 * (last - min(one["ts"] for one in timed)))]
