"""What rules say of a step, each number worked out by hand: limits by the CPU, doubts, replays, scores."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.tables import cell_tables
from profzoo.verdicts import gain_models
from profzoo.verdicts.advice_scores import ErrorBound, Score, Scores, scores_on
from profzoo.verdicts.gain_models import CellSimulation, RequestedChange
from profzoo.verdicts.rules import rule_evaluation, step_quality
from profzoo.verdicts.rules import rules as verdict_rules
from profzoo.verdicts.rules.rule_evaluation import LAYER_LEVEL, CellRules
from profzoo.verdicts.rules.rule_types import Rule
from profzoo.verdicts.rules.rules import ChosenAdvice
from profzoo.what_if.predicted_gains import Gain
from tests import known_rules, slow
from tests.known_rules import a_verdict
from tests.unit.test_verdicts import ROOFS, UNTRIED, kernel_rows, made
from tests.written_programs import BEGINS, ENDS, call, kernel, program

RULES = known_rules.load()
FLOORS = RULES["floors"]
MEMORY = next(one for one in RULES["rules"] if one["verdict"] == "memory-bound")


@pytest.mark.parametrize(
    ("wall", "host", "step", "removed", "right"),
    [
        # The CPU is busy for 4 of 10 ms; without half of its launches for 2.
        (10.0, 4.0, 10.0, 0.0, 2.5),
        (10.0, 4.0, 10.0, 0.5, 5.0),
        (10.0, 4.0, 10.0, 1.0, np.inf),
        # Of 12 ms in place of 10.
        (10.0, 12.0, 10.0, 0.0, 1.0),
        # Twice the unprofiled step is as far as it tells.
        (20.0, 4.0, 10.0, 0.0, 5.0),
        (20.1, 4.0, 10.0, 0.0, np.inf),
        (10.0, 0.0, 10.0, 0.0, np.inf),
        (10.0, np.nan, 10.0, 0.0, np.inf),
        (10.0, 0.5, 10.0, 0.0, 20.0),
    ],
)
def test_what_the_cpu_lets_through(wall: float, host: float, step: float, removed: float, right: float) -> None:
    row = {"wall_ns": wall, "host_ns": host, "step_ns": step}
    assert step_quality.cpu_limited_gain(row, 2.0, removed) == pytest.approx(right)


@pytest.mark.parametrize(
    ("row", "right", "metric"),
    [
        # A step of 10 ms whose median is 10; under nsys 10.
        ({}, 0.0, None),
        # Twice, and 1.3 times, are as much as floors allow; and 5 in 100 of the CPU.
        ({"wall_ns": 20.0}, 0.0, None),
        ({"wall_ns": 20.1}, 0.0, step_quality.STRETCH),
        ({"step_ns": 13.0}, 0.0, None),
        ({"step_ns": 16.0}, 1 - 1 / 1.6, "unprofiled step, mean / median"),
        ({"cpu_taken_share": 0.05}, 0.0, None),
        ({"cpu_taken_share": 0.06}, 0.06, "CPU time of other programs"),
        ({"cpu_taken_share": 0.2, "step_ns": 16.0}, 0.5, "CPU time of other programs"),
        ({"cpu_taken_share": np.nan}, 0.0, None),
        ({"cpu_taken_share": None}, 0.0, None),
        ({"cpu_taken_share": -1.0}, 0.0, None),
    ],
)
def test_what_puts_a_step_in_doubt(row: dict[str, Any], right: float, metric: str | None) -> None:
    step = pd.Series({"wall_ns": 10.0, "step_ns": 10.0, "step_median_ns": 10.0} | row, dtype="object")
    assert step_quality.disturbed_share(step, FLOORS) == pytest.approx(right)
    doubt = step_quality.find_doubt(step, FLOORS)
    assert (doubt.metric if doubt else None) == metric


def cell(step: pd.DataFrame) -> CellRules:
    return CellRules(step.iloc[0], {}, RULES, ROOFS, None, UNTRIED)


def test_shares_of_doubtful_steps_are_what_they_are_at_least() -> None:
    """Idle by the input for 0.9; others took half: 0.4 of 0.5. Took they all, nothing is left; kernels are what they are."""
    step = made({"idle_input": 0.9})
    assert cell(step)._told("idle_input") == (pytest.approx(0.9), True)
    found = cell(step.assign(cpu_taken_share=0.5))
    assert found._told("idle_input") == (pytest.approx(0.8), False)
    assert found._told("kernels") == (pytest.approx(0.1), True)
    assert cell(step.assign(cpu_taken_share=1.0))._told("idle_input") == (0, False)
    # Under nsys four times as long: of 3.9 ms idle 1.95 are the host's, so that of the 0.9 nothing is sure.
    longer = cell(made({"idle_input": 0.45, "idle_host": 0.45}, stretch=4))
    assert longer._told("idle_input") == (0, False)
    # Idle for 2.3 ms under nsys, 0.575 of which are of the smaller cause: of 0.8 the larger one has 0.225 at least.
    for large, small in (("idle_input", "idle_host"), ("idle_host", "idle_input")):
        apart = cell(made({large: 0.6, small: 0.2}, stretch=2.5))
        told = {name: apart._told(name) for name in (large, small)}
        assert told == {large: (pytest.approx(0.225), False), small: (0, False)}
        launching = apart._told(verdict_rules.LAUNCH_IDLE_SHARE)
        assert launching == (pytest.approx(0.225 if large == "idle_host" else 0.0), False)


def test_what_is_gained_at_most_by_launches_that_take_no_time() -> None:
    """Kernels take 0.6 of a step that waits 0.4 for launches, of which there are 1,000.

    500 of them that take half of the kernels' time: 0.3 and 0.2. All of them, or more than all: the whole step.
    """
    rows = pd.DataFrame({"total_ns": [50.0, 0.0, 100.0], "launches": [500.0, 250.0, 2000.0]})
    most = cell(made({"idle_host": 0.4})).most(rows, 100.0)
    assert most.tolist()[:2] == pytest.approx([2, 1 / 0.9]) and most.iloc[2] > 1e6
    assert cell(made({"idle_host": 0.4})).share_of(rows[:1], 100.0) == pytest.approx(0.3)
    assert cell(made({})).share_of(rows[:1], 0.0) == 0


def test_at_most_a_cure_gains_what_it_takes_of_the_most() -> None:
    """Half of 0.6 goes of what is near DRAM's roof at one end: 1 / 0.7, or what the CPU lets through."""
    rows = kernel_rows(total_ns=[60.0, 40.0]).assign(memory_most_ns=[60.0, 0.0])
    free, busy = cell(made({})), cell(made({}).assign(host_ns=0.8e6))
    assert free._potential(MEMORY, 0.6, rows) == pytest.approx(1 / 0.7)
    assert busy._potential(MEMORY, 0.6, rows) == pytest.approx(1.25)
    assert busy._potential(MEMORY | {"launches": "removed"}, 0.6, rows) == pytest.approx(1 / 0.7)
    assert free._potential(MEMORY | {"cured": "share"}, 0.6, rows) == pytest.approx(1 / 0.4)


@pytest.mark.parametrize(
    ("launches", "change", "simulated", "right"),
    # By Amdahl's law at most 1 / 0.7; a simulation that finds more does not raise that.
    [("removed", "fused", 1.3, 1.3), ("kept", "faster", 1.3, 1.3), ("changed", "faster", 1.3, 1.3),
     ("removed", "fused", 1.5, 1 / 0.7)],
)  # fmt: skip
def test_what_an_undecided_rule_may_gain_is_simulated(
    launches: str, change: str, simulated: float, right: float
) -> None:
    asked: list[tuple[Any, float]] = []

    class Replayed:
        def gain(self, one: Any, step: Any, error: float) -> Gain:
            asked.append((one, error))
            return Gain(1, 1, simulated, 1, 2)

    rows = kernel_rows(total_ns=[60.0, 40.0]).assign(memory_most_ns=[60.0, 0.0])
    judged = cell(made({}))
    judged.replayed = Replayed()  # type: ignore[assignment]
    assert judged._potential(MEMORY | {"launches": launches}, 0.6, rows) == pytest.approx(right)
    ((one, error),) = asked
    assert (one.change, one.rows["total_ns"].tolist(), one.saved.tolist(), error) == (change, [60.0], [0.5], 0.0)


@pytest.mark.parametrize(("of_step", "gain"), [(1, 1 / 0.6), (0, 1 / 0.6), (4, 1 / 0.9)])
def test_the_only_launch_of_a_step_has_all_its_waits(of_step: int, gain: float) -> None:
    """Of the 0.4 that wait for launches, one of one has all, and one of four a quarter."""
    rows = pd.DataFrame({"total_ns": [0.0], "launches": [1.0]})
    step = made({"idle_host": 0.4}).assign(launches=of_step)
    assert cell(step).most(rows, 100.0).tolist() == pytest.approx([gain])


@pytest.mark.parametrize(
    ("launches", "gain", "right", "limit"),
    # The host is busy for half of the step; without a quarter of its launches for 3/8 of it, and short ones gain 1 / 0.7.
    [("kept", 1.9, 1.9, None), ("kept", 2.0, 2.0, None), ("kept", 2.1, 2.0, 2.0), ("removed", 9.0, 1 / 0.7, None)],
)
def test_what_the_cpu_limits_is_what_gains_more(launches: str, gain: float, right: float, limit: float | None) -> None:
    step = made({}).assign(wall_ns=1e6, host_ns=0.5e6)
    rows = kernel_rows(total_ns=[50.0, 50.0]).assign(x_launches=[100.0, 150.0])
    rule = {"launches": launches, "share": "x"}
    found = cell(step)._limited(rule, a_verdict("v", gain=gain, cured=1.0), 0.3, rows)  # type: ignore[arg-type]
    assert (found.gain, found.limit) == (pytest.approx(right), limit)


@pytest.mark.parametrize(
    ("gain", "cured", "share", "limit", "settings"),
    [
        # By Amdahl's law a half of 0.8 would gain 2/3: a gain of a third is half of that, and less is held back.
        (4 / 3 + 1e-9, 0.5, 0.8, None, "x=1"),
        (4 / 3 - 1e-9, 0.5, 0.8, 4 / 3, "x=1"),
        (1.5, 0.5, 1.0, None, "x=1"),
        (1.0, 0.0, 0.8, None, "x=1"),
        (1.0, 0.5, 0.8, 1.0, "x=1"),
        (0.99, 0.0, 0.8, None, None),
        (0.99, 0.5, 0.8, 0.99, None),
        # Of a share that is not known nothing is held back.
        (1.01, 0.5, None, None, "x=1"),
    ],
)
def test_what_a_replay_changes_of_a_verdict(
    gain: float, cured: float, share: float | None, limit: float | None, settings: str | None
) -> None:
    row = a_verdict("v", cured=cured, share=share, next_step="do it", settings="x=1")
    told = rule_evaluation._adjust_texts(row, gain, gain_models.RequestedChange("faster"))
    assert told.limit == (limit if limit is None else pytest.approx(limit)) and told.settings == settings
    lead = (rule_evaluation.NO_GAIN if gain < 1 else "") + (rule_evaluation.LAUNCH_LESS if limit and gain >= 1 else "")
    assert told.next_step == f"{lead}do it"
    # What is about the step is not held back by its own launches.
    assert rule_evaluation._adjust_texts(row, gain, gain_models.RequestedChange("graph")).limit is None


def test_what_is_asked_of_a_replay() -> None:
    """Launches with the trait, and of each the part that its saving says, or all of them alike."""
    rows = pd.DataFrame({"x_ns": [100.0, 0.0, 50.0], "x_saved_ns": [25.0, 0.0, 50.0], "total_ns": 100.0, "launches": 1})
    rule = {"share": "x"}

    def parts(change: str | None, cured: Any, known: float | None, given: pd.DataFrame | None = rows) -> Any:
        asked = rule_evaluation.ask_simulation(rule, ChosenAdvice("", None, cured, change), given, known, True, {})
        return asked and (asked.change, None if asked.saved is None else asked.saved.tolist())

    assert parts("faster", "share", 0.5) == ("faster", [0.25, 1])
    assert parts("faster", 0.5, 0.5) == ("faster", [0.5, 0.5])
    assert parts("fused", "share", 0.5) == ("fused", [0.5, 0.5])
    assert parts("faster", "share", 0.5, rows.drop(columns="x_saved_ns")) == ("faster", [0.5, 0.5])
    assert parts("faster", 0.5, 0.5, rows.drop(columns="x_ns")) == ("faster", [0.5] * 3)
    assert parts(None, 0.5, 0.5) is None and parts("faster", 0.5, 0.5, None) is None
    assert parts("graph", 1, 1) == ("graph", None)


def score(**given: Any) -> Score:
    return replace(Score(9, 3, 0.1, 0.3, 0.2, 0.9, 0.3333, 0.3333), **given)


def scored(fitted: dict[str, Score], held_out: dict[str, Score] | None = None) -> Scores:
    return Scores(3, 0.5, 0.61, 0.2, fitted, held_out or {}, np.inf, gpus=("one",), gpu="one")


def test_errors_are_those_of_enough_trials_and_never_those_of_other_settings() -> None:
    assert scored({}, {"v": score()}).bound("v").error == 0.3
    few = {"v": score(trials=8), "all": score(trials=90, error=0.4)}
    assert scored({}, few).bound("v").error == 0.4
    # What was never tried has no error by trials, of whatever else there are many.
    for kind in ("w", "v + w", ""):
        assert scored({}, few).bound(kind) == ErrorBound(0.61, 0.61)
    assert scored({}, {"v": score(trials=8), "all": score(trials=8)}).bound("v") == ErrorBound(0.61, 0.61)
    # Nothing was fitted to the half that is held out.
    assert scored({"v": score(error=0.1)}, {"v": score()}).bound("v").error == 0.3


def test_only_the_upper_end_of_wide_intervals_and_of_those_that_hold_too_little_is_told() -> None:
    known = score(error=0.3, above=0.2, width=1.8, covered=0.85, largest=0.31)
    for given, right in (
        ({}, ErrorBound(0.3, 0.3, True, True)),
        ({"width": 1.81}, ErrorBound(0.3, 0.2, False, True)),
        ({"covered": 0.84}, ErrorBound(0.3, 0.2, False, True)),
    ):
        told = replace(scored({}, {"v": replace(known, **given)}), widest=1.8)
        assert told.bound("v") == right
    # Of GPUs without trials the largest error counts.
    assert scores_on("another", told).bound("v") == ErrorBound(0.31, 0.31, False, True)
    wider = replace(told, held_out={"v": known})
    assert (
        scores_on("another", wider).bound("v").whole
        and not scores_on("another", replace(wider, widest=1.71)).bound("v").whole
    )
    # Without trials, (1 + 0.61) squared is too wide.
    assert not told.bound("w").whole and replace(told, widest=2.6).bound("w").whole
    below = replace(known, width=9.0, below=0.9, covered=0.7)
    assert replace(told, held_out={"v": below}).columns("v")["covered"] == 0.9


def test_only_what_is_chosen_among_many_combinations_is_lowered() -> None:
    known = replace(scored({}, {"graph": score(), "graph + bf16": score()}), picked=1.3)
    kinds = ("graph", "graph + bf16", "graph + compile", "")
    assert [known.bound(kind).hopeful for kind in kinds] == [1.0, 1.3, 1.3, 1.0]
    # What gained more than was expected is not raised.
    assert replace(known, picked=0.9).bound("graph + bf16").hopeful == 1.0


@pytest.mark.parametrize(
    ("trials", "gain", "doubted"), [(9, 1.2, True), (9, 1.21, False), (8, 1.2, False), (9, None, False)]
)
def test_gains_that_errors_may_eat_are_doubted(trials: int, gain: float | None, doubted: bool) -> None:
    assert scored({"v": score(trials=trials)}).doubts("v", gain) == doubted
    assert not scored({"all": score()}).doubts("v", 1.0)


@pytest.mark.parametrize(
    ("given", "abstains", "said"),
    [
        ({}, True, "abstains: in trials, such advice helped 1 of 3 cells, no more than a coin would"),
        ({"advised": 2, "slowed_down": 0.5}, False, "In 9 trials, such gains were off by 10% in the median. Of 2 cells, 1 became slower."),
        ({"helped": 0.51}, False, "In 9 trials, such gains were off by 10% in the median. Of 3 cells, 1 became slower."),
        ({"helped": 1.0, "slowed_down": 0.0, "undecided": 0.6667, "constant_error": 0.2}, False,
         "In 9 trials, such gains were off by 10% in the median; the same gain for all cells would be off by 20%. "
         "Of 3 cells, 0 became slower and 2 are undecided."),
        ({"helped": 0.6667, "undecided": 0.3333}, False,
         "In 9 trials, such gains were off by 10% in the median. Of 3 cells, 1 became slower and 1 is undecided."),
        ({"advised": 0, "helped": 0.0}, False, "In 9 trials, such gains were off by 10% in the median."),
        ({"trials": 3, "advised": 1, "slowed_down": 0.0}, False, "In 3 trials, such gains were off by 10% in the median. Of 1 cell, 0 became slower; the interval is that of all settings"),
        ({"trials": 2, "advised": 1}, False, "too few trials of such advice: 2 of 3; the interval is that of all settings"),
        ({"trials": 0, "advised": 0}, False, "no trials of such advice yet"),
    ],
)  # fmt: skip
def test_what_stands_beside_a_gain(given: dict[str, Any], abstains: bool, said: str) -> None:
    known = scored({}, {"v": score(**given)})
    assert known.abstains("v") == abstains and known.columns("v")["score"] == said
    assert known.columns("w") == {"trials": 0, "score": "no trials of such advice yet"} and not known.abstains("w")


def test_why_settings_are_not_advised() -> None:
    known = scored({"a": score()})
    gains = [Gain(1, 1, gain, 1, 1) for gain in (0.99, 1.0, 1.2, 1.21)]
    said = [rule_evaluation.why_not_advised("a=1", gain, known, "else") for gain in gains]
    assert said == [rule_evaluation.SLOWER, rule_evaluation.DOUBTED, rule_evaluation.DOUBTED, "else"]
    assert rule_evaluation.why_not_advised("b=1", Gain(1, 1, 1.0, 1, 1), known, "else") == "else"


def test_a_gain_that_waits_has_its_method_and_interval() -> None:
    """By Amdahl's law with an error of a half: from 1.2 / 1.5 to 1.2 * 1.5; what the CPU limits is to launch less."""

    def told(known: Scores, **given: Any) -> Any:
        return rule_evaluation.add_expected_gain(a_verdict("v", gain=1.2, **given), None, {}, known)

    found = told(scored({}, {"a": score(error=0.5, helped=1.0)}), lead="there: ", settings="a=1")
    assert (found.gain_low, found.gain_high) == pytest.approx((0.8, 1.8)) and found.method == "Amdahl"
    assert found.next_step == "there: do"
    limited = told(scored({}), limit=1.2)
    assert limited.next_step == f"{rule_evaluation.LAUNCH_LESS}do" and limited.limit == 1.2
    unsure, sure = (told(scored({"a": score(over=over)}), settings="a=1") for over in (0.3, 0.1))
    assert unsure.settings is None and unsure.next_step == f"{rule_evaluation.UNSURE}do"
    assert sure.settings == "a=1" and sure.next_step == "do"
    # Where the interval is too wide, the gain is the most that Amdahl's law allows.
    wide = told(replace(scored({}), widest=1.8))
    assert (wide.gain, wide.gain_low, wide.gain_high) == (1.2, None, None)
    silent = told(scored({}, {"a": score()}), limit=1.1, settings="a=1")
    assert (silent.gain, silent.gain_low, silent.gain_high, silent.limit) == (None,) * 4


EVERY = verdict_rules.load_rules()["rules"]


class Hopeful(CellSimulation):
    """A simulation by which whatever is changed makes a step fifty times as fast."""

    def gain_together(self, *_: Any) -> Gain:
        return Gain(50.0, 1.0, 50.0, 40.0, 60.0)


@pytest.mark.parametrize("one", [rule for rule in EVERY if rule["of"] != "cpu"], ids=lambda one: one["verdict"])
@pytest.mark.parametrize("share", slow.first([0.12, 0.5]))
def test_no_rule_promises_more_than_its_share_allows(one: Rule, share: float) -> None:
    """Whatever a simulation says, and with each of a rule's advices; the rest of the step idles for launches by a tenth."""
    replayed = Hopeful(program([BEGINS, call(1, 1), ENDS], [kernel(1, 10)]))
    step = made(
        {"idle_host": 0.1, one["share"]: share}
        if one["of"] == "step" and one["share"] != "idle_launching"
        else {"idle_host": share}
    )
    rows = kernel_rows(total_ns=[share * 100, 100 - share * 100], launches=[50.0, 50.0])
    for ran_with in ({}, {"precision": "bf16", "graph": True, "compile": True, "workers": 4, "pin_memory": True}):
        judge = CellRules(step.iloc[0], ran_with, {**RULES, "rules": EVERY}, ROOFS, None, UNTRIED)
        judge.replayed = replayed
        name, traits = one["share"], None
        if one["of"] in ("kernels", "layers"):
            own = {f"{name}{of}": [share * 100, 0.0] for of in ("_ns", "_least_ns", "_most_ns", "_saved_ns")}
            traits = rows.assign(bound="dram", efficiency=0.8, **own, **{f"{name}_launches": [50.0, 0.0]})
            precision = str(ran_with.get("precision", "fp32"))
            traits = gain_models.add_saved_shares(traits, None, ROOFS, precision, nchw=True)
        found = judge.row(one, share, traits, LAYER_LEVEL, "e")
        asked = found.change or RequestedChange("graph")
        told = judge.expect(replace(found, change=asked))
        assert told.share is not None and told.gain and told.gain <= 1 / (1 - told.share) + 1e-9
        assert told.gain_low and told.gain_high and told.gain_high / told.gain_low == pytest.approx(1.5)
        # What is beside the rule's own share is a tenth at most, or, in lower precision, the other kernels.
        kind = asked.change in gain_models.TARGET_PRECISIONS
        assert share <= told.share <= (1.0 if kind else share + 0.1 + 1e-9) and told.value == share


@pytest.mark.parametrize(("verdict", "share"), [("transfer-bound", 0.2 + 0.1 + 0.15), ("copy-bound", 0.2 + 0.1)])
def test_copies_to_the_gpu_go_with_the_waits_for_them(verdict: str, share: float) -> None:
    name = verdict.removesuffix("-bound")
    judge = cell(made({name: 0.2, "idle_host": 0.1, "idle_synchronisation": 0.15}))
    judge.replayed = Hopeful(program([BEGINS, call(1, 1), ENDS], [kernel(1, 10)]))
    row = judge.row(next(one for one in EVERY if one["verdict"] == verdict), 0.2, None, LAYER_LEVEL, "e")
    assert judge.expect(row).share == pytest.approx(share)


def test_lower_precision_reaches_no_kernels_that_are_tried() -> None:
    """Half of the step is products in full precision, and other kernels have the rest; these are tried for four fifths."""
    rule = next(one for one in EVERY if one["verdict"] == "full precision")
    rows = kernel_rows(total_ns=[50.0, 50.0], **{"class": ["gemm", "copy"]}, mean_ns=[1e5, 1e5])
    rows = rows.assign(bound=["simt", "dram"], efficiency=0.8, tried=[0.0, 0.8], full_precision_ns=[50.0, 0.0])
    rows = gain_models.add_saved_shares(rows, None, ROOFS, "fp32", nchw=True)
    judge = cell(made({}))
    assert judge.row(rule, 0.5, rows, LAYER_LEVEL, "e").most_share == pytest.approx(0.5 + 0.5 * 0.2)


@pytest.mark.parametrize(("tried", "moved"), [(0.0, 0.5), (0.2, 0.3), (0.5, 0.0), (0.6, 0.0)])
def test_idle_time_around_what_is_tried_is_neither_launching_nor_waiting(tried: float, moved: float) -> None:
    """Without it the step is twice as fast, of which kernels that are tried have some; 0.6 of it idles."""
    shares = {**dict.fromkeys(cell_tables.PARTS, 0.0), "kernels": 0.4, "idle_host": 0.2, "idle_synchronisation": 0.4}
    replayed = SimpleNamespace(gain=lambda *_: Gain(2.0, 1.0, 2.0, 2.0, 2.0), tried_share=lambda: tried)
    found = step_quality.charge_tuning(shares, replayed, {})  # type: ignore[arg-type]
    assert found["idle_unknown"] == pytest.approx(moved) and sum(found.values()) == pytest.approx(1)
    assert found["idle_host"] == pytest.approx(0.2 * (1 - moved / 0.6)) and found["kernels"] == 0.4


def test_a_gain_within_what_the_share_allows_stays_and_tells_the_share() -> None:
    row = a_verdict("input-bound", share=0.2, most_share=0.4, gain=1.25, gain_low=1.0, gain_high=9.0)
    assert rule_evaluation.limit_gain(row) == replace(row, share=pytest.approx(0.2))
    more = rule_evaluation.limit_gain(replace(row, gain=1.6))
    assert (more.share, more.gain, more.gain_high) == (pytest.approx(0.375), 1.6, 9.0)
    for kept in (replace(row, gain=None), replace(row, share=None), replace(row, gain=0.5)):
        assert rule_evaluation.limit_gain(kept) == kept
