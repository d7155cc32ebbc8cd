"""Expected gains of verdicts: of traced steps run again where there is a trace, by Amdahl's law where there is none."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.fusion import gains
from profzoo.range_names import PARTS
from profzoo.verdicts import advice_scores, gain_models
from profzoo.verdicts.advice_scores import ErrorBound
from profzoo.verdicts.causes import verdicts
from profzoo.verdicts.gain_models import CellSimulation, RequestedChange
from profzoo.verdicts.rules import rule_evaluation
from profzoo.verdicts.rules import rules as verdict_rules
from profzoo.verdicts.rules.cell_facts import CellFacts, NotedFacts
from profzoo.verdicts.rules.rule_evaluation import CellRules
from profzoo.verdicts.verdict import Verdict
from profzoo.what_if import tables
from profzoo.what_if.dependencies import NOTHING
from profzoo.what_if.loading import HANDOVER_NS, Loading
from profzoo.what_if.program import Program, process_number
from profzoo.what_if.trace_events import COPY
from tests import known_rules, launched, simulated, slow
from tests.known_rules import a_verdict
from tests.simulated import Act
from tests.unit.test_verdicts import ROOFS, UNTRIED, held
from tests.unit.test_verdicts import made as a_step

RULES = known_rules.load()
CELL = ("m", "train")
LAUNCH = Act("kernel", 0, "forward", 3e3, 4e3, ns=5e4)


def steps(inside: Sequence[Act], count: int = 5) -> list[Act]:
    acts = []
    for step in range(count):
        acts += [Act("begin", step), *(replace(act, step=step) for act in inside), Act("end", step, before=1e3)]
    return acts


def simulation(acts: Sequence[Act], folder: Path) -> tuple[Program, float]:
    """The program of what a simulated CPU does, and ns of its step."""
    recording = simulated.simulate(list(acts))
    (program,) = tables.read_programs(simulated.record(recording, folder / "t.sqlite", True))
    return program, recording.step_ns()


PEAKS = {"fp32": 50.0, "tf32": 500.0, "bf16": 1000.0}
UNCOUNTED = {"bound": "", "efficiency": float("nan")}
SIMT, DRAM = {"bound": "simt", "efficiency": 0.5}, {"bound": "dram", "efficiency": 0.8}
AT_BOTH = {"bound": "simt", "efficiency": 0.5, "roof_simt_ns": 5e4, "roof_dram_ns": 4e4}


def kernels(program: Program) -> pd.DataFrame:
    """The table of kernels of a program's launches."""
    table = launched.configurations(program)
    return table.assign(model="m", phase="train", function=table["mangled"], kernel=table["mangled"],
                        multiprocessors=1, **{"class": "gemm"})  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Steps of ten launches of 50 us, one after the other: the GPU is the limit."""
    return simulation(steps([LAUNCH] * 10), tmp_path_factory.mktemp("replayed"))[0]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Program, float]:
    """Steps of thirty launches of 2 us, one every 7 us: the CPU is the limit."""
    return simulation(steps([replace(LAUNCH, ns=2e3)] * 30), tmp_path_factory.mktemp("small"))


def faster(rows: pd.DataFrame, part: Any, change: str = "faster") -> RequestedChange:
    return RequestedChange(change, rows, pd.Series(part, rows.index, dtype="float64"))


def judged(program: Program, step: pd.DataFrame, efficiency: Sequence[float] = (), **given: Any) -> pd.DataFrame:
    """The verdicts on its cell, whose kernels come as near to SIMT's roof as given, in the order of the table."""
    rows = kernels(program)
    roofs = held(list(efficiency), ["simt"] * len(rows)) if len(efficiency) else None
    step = step.assign(process=process_number(program.process))
    programs = {CELL: {process_number(program.process): program}}
    ran_with = given.pop("ran_with", {})
    found = verdicts.tabulate_verdicts(
        step, rows, roofs, ROOFS, {}, ran_with, RULES, None, programs, **{"scored": UNTRIED, **given}
    )
    return known_rules.keep_to_amdahl(found)


def test_every_change_that_rules_name_can_be_made() -> None:
    of_trace = verdict_rules.SHARES["trace"]
    of_step, of_noted = (
        [name for name in verdict_rules.SIMULATED_CHANGES[of] if name not in of_trace] for of in ("step", "noted")
    )
    named = [*of_step, *of_trace, *of_noted]
    # No rule names the pauses all together, which are what is left out of the idle time of launches.
    assert (*named, gain_models.WITHOUT_HOST_PAUSES) == tuple(gain_models.STEP_CHANGES)
    assert verdict_rules.SIMULATED_CHANGES["kernels"] == gain_models.LAUNCH_CHANGES
    assert all("replay" in rule for rule in RULES["rules"] if rule["cured"] and rule["of"] not in ("trace", "cpu"))


def test_a_graph_is_worth_what_the_replay_says(small: tuple[Program, float]) -> None:
    """Launched every 7 us, kernels of 2 us run back to back as a graph, which no share of idleness tells."""
    program, step_ns = small
    step = a_step({"idle_host": 0.6})
    (row, *_) = judged(program, step).to_dict("records")
    assert (row["verdict"], row["method"], row["score"]) == ("launch-bound", "replay", advice_scores.UNSCORED)
    assert row["gain"] == pytest.approx(step_ns / (30 * 3e3), rel=0.1)
    assert row["gain_low"] < row["gain"] / 1.5 and row["gain"] * 1.5 < row["gain_high"]
    rows = kernels(program)
    (without, *_) = verdicts.tabulate_verdicts(step, rows, None, {}, {}, {}, RULES, scored=UNTRIED).to_dict("records")
    assert without["method"] == "Amdahl" and without["gain"] == pytest.approx(2.5)
    assert without["gain_low"] == pytest.approx(2.5 / 1.61) and without["gain_high"] == pytest.approx(2.5 * 1.61)


@pytest.mark.parametrize(("ns", "gains"), slow.first([(5e5, True), (4e3, False)]))
def test_faster_kernels_gain_where_the_gpu_is_the_limit(tmp_path: Path, ns: float, gains: bool) -> None:
    group, other = replace(LAUNCH, ns=ns, group=1), replace(LAUNCH, ns=ns, group=2)
    acts = [group, group, group, other] * 5
    program, step_ns = simulation(steps(acts), tmp_path)
    table = judged(program, a_step({}), [0.8, 0.1])
    (row, *_) = table[table["verdict"] == "compute-bound (SIMT)"].to_dict("records")
    # Four fifths and a tenth of their time at the roof, on tensor cores that are ten times as fast and reach 0.8 of it.
    left = {group: gain_models.BEGINNING_NS["tf32"] + ns * at / 10 / 0.8 for group, at in ((1, 0.8), (2, 0.1))}
    if gains:
        changed = simulated.simulate(steps([replace(act, ns=left[act.group]) for act in acts])).step_ns()
        assert row["gain"] == pytest.approx(step_ns / changed, rel=0.1) and row["gain"] > 6
        assert pd.isna(row["limit"]) and row["settings"] == "precision=tf32"
    else:
        assert row["gain"] == pytest.approx(1, abs=0.01) == row["limit"]
        assert row["next_step"].startswith(rule_evaluation.LAUNCH_LESS)


def loaded(folder: Path) -> tuple[Program, float]:
    """Steps that load for 1.5 ms, copy the batch for 0.2 ms, and launch ten kernels of 50 us; and ns of one."""
    batch = [Act("other", 0, "data", 1.5e6, 500), Act("copy", 0, "transfer", 3e3, 5e3, ns=2e5)]
    return simulation(steps([*batch, *[LAUNCH] * 10]), folder)


def test_workers_need_time_for_the_batch_of_a_step(tmp_path: Path) -> None:
    """A step is no shorter than a batch over the number of workers, whatever is saved; copies of batches stay."""
    program, step_ns = loaded(tmp_path)
    rest_ns = simulated.simulate(steps([Act("copy", 0, "transfer", 3e3, 5e3, ns=2e5), *[LAUNCH] * 10])).step_ns()
    replayed = CellSimulation(program)

    def gain(workers: int, *others: str, **given: Any) -> Any:
        asked = [RequestedChange("input_ready", workers=workers, **given), *map(RequestedChange, others)]
        found = replayed.gain_together(asked, a_step({}).iloc[0], 0.5)
        assert found
        return found

    assert rest_ns > 7e5 and gain(0).gain == pytest.approx(step_ns / rest_ns, rel=0.02)
    for workers in (1, 2, 4):
        limit, found = step_ns * workers / 1.5e6, gain(workers, pinned=True)
        assert found.gain == pytest.approx(min(limit, gain(0).gain), rel=0.02)
        assert found.low < found.gain <= found.high <= limit * 1.02
        # One of two changes needs workers; together they need as long.
        assert gain(workers, "graph", pinned=True).gain == pytest.approx(min(limit, gain(0, "graph").gain), rel=0.02)
    # Without a thread that pins, the CPU needs a millisecond to receive a batch, which is longer than the GPU's step.
    assert gain(4).predicted_ns == pytest.approx(step_ns - 1.5e6 + HANDOVER_NS, rel=0.02)


def test_workers_and_the_step_share_the_cores(program: Program, tmp_path: Path) -> None:
    """On two cores, 1.5 ms of loading, 1 to receive and a step of 0.7 take 1.6 ms; where loading waits, half of 1.5."""
    assert CellSimulation(program).fit_loading() is None
    program, step_ns = loaded(tmp_path)
    one, graph = RequestedChange("input_ready", workers=2, pinned=True), RequestedChange("graph")
    for cores, busy, right in ((2.0, 1.0, (1.5e6 + HANDOVER_NS + 7e5) / 2), (2.0, 0.0, 8.5e5), (64.0, 1.0, 7.5e5)):
        replayed = CellSimulation(program, 0.0, Loading(cores=cores, loading_cores=busy))
        found = replayed.gain_together([one, graph], a_step({}).iloc[0], 0.0)
        assert found and found.predicted_ns == pytest.approx(right, rel=0.03)
        fitted = replayed.fit_loading()
        assert fitted and fitted.batch_ns == pytest.approx(1.5e6, rel=0.01)
        assert fitted.rest_ns == pytest.approx(7.2e5, rel=0.03)
    # Two workers for which a step waits load a batch in two of its steps; three do so in two thirds.
    known = CellSimulation(program, 0.0, Loading(workers=2))
    found = known.gain(RequestedChange("input_ready", workers=3, pinned=True), a_step({}).iloc[0], 0.0)
    assert found and found.gain == pytest.approx(1.5) and known.loading.batch_ns == pytest.approx(2 * step_ns, rel=0.01)


@pytest.mark.parametrize(
    ("given", "now", "settings", "says"),
    [
        (
            {"cores": 64.0},
            0,
            "workers=3 pin_memory=true",
            "input no longer limits from 3 workers on: load batches ahead",
        ),
        # 1.5, 0.7 and a millisecond to receive are 1.6 on two cores, and the GPU's step is hidden behind 1.5 of loading.
        ({"cores": 2.0}, 0, None, "but the 2 cores of this process then need 1.61 ms: load"),
        ({"cores": 2.0, "loading_cores": 0.2}, 0, "workers=2 pin_memory=true", "from 3 workers on, but the 2 cores"),
        ({}, 0, "workers=3 pin_memory=true", "loading a batch takes 1.5 ms and the rest of the step 712 µs, so input"),
        ({"cores": 64.0}, 2, "workers=5", "loading a batch takes at most 3.16 ms and"),
        ({"cores": 2.0}, 2, None, "then need 2.44 ms: decode and collate less on the CPU"),
    ],
)
def test_as_many_workers_are_advised_as_the_step_needs(
    tmp_path: Path, given: dict[str, float], now: int, settings: str | None, says: str
) -> None:
    program, _ = loaded(tmp_path)
    facts = CellFacts(noted={CELL: NotedFacts(loading=Loading(**given))})  # type: ignore[arg-type]
    step = a_step({"idle_input": 0.6}).assign(cpu_data_ns=5e6)
    table = judged(program, step, ran_with={CELL: {"workers": now}}, facts=facts)
    (row,) = table[table["verdict"].eq("input-bound") & table["level"].eq("cell")].to_dict("records")
    assert (None if pd.isna(row["settings"]) else row["settings"]) == settings and says in row["next_step"]


def test_only_copies_of_the_input_are_pinned_with_it(tmp_path: Path) -> None:
    """The host no longer waits for that of the batch; nor would it for the other, which the loader does not make."""
    other = replace(LAUNCH, kind="pageable", ns=4e5)
    acts = steps(
        [*[Act("other", 0, "data", 1.5e6, 500), Act("pageable", 0, "transfer", 3e3, 5e3, ns=2e5)], LAUNCH, other]
    )
    program, _ = simulation(acts, tmp_path)
    program = replace(program, gpu=program.gpu.assign(pageable=program.gpu["kind"] == COPY))
    waits = [changed.host.groupby("part")["wait"].max() for changed in
             (gain_models._have_workers(program, RequestedChange("input_ready", workers=1, pinned=pinned), Loading())
              for pinned in (False, True))]  # fmt: skip
    of_input, of_step = (PARTS.index(part) + 1 for part in ("transfer", "forward"))
    assert [one[of_input] > NOTHING for one in waits] == [True, False] and all(one[of_step] > NOTHING for one in waits)


def test_gains_are_no_surer_than_processes_are_alike(program: Program) -> None:
    """Of one process alone, than those of others are: half widths of logarithms add up as squares."""
    widths = []
    for apart in (0.0, 0.01, 1.0):
        own = {process_number(program.process): replace(program, apart=apart)}
        step = a_step({}).assign(process=process_number(program.process))
        replayed = verdicts.judge_cell(step, {}, RULES, {}, own, UNTRIED).replayed
        found = replayed and replayed.gain(faster(kernels(program), 0.5), {}, 0.25)
        assert found and found.high
        widths.append(np.log(found.high / found.gain) ** 2)
    alone, sure, unsure = widths
    assert unsure - sure == pytest.approx(1.0, rel=1e-3)
    assert alone - sure == pytest.approx(UNTRIED.unrepeated**2, rel=0.01)


def test_bf16_costs_casts(tmp_path: Path) -> None:
    """Where the CPU is the limit, the launches that autocast adds make a step slower, and it is not advised."""
    program, step_ns = simulation(steps([replace(LAUNCH, ns=5e3)] * 20), tmp_path)
    replayed = CellSimulation(program)
    rows = kernels(program)
    for operators, within, ns, slower in (
        (1, 0, 3e3, 2.0),
        (0, 1, 3e3, 1.6),
        (0, 0, 3e3, 1.0),
        (1, 0, 9e4, 20 * 93.5e3 / step_ns),
    ):
        added = pd.DataFrame({"operators": operators, "ns": ns, "within": within}, rows.index, dtype="float64")
        asked = RequestedChange("bf16", rows, pd.Series(0.5, rows.index), added)
        found = replayed.gain(asked, {}, 0.0)
        assert found and found.predicted_ns == pytest.approx(step_ns * slower, rel=0.05)
    row = a_verdict("memory-bound", gain=1.3, share=0.5, cured=0.5, settings="x=1", change=asked)
    told = rule_evaluation.add_expected_gain(row, replayed, {}, UNTRIED)
    assert told.settings is None and told.next_step.startswith(rule_evaluation.NO_GAIN) and (told.gain or 1) < 1


def test_a_part_of_a_configurations_launches_is_a_part_of_its_time(program: Program) -> None:
    """As of a layer, whose kernels others launch as well."""
    rows, replayed = kernels(program).drop(columns="range"), CellSimulation(program)
    for part, right in ((2, 2), (4, 4 / 3)):
        found = replayed.gain(faster(rows.assign(launches=10 / part, total_ns=rows["total_ns"] / part), 1.0), {}, 0.0)
        assert found and found.gain == pytest.approx(right, rel=0.06)


def test_copies_to_the_host_and_waits_are_removed(tmp_path: Path) -> None:
    copy = Act("pageable", 0, "forward", 3e3, 5e3, ns=4e5)
    program, step_ns = simulation(steps([LAUNCH, LAUNCH, copy] * 5), tmp_path)
    replayed = CellSimulation(program)
    without = simulated.simulate(steps([LAUNCH, LAUNCH] * 5)).step_ns()
    for name, gain in (("transfers_removed", step_ns / without), ("copies_removed", 1.0)):
        found = replayed.gain(RequestedChange(name), {}, 0.0)
        assert found and found.gain == pytest.approx(gain, rel=0.1)


@pytest.mark.parametrize(
    ("waiting", "talking", "left"), [(1.0, 4.0, 0.75), (4.0, 4.0, 1e-3), (9.0, 4.0, 1e-3), (0.0, 0.0, 1.0)]
)
def test_communication_without_its_waits(tmp_path: Path, waiting: float, talking: float, left: float) -> None:
    """A launch of 400 us that communicates takes the part that it does not wait."""
    own, _ = simulation(steps([LAUNCH, replace(LAUNCH, ns=4e5, group=-1)], 2), tmp_path)
    step = {"waiting_ns": waiting * 1e5, "communication_ns": talking * 1e5}
    found = gain_models.STEP_CHANGES["waiting_removed"](own, step).gpu
    talks = own.gpu["talking"].to_numpy(dtype=bool)
    assert talks.sum() == 2 and found.loc[talks, "ns"].tolist() == pytest.approx([left * 4e5] * 2, rel=1e-3)
    assert found.loc[~talks, "ns"].tolist() == own.gpu.loc[~talks, "ns"].tolist()


def saved_part(to: str, now: str = "fp32", peaks: dict[str, float] | None = None, **row: Any) -> float:
    rows = pd.DataFrame([{"class": "gemm", "mean_ns": 1e5, "bound": "", "efficiency": np.nan, **row}])
    return gain_models.saved_share(rows, peaks or {}, to, now).iloc[0]


@pytest.mark.parametrize(
    ("row", "to", "now", "saved"),
    [
        (SIMT, "tf32", "fp32", 1 - 0.05 / 0.8 - 0.15),
        (SIMT | {"class": "elementwise"}, "tf32", "fp32", 0),
        (DRAM, "bf16", "fp32", 0.4),
        (DRAM | {"class": "elementwise"}, "bf16", "fp32", 0.4),
        (DRAM | {"class": "optimizer"}, "bf16", "fp32", 0),
        (DRAM | {"range": "optimizer"}, "bf16", "fp32", 0),
        ({"bound": "tensor", "efficiency": 0.6}, "bf16", "tf32", 1 - 0.3 / 0.8 - 0.08),
        ({"bound": "tensor", "efficiency": 0.6}, "bf16", "bf16", 0),
        # Without counters a product does operations for 0.7 of its time beyond the shortest, and a copy moves bytes.
        (UNCOUNTED, "tf32", "fp32", 1 - 0.7 * 0.98 / 10 / 0.8 - 0.15),
        (UNCOUNTED, "bf16", "tf32", 1 - 0.7 * 0.98 / 2 / 0.8 - 0.08),
        ({**UNCOUNTED, "class": "copy"}, "bf16", "fp32", 0.7 * 0.98 / 2),
        ({**UNCOUNTED, "class": "copy"}, "tf32", "fp32", 0),
        # The roof of DRAM is next, and tensor cores do not raise it; but what FFTs are multiplied in, others do not read.
        ({**AT_BOTH, "kernel": "gemm_f32f32"}, "tf32", "fp32", 1 - 0.4 - 0.15),
        ({**AT_BOTH, "kernel": "gemm_cf32cf32"}, "tf32", "fp32", 1 - 0.05 / 0.8 - 0.15),
        # By other kernels, what another one read again from L2 is none of these.
        (SIMT | {"roof_simt_ns": 5e4, "roof_l2_ns": 4.9e4}, "tf32", "fp32", 1 - 0.05 / 0.8 - 0.15),
        # Convolutions are laid out otherwise on tensor cores, and transforms go.
        (SIMT | {"class": "convolution"}, "tf32", "fp32", 1 - 1.25 * (0.05 / 0.8 + 0.15)),
        ({"bound": "dram", "efficiency": 0.5, "class": "convolution", "kernel": "fft2d_r2c_32x32"}, "tf32", "fp32", 1),
        (DRAM | {"class": "normalisation", "kernel": "cudnn::bn_fw_tr"}, "bf16", "fp32", 0),
        # No kernel of tensor cores is that short.
        ({"bound": "simt", "efficiency": 1.0, "mean_ns": 1e4}, "tf32", "fp32", 0),
    ],
)
def test_what_narrower_operands_save(row: dict[str, Any], to: str, now: str, saved: float) -> None:
    assert saved_part(to, now, PEAKS, **{"range": "forward", **row}) == pytest.approx(saved)


ROOFED = {"roof_dram_ns": 5e3, "roof_l2_ns": 0.0, "roof_simt_ns": 8e4, "roof_tensor_ns": 0.0, "efficiency": 0.8}


@pytest.mark.parametrize(
    ("right", "given"),
    [
        # 80 us of operations are 10 at the data sheet's rate of 8, of which 0.8 is reached: 12.5 and 15 to begin with.
        (0.725, {"to": "tf32", **ROOFED}),
        # As measured, twice as fast.
        (1 - 0.4 / 0.8 - 0.15, {"to": "tf32", "peaks": {"fp32": 1, "tf32": 2}, "bound": "simt", "efficiency": 0.8}),
        # At 16 times: 5 us, 6.25 and 8.
        (0.8575, {"to": "bf16", **ROOFED}),
        # From tf32 at half the time: 40 us are 20, 25 and 8.
        (0.67, {"to": "bf16", "now": "tf32", **ROOFED, "roof_simt_ns": 0.0, "roof_tensor_ns": 4e4}),
        # A rate that is no higher saves nothing.
        (0.0, {"to": "tf32", "peaks": {"fp32": 2.0, "tf32": 1.0}, **ROOFED}),
        # Nor does it lengthen operations: of 90 us by DRAM 45 are left, and the 80 of operations.
        (0.1, {"to": "bf16", "peaks": {"fp32": 2.0, "bf16": 1.0}, **ROOFED, "roof_dram_ns": 9e4}),
        (0.1, {"to": "bf16", "now": "tf32", "peaks": {"fp32": 1.0, "tf32": 2.0, "bf16": 1.0}, **ROOFED,
               "roof_simt_ns": 0.0, "roof_tensor_ns": 8e4, "roof_dram_ns": 9e4}),
        # Channels first: 12.5 and 15 us a quarter more, and for bf16 6.25 and 8 half more.
        (1 - 0.34375, {"to": "tf32", **ROOFED, "class": "convolution"}),
        (1 - 0.21375, {"to": "bf16", **ROOFED, "class": "convolution"}),
        # Of 3 us two stay, whatever is saved.
        (1 / 3, {"to": "bf16", "class": "copy", "mean_ns": 3e3, "roof_dram_ns": 2.8e3, "efficiency": 0.93}),
        (0.0, {"to": "bf16", "class": "copy", "mean_ns": 2e3, "roof_dram_ns": 1.9e3, "efficiency": 0.93}),
        # A copy of 40 us of DRAM's time and 30 of L2's has half of either left.
        (0.2, {"to": "bf16", "class": "copy", "roof_dram_ns": 4e4, "roof_l2_ns": 3e4, "efficiency": 0.4}),
        (0.2, {"to": "bf16", "class": "copy", "roof_dram_ns": 3e4, "roof_l2_ns": 4e4, "efficiency": 0.4}),
        (0.2, {"to": "bf16", "class": "copy", "bound": "l2", "efficiency": 0.4, "range": "graph"}),
        (0.0, {"to": "bf16", "class": "copy", "bound": "l2", "efficiency": 0.4, "range": "data"}),
        # Pieces go with their product in fp32 alone.
        (1.0, {"to": "tf32", "kernel": "splitKreduce_kernel", "bound": "dram", "efficiency": 0.4}),
        (0.0, {"to": "tf32", "kernel": "splitKreduce_kernel", "bound": "dram", "efficiency": 0.4, "class": "copy"}),
        (0.2, {"to": "bf16", "now": "tf32", "kernel": "splitKreduce_kernel", "bound": "dram", "efficiency": 0.4}),
    ],
)  # fmt: skip
def test_what_is_saved_by_narrower_operands(right: float, given: dict[str, Any]) -> None:
    assert saved_part(**given) == pytest.approx(right)


@pytest.mark.parametrize(
    ("right", "given"),
    [
        # Half of the bytes of its operator; none of one that stays in fp32; a third of one that reads both types.
        (0.45, {"class": "elementwise", "bytes_ns": 9e4, "bf16_ns": 4.5e4}),
        (0.45, {"class": "reduction", "bytes_ns": 9e4, "bf16_ns": 4.5e4, "range": "loss"}),
        (0.0, {"class": "elementwise", "bytes_ns": 9e4, "bf16_ns": 9e4}),
        (0.3, {"class": "elementwise", "bytes_ns": 9e4, "bf16_ns": 6e4}),
        # Bytes that come from the cache take no longer than the launch; counters are surer than shapes.
        (0.49, {"class": "elementwise", "bytes_ns": 9e5, "bf16_ns": 4.5e5}),
        (0.2, {"class": "elementwise", "bytes_ns": 9e4, "bf16_ns": 4.5e4, "bound": "dram", "efficiency": 0.4}),
        # A product of 0.7 of 98 us takes 5.4 us and 8, but here its bytes take 45; one in fp32 stays as it is.
        (1 - 0.08 - 0.45, {"bytes_ns": 9e4, "bf16_ns": 4.5e4}),
        (0.0, {"bytes_ns": 9e4, "bf16_ns": 9e4}),
        (0.0, {"bytes_ns": 9e4, "bf16_ns": 9e4, "to": "tf32"}),
        # Half of the launches alike are of operators that autocast casts.
        ((1 - 0.08 - 0.7 * 0.98 / 16 / 0.8) / 2, {"bytes_ns": 1e3, "bf16_ns": 750.0}),
        # Attention multiplies in tf32 three times already.
        (0.0, {"class": "attention", "to": "tf32"}),
        (1 - 0.08 - 0.7 * 0.98 / 6 / 0.8, {"class": "attention"}),
        # Convolutions without counters reach less of the peak, depthwise ones are left alone.
        (1 - 1.25 * (0.15 + 0.7 * 0.98 / 8 / 0.42), {"class": "convolution", "to": "tf32"}),
        (0.0, {"class": "convolution", "to": "tf32", "kernel": "conv_depthwise2d_forward_kernel"}),
        (0.45, {"class": "convolution", "kernel": "conv_depthwise2d_forward_kernel", "bytes_ns": 9e4, "bf16_ns": 4.5e4}),
        # Without operators, names tell what stays in fp32.
        (0.0, {"class": "softmax", "kernel": "softmax_warp_forward"}),
        (0.0, {"class": "elementwise", "kernel": "vectorized_elementwise_kernel<4, exp_kernel_cuda>"}),
        (0.35 * 0.98, {"class": "elementwise", "kernel": "vectorized_elementwise_kernel<4, sigmoid_kernel_cuda>"}),
    ],
)  # fmt: skip
def test_what_operators_tell_of_launches_without_counters(right: float, given: dict[str, Any]) -> None:
    assert saved_part(**{"to": "bf16", "range": "forward", **given}) == pytest.approx(right)


def test_operators_of_launches_alike_are_taken_together() -> None:
    """Of two launches of one configuration, and one of another range; nothing is known of a third configuration."""
    keys = dict.fromkeys(gains.KEYS, 1) | {"mangled": "k", "range": "forward"}
    known = [{"bytes_ns": 2.0, "bf16_ns": 1.0, "casts": 3.0, "casts_ns": 9e3}, dict.fromkeys(gains.AUTOCAST, 0.0)]
    cast = pd.DataFrame([keys | one for one in known] + [keys | {"range": "backward"} | known[0]])
    rows = pd.DataFrame([keys, keys | {"range": "backward"}, keys | {"mangled": "another"}]).assign(**{"class": "gemm"})
    found = gain_models.add_operators(rows, cast)
    assert found["casts"].tolist() == pytest.approx([1.5, 3.0, np.nan], nan_ok=True)
    assert found["bf16_ns"].tolist() == pytest.approx([0.5, 1.0, np.nan], nan_ok=True)
    more = gain_models.added_launches(found, "bf16", "fp32")
    # Each cast takes as long as those before it on average; two are guessed of the product of which nothing is known.
    assert more["operators"].tolist() == [1.5, 3.0, 2.0] and more["ns"].tolist() == [3e3] * 3
    assert gain_models.added_launches(found, "tf32", "fp32")["operators"].tolist() == [0.0] * 3
    assert gain_models.add_operators(rows, None) is rows and "casts" not in gain_models.add_operators(
        rows[["class"]], cast
    )


def test_channels_last_need_no_other_layout() -> None:
    rows = pd.DataFrame([{"class": "convolution", "mean_ns": 1e5, "range": "forward", **AT_BOTH}])
    last = gain_models.saved_share(rows, PEAKS, "tf32", "fp32", nchw=False)
    assert last.tolist() == pytest.approx([1 - 0.4 - 0.15])
    more = gain_models.added_launches(rows, "tf32", "fp32", nchw=False)
    assert more[["operators", "within"]].to_numpy().tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("rows", "to", "now", "operators", "within"),
    [
        ([("gemm", "forward", ""), ("gemm", "backward", "")], "bf16", "fp32", [2, 0], [0, 0]),
        ([("gemm", "forward", ""), ("elementwise", "forward", "")], "bf16", "tf32", [2, 0], [0, 0]),
        ([("convolution", "forward", ""), ("convolution", "backward", "")], "tf32", "fp32", [0, 0], [1, 1]),
        ([("convolution", "backward", "fft2d_c2r"), ("attention", "forward", "")], "bf16", "fp32", [0, 0], [0, 0]),
        ([("normalisation", "forward", "cudnn::bn_fw_tr"), ("convolution", "graph", "")], "bf16", "fp32",
         [0, 2 / 3], [2, 1]),
        ([("gemm", "forward", "")], "bf16", "bf16", [0], [0]),
    ],
)  # fmt: skip
def test_launches_that_narrower_operands_add(
    rows: list[tuple[str, str, str]], to: str, now: str, operators: list[float], within: list[float]
) -> None:
    table = pd.DataFrame(rows, columns=["class", "range", "kernel"])
    more = gain_models.added_launches(table, to, now)
    assert [more[name].tolist() for name in ("operators", "within")] == [operators, within]


def test_settings_that_no_verdict_advises_have_their_gain_too(program: Program) -> None:
    """Of kernels that keep the GPU busy: a graph gains nothing much, and casts cost the CPU what they do not save."""
    table = judged(program, a_step({}), [0.5])
    here, untold = (
        table[table["level"] == level].set_index("settings") for level in ("cell", rule_evaluation.SETTING_LEVEL)
    )
    assert "precision=tf32" in here.index and "precision=tf32" not in untold.index
    assert {"graph=true", "precision=bf16"} <= set(untold.index) and untold["method"].eq("replay").all()
    graph = untold.loc["graph=true"]
    assert graph["verdict"] == "launch-bound" and graph["next_step"] == "not advised: launch-bound does not apply here"
    assert 1 < graph["gain"] < 1.1 and graph["gain_low"] < graph["gain"]
    assert untold.loc["precision=bf16", "metric"] == "replay: bf16"


def test_narrower_operands_are_worth_more_in_a_graph(tmp_path: Path) -> None:
    """Kernels of 40 us take 10.5 us in bf16 and two casts of 3 us, which a CPU that launches every 7 us cannot keep up with."""
    program, step_ns = simulation(steps([replace(LAUNCH, ns=4e4)] * 40, 3), tmp_path)
    rows = CellRules(a_step({}).iloc[0], {}, RULES, ROOFS).mark_traits(kernels(program), held([0.8], ["simt"]))

    def told(**ran_with: Any) -> dict[str, Any]:
        replayed = CellSimulation(program)
        cell = CellRules(a_step({}).iloc[0], ran_with, RULES, ROOFS, replayed, UNTRIED)
        return {row.settings or "": row for row in rule_evaluation.other_setting_rows(cell, rows, [])}

    found = told()
    both, graph, narrower = (found[words] for words in ("graph=true precision=bf16", "graph=true", "precision=bf16"))
    assert both.gain == pytest.approx(step_ns / (40 * (8e3 + 2.5e3 + 6e3 + 1e3)), rel=0.05)
    assert narrower.gain == pytest.approx(step_ns / (40 * 21e3), rel=0.05) and graph.gain < 1.1
    assert both.verdict == "launch-bound + memory-bound" and both.metric == "replay: graph + bf16"
    assert both.next_step == rule_evaluation.TOGETHER
    # A cell that is a graph already is not told to become one.
    words = told(graph=True)
    assert "precision=bf16" in words and not any("graph" in one for one in words)


def test_advice_that_abstains_is_told_as_what_the_setting_would_come_to(small: tuple[Program, float]) -> None:
    poor = advice_scores.Score(4, 4, 1, error=1, over=1, covered=0, helped=0.25, slowed_down=0.75)
    table = judged(small[0], a_step({"idle_host": 0.6}), scored=replace(UNTRIED, held_out={"graph": poor}))
    assert table.loc[0, "verdict"] == "launch-bound" and pd.isna(table.loc[0, "gain"])
    (row,) = table[table["settings"].eq("graph=true") & table["level"].eq("setting")].to_dict("records")
    said = "not advised: in trials, advice on launch-bound made at most half of the cells faster"
    assert row["gain"] > 2 and row["next_step"] == said


def test_launches_are_found_where_four_fifths_of_their_time_are(program: Program) -> None:
    rows, replayed = kernels(program), CellSimulation(program)
    for more, found in ((1.249, True), (1.251, False)):
        gain = replayed.gain(faster(rows.assign(total_ns=rows["total_ns"] * more), 0.5), {}, 0.0)
        assert (gain is not None) == found


def test_half_of_the_time_of_launches_that_are_the_limit(program: Program) -> None:
    """Of ten launches of 50 us 25 us each are left; what is not known, or of launches that there are none of, has no gain."""
    rows, replayed = kernels(program), CellSimulation(program)
    gain = replayed.gain(faster(rows, 0.5), {}, 0.0)
    assert gain and gain.step_ns - gain.predicted_ns == pytest.approx(250e3, rel=0.02)
    gone = replayed.gain(faster(rows, 1.0), {}, 0.0)
    assert gone and gone.gain > gain.gain
    assert replayed.gain(faster(rows, np.nan), {}, 0.0) is None
    assert replayed.gain(faster(rows.assign(mangled="another"), 0.5), {}, 0.0) is None
    assert replayed.gain(faster(rows.assign(launches=0.0), 0.5), {}, 0.0) is None
    assert replayed.gain(faster(rows.assign(total_ns=np.nan), 0.5), {}, 0.0) is None
    assert replayed.gain(faster(rows.drop(columns="grid_x"), 0.5), {}, 0.0) is None
    none = replayed.gain(faster(rows, 0.0, "fused"), {}, 0.0)
    assert none and none.gain == pytest.approx(1)


def test_intervals_are_as_wide_as_errors_and_processes_apart(program: Program) -> None:
    """Steps that are alike have no spread: an error of a quarter is all there is, or with 0.3 apart exp(hypot(ln 1.25, 0.3))."""
    rows = kernels(program)
    for apart, wide in ((0.0, 1.25), (0.3, np.exp(np.hypot(np.log(1.25), 0.3)))):
        gain = CellSimulation(program, apart).gain(faster(rows, 0.5), {}, 0.25)
        assert gain and gain.high / gain.gain == pytest.approx(wide, rel=0.02)
        assert gain.gain / gain.low == pytest.approx(wide, rel=0.02)
    # What the program knows by itself counts before what is supposed of others.
    assert CellSimulation(replace(program, apart=0.1), 0.3).apart == 0.1 and CellSimulation(program, 0.3).apart == 0.3
    assert gain_models.error_interval(3.0, 0.5, 1.0) == (2, 6)


def test_errors_of_cells_with_several_processes_hold_how_far_these_are_apart(program: Program) -> None:
    """Of a cell with several too, nothing is added to them; of one with a single process, what others are apart by."""
    rows, bound = kernels(program), ErrorBound(0.25, 0.5, repeated=True)
    for apart, added in ((0.4, 0.0), (0.0, 0.3)):
        gain = CellSimulation(replace(program, apart=apart), 0.3).gain(faster(rows, 0.5), {}, bound)
        assert gain and gain.gain / gain.low == pytest.approx(np.exp(np.hypot(np.log(1.25), added)), rel=0.02)
        assert gain.high / gain.gain == pytest.approx(np.exp(np.hypot(np.log(1.5), added)), rel=0.02)
        assert gain.told_low == gain.low


def test_an_expectation_that_is_too_hopeful_is_lowered_with_its_interval(program: Program) -> None:
    replayed, rows = CellSimulation(program, 0.3), kernels(program)
    plain, lower = (
        replayed.gain(faster(rows, 0.5), {}, ErrorBound(0.25, 0.5, False, hopeful=one)) for one in (1.0, 1.2)
    )
    assert plain and lower and plain.told_low is None
    for name in ("gain", "low", "high"):
        assert getattr(plain, name) / getattr(lower, name) == pytest.approx(1.2)
    assert lower.predicted_ns == pytest.approx(1.2 * plain.predicted_ns) and lower.step_ns == plain.step_ns


def test_settings_that_a_verdict_advises_are_not_told_again(program: Program) -> None:
    """Of what a rule advises with a gain nothing is said; of what abstains that it does, of the rest that it does not hold."""
    judged = CellRules(a_step({}).iloc[0], {}, RULES, ROOFS, CellSimulation(program), UNTRIED)
    rows = judged.mark_traits(kernels(program), None)

    def said(*verdicts: Verdict) -> dict[str | None, Verdict]:
        return {row.settings: row for row in rule_evaluation.other_setting_rows(judged, rows, verdicts)}

    every = said(a_verdict("v", gain=2.0))
    gains = [row.gain or 0 for row in every.values()]
    assert "graph=true" in every and gains == sorted(gains, reverse=True) and len(gains) > 2
    graph = a_verdict("launch-bound", settings="graph=true", gain=1.5)
    assert set(said(graph)) == set(every) - {"graph=true"}
    silent = said(replace(graph, gain=None))
    why = "not advised: in trials, advice on launch-bound made at most half of the cells faster"
    assert set(silent) == set(every) and silent["graph=true"].next_step == why
    # One that holds without settings, or with others that gain, does not abstain.
    held = said(replace(graph, settings=None, gain=None), replace(graph, settings="graph=false"))
    assert held["graph=true"].next_step == "not advised: launch-bound does not apply here"
    without = CellRules(a_step({}).iloc[0], {}, RULES, ROOFS, None, UNTRIED)
    assert rule_evaluation.other_setting_rows(without, rows, []) == []


@pytest.mark.parametrize(("counted", "guessed"), slow.first([(0.79, True), (0.8, False)]))
def test_settings_go_by_counters_where_four_fifths_have_them(program: Program, counted: float, guessed: bool) -> None:
    judged = CellRules(a_step({}).iloc[0], {}, RULES, ROOFS, CellSimulation(program), UNTRIED)
    rows = judged.mark_traits(kernels(program), None)
    rows = rows.assign(counted_ns=rows["total_ns"] * counted)
    found = {row.settings: row.metric for row in rule_evaluation.other_setting_rows(judged, rows, [])}
    assert found["precision=tf32"].endswith(rule_evaluation.UNCOUNTED) == guessed
    assert not found["graph=true"].endswith(rule_evaluation.UNCOUNTED)


def test_a_verdict_has_the_gain_of_its_replay_where_that_answers(program: Program) -> None:
    """Launches that take half as long gain what the replay says; of what it does not find Amdahl's law says 1.2."""
    rows, replayed = kernels(program), CellSimulation(program)
    row = a_verdict("v", gain=1.2, settings="a=1", share=0.5, cured=0.5)
    gain = replayed.gain(faster(rows, 0.5), {}, UNTRIED.unscored_error)
    asked_for = faster(rows, 0.5)
    found = rule_evaluation.add_expected_gain(replace(row, change=asked_for), replayed, {}, UNTRIED)
    assert gain and (found.gain, found.gain_low, found.gain_high) == (gain.gain, gain.low, gain.high)
    assert found.method == "replay" and gain.gain > 1.5
    # Verdicts are compared by their changes.
    assert found.change is asked_for
    for asked, own in ((faster(rows, np.nan), replayed), (None, replayed), (faster(rows, 0.5), None)):
        plain = rule_evaluation.add_expected_gain(replace(row, change=asked), own, {}, UNTRIED)
        assert (plain.gain, plain.method) == (1.2, "Amdahl")
