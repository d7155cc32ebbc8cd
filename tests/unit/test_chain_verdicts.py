"""Tables of chains and verdicts on them: named with layer and lines, with a gain by simulation, ranked beside others."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch import nn

from profzoo.foreign_reports import nsys_of_torch
from profzoo.fusion import gains, patterns, row_patterns, table
from profzoo.fusion.autocast import narrow_calls
from profzoo.fusion.calls import Call, Flow, TracedStep, read_step
from profzoo.fusion.chains import OTHER, Chain
from profzoo.io import csv_tables
from profzoo.tools.torch.trace import range_spans, read_trace
from profzoo.verdicts.causes import cause_verdicts, verdict_table, verdicts
from profzoo.what_if import dependencies
from profzoo.what_if import tables as what_if_tables
from profzoo.what_if.predicted_gains import Operations
from profzoo.what_if.program import Program, read_programs, replace_tables, write_programs
from profzoo.what_if.trace_events import KERNEL
from tests import fused_programs, known_rules
from tests.unit.test_verdicts import UNTRIED, kernel_rows
from tests.unit.test_verdicts import made as a_step
from tests.written_programs import BEGINS, ENDS, call, kernel, make_flow, program, tensor, work

RULES = known_rules.load(every=True)
CELL = ("m", "train")
# Rate of the kernels of traces made here, in bytes per ns: so low that the host is done long before, however busy.
RATE = 2e-4


@pytest.fixture(scope="module")
def attention_cell(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, pd.DataFrame, Path]:
    """Tables of a cell with written-out attention, whose trace stands for that of nsys too."""
    folder = tmp_path_factory.mktemp("cell")
    network = nn.Sequential(fused_programs.Attention(), fused_programs.Attention())
    events = fused_programs.with_kernels(fused_programs.traced_steps(network, count=3), RATE)
    trace = folder / "trace.json.gz"
    content = {"traceEvents": events, "profzoo_sources": {"Attention": ["a.py:1-9"]}}
    trace.write_bytes(gzip.compress(json.dumps(content).encode()))
    sidecar = folder / "trace.json"
    sidecar.write_text(json.dumps({"device_type": "cuda", "imported": {}, "cell": {"window": 3}}))
    nsys_of_torch.main(str(trace), str(sidecar), str(folder / "n.sqlite"), str(folder / "n.json"))
    starts, _, _ = range_spans(read_trace(trace), ("step",))
    _, _, programs = what_if_tables.make_tables(str(folder / "n.sqlite"), float(np.median(np.diff(starts))))
    write_programs(programs, folder / "p.npz")
    (folder / "peaks.csv").write_text(f"peak,rate,unit,how\ndram,{RATE * 1e9},byte/s,by hand\n")
    outputs = {"chains": str(folder / "fusion.csv"), "kernels": str(folder / "fusion-kernels.csv")}
    nsys = str(folder / "n.sqlite"), str(folder / "n.json")
    table.main(str(trace), nsys, str(folder / "peaks.csv"), str(folder / "p.npz"), outputs)
    return csv_tables.read(outputs["chains"], table.CHAINS), csv_tables.read(outputs["kernels"], table.KERNELS), folder


@pytest.fixture(scope="module")
def judged(attention_cell: Any) -> pd.DataFrame:
    """The verdicts on a cell with written-out attention in two layers."""
    chains, kernels, folder = attention_cell
    programs = {CELL: read_programs(folder / "p.npz")}
    step, given = a_step({}).assign(process=next(iter(programs[CELL]))), {"programs": programs, "scored": UNTRIED}
    rows, own = kernel_rows(total_ns=[1e6]), {CELL: (chains, kernels)}
    return verdicts.tabulate_verdicts(step, rows, None, {}, {}, {}, RULES, chains=own, **given)


def test_attention_is_named_with_its_layers_lines_function_and_gain(judged: pd.DataFrame, attention_cell: Any) -> None:
    (row,) = judged[judged["verdict"] == "unfused attention"].to_dict("records")
    assert row["level"] == "cell" and row["method"] == "replay" and row["rank"] == 1
    assert row["next_step"].startswith("* (Attention, a.py:1-9) runs ")
    assert "torch.nn.functional.scaled_dot_product_attention" in row["next_step"]
    # Both layers and both passes together gain more than each row of the table.
    chains = attention_cell[0]
    own = chains[chains["pattern"] == "attention"]
    whole = 1 / (1 - (1 - 1 / own["gain"]).sum())
    assert row["gain"] == pytest.approx(whole, rel=0.02)
    assert row["share"] == pytest.approx(1 - 1 / row["gain"]) and row["share"] < 1
    assert row["gain_low"] < row["gain"] < row["gain_high"]


def test_a_verdict_needs_traced_steps_and_the_share_that_its_rule_asks_for(attention_cell: Any) -> None:
    chains, kernels, folder = attention_cell
    programs = read_programs(folder / "p.npz")
    step = a_step({}).assign(process=next(iter(programs)))
    for least, traced, found in ((0.01, programs, True), (0.9, programs, False), (0.01, {}, False)):
        rules = [{**rule, "at_least": least} for rule in RULES["rules"] if rule["verdict"] == "unfused attention"]
        judge = verdicts.judge_cell(step, {}, {**RULES, "rules": rules}, {}, traced, UNTRIED)
        assert len(list(cause_verdicts.judge_chains(judge, (chains, kernels)))) == found


def test_a_cell_has_a_row_for_layers_alike_with_the_lines_of_their_class(attention_cell: Any) -> None:
    chains, kernels, _ = attention_cell
    own = chains[chains["pattern"] == row_patterns.ATTENTION]
    assert own["direction"].tolist() == ["forward", "backward"] and own["chains"].tolist() == [2, 2]
    assert set(own["type"]) == {"Attention"} and set(own["source"]) == {"a.py:1-9"}
    # The launches of a chain were found again, those that stay among them.
    by_chain = kernels.groupby(gains.NUMBER)
    assert by_chain.size()[own["chain"]].tolist() == own["launches"].tolist()
    assert by_chain[gains.STAYS].sum()[own["chain"]].tolist() == own["fused_launches"].tolist()
    assert by_chain["ns"].sum()[own["chain"]].to_numpy() == pytest.approx(own["ns"].to_numpy(), rel=0.01)


def test_each_launch_has_what_autocast_changes_of_its_operator(attention_cell: Any) -> None:
    """Bytes move at the rate of the peaks; each cast takes as long as its bytes, or as the shortest launch."""
    _, kernels, folder = attention_cell
    step = read_step(read_trace(folder / "trace.json.gz"))
    found, shortest = narrow_calls(Flow(step.calls)), gains.measure_rates(step.calls, {"dram": RATE * 1e9}).shortest_ns
    assert len(kernels) == len(step.launches) and kernels[gains.NUMBER].isna().any()
    right = [sum(one.bytes for one in found) / RATE, sum(one.casts for one in found),
             sum(max(one.cast_bytes / RATE, one.casts * shortest) for one in found)]  # fmt: skip
    assert kernels[[gains.NARROW, gains.CASTS, gains.CASTS_NS]].sum().tolist() == pytest.approx(right, rel=0.01)
    softmax = kernels["mangled"].str.contains("_softmax")
    left = kernels[gains.NARROW] / kernels[gains.MOVED]
    assert (
        left[softmax].tolist() == pytest.approx([1.0] * 4) and left[kernels["mangled"].str.contains("mm")].max() <= 0.5
    )
    assert gains.tabulate_autocast(step, {})[gains.CASTS].sum() == pytest.approx(right[1])


def test_the_simulated_gain_is_that_of_a_step_without_the_saved_time(attention_cell: Any) -> None:
    """Kernels take much longer than their launches here, so that the step is the sum of its kernels."""
    chains, _, folder = attention_cell
    (program,) = read_programs(folder / "p.npz").values()
    whole = program.gpu["ns"].sum() / program.steps
    gained = chains[chains["gain"].notna()]
    assert len(gained) >= 2
    expected = whole / (whole - gained["ns"] + gained["fused_ns"])
    assert gained["gain"].to_numpy() == pytest.approx(expected.to_numpy(), rel=0.05)
    assert ((gained["gain_low"] <= gained["gain"]) & (gained["gain"] <= gained["gain_high"])).all()


def test_every_pattern_has_one_rule_and_every_rule_a_pattern() -> None:
    rules = [rule for rule in known_rules.load(every=True)["rules"] if rule["of"] == "chains"]
    shares = [rule["share"] for rule in rules]
    assert sorted(shares) == sorted(patterns.PATTERNS_OF_SHARE) and len(set(shares)) == len(shares)
    named = [name for names in patterns.PATTERNS_OF_SHARE.values() for name in names]
    assert len(set(named)) == len(named)
    assert all(rule["replay"] == "fused_chains" for rule in rules)


def test_the_table_has_the_advice_that_fits_the_cell() -> None:
    chains = table.CHAINS.empty().reindex(range(2)).assign(pattern=["looped optimizer", "elementwise chain"])
    found = verdict_table.add_advice(chains, {"compile": True, "optimizer": "auto"}, RULES)
    assert found["verdict"].tolist() == ["looped optimizer", "unfused elementwise chain"]
    assert found["settings"].tolist() == ["optimizer=fused", ""]
    assert "fused=True" in found["advice"][0] and "compile: true" not in found["advice"][1]
    plain = verdict_table.add_advice(chains, {}, RULES)
    assert plain["settings"].tolist() == ["optimizer=fused", "compile=true"]
    # What the table of all cells holds is what it is declared to hold, and a chain is in it once.
    own = {"model", "phase", "verdict", "advice", "settings"}
    assert set(verdict_table.FUSION_TABLE.columns) == own | {*table.COLUMNS}
    assert list(verdict_table.FUSION_TABLE.key) == ["model", "phase", *table.CHAINS.key]
    assert verdict_table.add_advice(chains[:0], {}, RULES).columns[-3:].tolist() == ["verdict", "advice", "settings"]


def test_places_are_told_by_what_they_save() -> None:
    rows = pd.DataFrame(
        {
            "module": ["a", "b", "c", "d", "a"], "type": ["", "", "", "", ""], "source": [""] * 5, "ns": [5.0, 9, 8, 7, 4],
            "operators": ["mul"] * 5, "fused_ns": [4.0, 1, 1, 1, 1],
        }
    )  # fmt: skip
    assert cause_verdicts.describe_places(rows) == "b runs mul; c runs mul; d runs mul; and 1 more"


Step = list[dict[str, Any]]
OF_GPU = {"room": 4096}


def a_program(*steps: int, ns: float = 10.0, gap: float = 50.0, waits: Sequence[int] = ()) -> Program:
    """Steps of so many kernels of 10, 20, 30 ns and so on, each with its call; waits: numbers of calls that wait."""
    host: Step = []
    gpu: Step = []
    for count in steps:
        host.append(BEGINS)
        for number in range(count):
            waiting = {"wait": dependencies.ALL} if number in waits else {}
            gpu.append(kernel(len(host), ns * (number + 1), kind=KERNEL, **OF_GPU))
            host.append(call(gap, own=7.0, **waiting))
        host.append(ENDS)
    return replace(program(host, gpu), kernels={0: "k"})


def of_chain(*places: int, of: int, stays: Sequence[int] = (1,), number: int = 0, **more: Any) -> pd.DataFrame:
    """Rows of a chain of the kernels at these places, which take 10 ns for each place and 10 ns more."""
    columns: dict[str, Any] = {gains.NUMBER: number, gains.PLACE: list(places), gains.OF: of, gains.WAITS: 0,
                               gains.TOGETHER: 0}  # fmt: skip
    given = {"ns": [10.0 * (place + 1) for place in places], gains.STAYS: [int(place in stays) for place in places]}
    return pd.DataFrame(columns | given | dict.fromkeys(gains.KEYS, "other") | more)


def fused(made: Program, rows: pd.DataFrame, fused_ns: float = 40.0) -> Program | None:
    return gains.fuse_chains(Operations(made), rows, pd.Series({0: fused_ns, 1: fused_ns}))


def test_a_chain_is_fused_by_the_places_of_its_launches() -> None:
    """In each step the second of five kernels takes the fused time, the third and fourth go, as do their calls."""
    after = fused(a_program(5, 5), of_chain(1, 2, 3, of=5))
    assert after is not None
    kept = after.gpu[~after.gpu["gone"]]
    assert kept["ns"].tolist() == pytest.approx([10.0, 40.0, 50.0] * 2)
    assert after.gpu["gone"].tolist() == [False, False, True, True, False] * 2
    # Two that stay share the time by what they take now: of 60 ns, 20 and 40.
    two = fused(a_program(5), of_chain(1, 2, 3, of=5, stays=(1, 3)))
    assert two is not None and two.gpu["ns"][~two.gpu["gone"]].tolist() == pytest.approx([10, 40 / 3, 80 / 3, 50])
    # None stays, as of what need not be done; a chain of another number is fused by its own time.
    none = fused(a_program(5), of_chain(1, 2, of=5, stays=()))
    assert none is not None and none.gpu["ns"][~none.gpu["gone"]].tolist() == [10, 40, 50]
    both = pd.concat([of_chain(0, 1, of=5, stays=(0,)), of_chain(3, 4, of=5, stays=(4,), number=1)])
    other = gains.fuse_chains(Operations(a_program(5)), both, pd.Series({0: 5.0, 1: 60.0}))
    assert other is not None and other.gpu["ns"][~other.gpu["gone"]].tolist() == pytest.approx([5, 30, 60])


def test_a_chain_is_fused_in_steps_that_launch_as_many() -> None:
    """One of two steps is enough, one of three is not; times of the chains must agree by four in five."""
    half = fused(a_program(5, 4), of_chain(1, 2, 3, 4, of=5, ns=[25.0, 5.0, 10.0, 35.0]))
    assert half is not None and half.gpu["gone"].tolist() == [False, False, True, True, True, *[False] * 4]
    assert fused(a_program(5, 4, 4), of_chain(1, 2, 3, 4, of=5, ns=[25.0, 5.0, 10.0, 35.0])) is None
    for ns, found in ((112.4, True), (112.6, False), (72.1, True), (71.9, False)):
        # Kernels of 20, 30 and 40 ns are 90 in all.
        made = fused(a_program(5), of_chain(1, 2, 3, of=5, ns=[ns - 50, 25.0, 25.0]))
        assert (made is not None) == found
    assert fused(a_program(5), of_chain(1, of=5).iloc[:0]) is None
    assert fused(program([BEGINS, call(), ENDS], []), of_chain(1, of=5)) is None


def test_a_chain_of_steps_that_launch_differently_is_fused_by_configuration() -> None:
    """Of 5, 4 and 4 kernels of 10 ns two per step are the chain's, of which one per step stays, with 12 ns."""
    made = replace_tables(a_program(5, 4, 4), gpu={"ns": 10.0})
    rows = of_chain(1, 2, of=9, ns=10.0).assign(**dict.fromkeys(gains.KEYS, 0)).assign(mangled="k", range="")
    after = fused(made, rows, fused_ns=12.0)
    assert after is not None and after.gpu["gone"].sum() == 3
    assert sorted(after.gpu["ns"][~after.gpu["gone"]]) == pytest.approx([10.0] * 7 + [12.0] * 3)
    assert fused(made, rows.assign(ns=13.0), fused_ns=12.0) is None
    assert fused(made, rows.assign(mangled="other"), fused_ns=12.0) is None


def test_only_kernels_count_as_launches_by_place() -> None:
    """A copy between two kernels has no place."""
    made = a_program(5)
    copying = replace_tables(made, gpu={"kind": np.where(np.arange(5) == 1, KERNEL + 1, KERNEL)})
    places, stays = gains._by_place(Operations(copying), of_chain(1, 2, of=4, stays=(2,)))
    assert places.tolist() == [-1, -1, 0, 1, -1] and stays.tolist() == [False, False, False, True, False]


def test_the_first_call_of_a_library_alone_runs_an_operator() -> None:
    """Of three calls that stay the later two need neither their own time nor an operator before them."""
    rows = of_chain(1, 2, 3, of=5, stays=(1, 2, 3), together=1)
    after = fused(a_program(5, 5, gap=150_000.0), rows)
    assert after is not None
    # Rows 0 and 6 are the steps' begins. An operator takes up to 100 us: of 150 us another work of 50 us stays.
    assert after.host["gap"].tolist()[:7] == [0, 150_000, 150_000, 50_000, 50_000, 150_000, 0]
    assert after.host["gap"].tolist()[7:] == after.host["gap"].tolist()[:7]
    assert after.host["own"].tolist()[:7] == [0, 7, 7, 7, 7, 7, 0]
    short = fused(a_program(5), rows)
    assert short is not None and short.host["gap"].tolist() == [0, 50, 50, 0, 0, 50, 0]
    apart = fused(a_program(5), rows.assign(together=0))
    assert apart is not None and apart.host["gap"].tolist() == [0, 50, 50, 50, 50, 50, 0]
    fed = replace_tables(a_program(5, gap=150_000.0), host={"input": [0.0, *[70_000.0] * 5, 0]})
    waiting = fused(fed, rows)
    assert waiting is not None and waiting.host["gap"].tolist()[2:5] == [150_000, 70_000, 70_000]


@pytest.mark.parametrize(
    ("places", "still"),
    [
        # From the first launch of the chain on up to its last one, over at most two other launches.
        ((0, 1, 2), [2, 3, 4, 5, 6]), ((1, 2), [0, 2, 3, 4, 5, 6]), ((1, 4), [0, 4, 5, 6]), ((1, 5), [0, 1, 2, 3, 4, 5, 6]),
    ],
)  # fmt: skip
def test_waits_between_launches_of_a_chain_disappear_by_hand(places: tuple[int, ...], still: list[int]) -> None:
    made = a_program(7, 7, waits=range(7))
    for waits in (0, 1):
        rows = of_chain(*places, of=7, stays=places, waits=waits)
        after = fused(made, rows, fused_ns=10.0 * sum(place + 1 for place in places))
        assert after is not None
        waiting = (after.host["wait"] == dependencies.ALL).to_numpy().reshape(2, 9)[:, 1:8]
        assert [np.flatnonzero(one).tolist() for one in waiting] == [still if waits else [*range(7)]] * 2


def launched(*names: str, ns: Sequence[float] = ()) -> pd.DataFrame:
    """Launches of a step by torch, of kernels of these names."""
    return pd.DataFrame({"name": names, "ns": ns or [8.0] * len(names)})


def chain_of(*calls: Call, **more: Any) -> Chain:
    return Chain(OTHER, calls, 0.0, **more)


def test_the_longest_launches_of_a_chain_stay() -> None:
    ns = pd.Series([5.0, 9.0, 7.0, 9.0])
    for count, stay in ((0.0, []), (1.0, [1]), (2.0, [1, 3]), (2.6, [1, 3, 2]), (9.0, [1, 3, 2, 0])):
        assert gains._longest([0, 1, 2, 3], ns, chain_of(fused_launches=count)) == stay
    own = [work("mul", launches=(3, 1)), work("mul", launches=(2,))]
    assert gains.launches_of(chain_of(*own)) == [3, 1, 2]


def test_all_between_the_launches_around_a_loop_is_of_the_loop() -> None:
    """Launches of nsys with their places in torch's step, where they match; of 3 to 4 there is the loop."""
    loop = chain_of(work("mm", launches=(3, 4)))
    columns = {"ns": [1.0, 2, 3, 9, 5, 6], gains.STAYS: [0, 0, 0, 0, 1, 0]}
    found = pd.DataFrame({"caller": ["1", "2", "", "", "4", "5"], "operator": ["", "2", "", "8", "7", ""], **columns})
    made = gains._with_loops(found, [(7, loop)])
    assert made["operator"].tolist() == ["", "2", "7", "8", "7", ""]
    assert made[gains.STAYS].tolist() == [0, 0, 0, 0, 1, 0]
    longer = gains._with_loops(found.assign(ns=[1.0, 2, 7, 9, 5, 6]), [(7, loop)])
    assert longer[gains.STAYS].tolist() == [0, 0, 1, 0, 0, 0]
    # Without a match before it begins at the first launch, without one behind it ends at the last.
    alone = gains._with_loops(found.assign(caller=["", "", "3", "", "", ""], operator=""), [(7, loop)])
    assert alone["operator"].tolist() == ["7"] * 6


def of_step(calls: Sequence[Call], *names: str, **more: Any) -> TracedStep:
    given: dict[str, Any] = {"launches": launched(*names), "sources": {}, "types": {}, "gpu": bool(names)}
    return TracedStep(calls, **given | more)


def test_bytes_that_a_call_does_not_tell_are_those_of_its_layer() -> None:
    """A convolution reads 384 bytes and writes as many as its layer needs besides; a quotient tells its own bytes."""
    calls = [
        ("convolution", [(4, 8), (8, 8, 1)], [], {"around": ("aten::conv1d",), "kind": "opaque", "launches": (0, 1)}),
        ("div", [(4, 8), ()], [(4, 8)], {"launches": (2,)}),
    ]
    launches = pd.DataFrame({"ns": [30.0, 10.0, 8.0], "needed_bytes": [640.0, np.nan, 999.0]})
    step = TracedStep(make_flow(*calls).calls, launches, {}, {}, True)
    found = gains.tabulate_autocast(step, {"dram": 2e9})
    assert found[gains.MOVED].tolist() == pytest.approx([240, 80, (128 + 4 + 128) / 2])
    assert found[gains.NARROW].tolist() == pytest.approx([120, 40, (64 + 4 + 64) / 2])
    # Input and weight are cast, each for 6 bytes per element.
    assert found[gains.CASTS].tolist() == pytest.approx([1.5, 0.5, 0])
    assert found[gains.CASTS_NS].sum() == pytest.approx(6 * 96 / 2)


X = (1024,)


def two_in(module: str, at: int = 0, size: int = 1024, **more: Any) -> list[Any]:
    """A chain of two calls of a module."""
    return [(name, [(size,)], [(size,)], {"module": module, "launches": (2 * at + number,), **more})
            for number, name in enumerate(("mul", "add"))]  # fmt: skip


PRODUCT_BETWEEN = ("mm", [(3, 3), (3, 3)], [(3, 3)], {"module": "end"})


def test_a_row_per_group_of_chains_by_hand() -> None:
    """Layers of a stack are alike; another size, direction or module is a row of its own."""
    parts = [two_in("blocks.0.norm"), two_in("blocks.1.norm"), two_in("head"), two_in("blocks.2.norm", size=512),
             two_in("blocks.3.norm", direction="backward"), two_in("blocks.4.norm", launches=(1, 2, 3))]  # fmt: skip
    calls = make_flow(*[call for part in parts for call in (*part, PRODUCT_BETWEEN)]).calls
    types = {"blocks.0.norm": "Norm", "blocks.0": "Block", "head": "Head"}
    step = of_step(calls, "k", types=types, sources={"Norm": ["torch/nn.py:1-2"], "Block": ["a.py:3-4", "b.py:5"]})
    found, numbered = table.make_chains(step, {"dram": 1e12})
    assert list(found.columns) == table.COLUMNS and found["chain"].tolist() == [0, 1, 2, 3]
    assert [number for number, _ in numbered] == [0, 0, 0, 1, 2, 3]
    assert [chain.calls[0].place for _, chain in numbered] == [0, 3, 15, 6, 9, 12]
    assert found["module"].tolist() == ["blocks.*.norm", "head", "blocks.2.norm", "blocks.3.norm"]
    assert found["type"].tolist() == ["Block", "Head", "", ""]
    assert found["source"].tolist() == ["a.py:3-4; b.py:5", "", "", ""]
    assert found["direction"].tolist() == ["forward", "forward", "forward", "backward"]
    assert set(found["operators"]) == {"mul, add"} and set(found["pattern"]) == {OTHER}
    # Each chain has 2 launches, the last 6; each call 8 ns and 8192 bytes. At 1000 bytes per ns the 8192 of a fused one
    # take 8.192 ns, and with 512 floats 4.096; at the chain's own 1024 bytes per ns it is 8, and 8 at its own 512.
    assert found["chains"].tolist() == [3, 1, 1, 1] and found["launches"].tolist() == [10, 2, 2, 2]
    assert found["fused_launches"].tolist() == [3, 1, 1, 1]
    assert found["bytes"].tolist() == [49152, 16384, 8192, 16384]
    assert found["fused_bytes"].tolist() == [24576, 8192, 4096, 8192]
    assert found["ns"].tolist() == [48, 16, 16, 16] and found["fused_ns"].tolist() == pytest.approx([24, 8, 4.096, 8])
    assert found["fused_ns_low"].tolist() == pytest.approx([24, 8, 4.096, 8])
    assert found["fused_ns_high"].tolist() == pytest.approx([24, 8, 8, 8])
    assert found[table.GAINS].isna().all(axis=None)
    empty, none = table.make_chains(of_step([]), {})
    assert empty.empty and list(empty.columns) == table.COLUMNS and none == []


def test_kernels_in_tf32_speed_products_up_that_leave_double_precision() -> None:
    wide = tensor((8, 4), "double")
    square = tensor((4, 4), "double")
    calls = make_flow(("mm", [(8, 4), square], [wide]), ("mm", [wide, square], [wide])).calls
    peaks = {"fp64": 1e13, "fp32": 2e13, "tf32": 8e13}
    # Twice as fast in single precision, eight times in tf32, of which half is certain.
    for name, times in (("plain", (2, 8, 2)), ("a_tf32_b", (8, 8, 4))):
        found, _ = table.make_chains(of_step(calls, name), peaks)
        for column, each in zip(("fused_ns", "fused_ns_low", "fused_ns_high"), times, strict=True):
            assert found[column].tolist() == pytest.approx([16 / each])


@pytest.mark.parametrize(
    ("modules", "right"),
    [
        (["a.b.c", "a.b.d"], "a.b"), (["a.b", "a.b"], "a.b"), (["a.b", "a"], "a"), (["a", "b"], "(root)"), (["(root)"], "(root)"),
        (["(others).x", "(root)", "(root)"], "(root)"), (["(root)", "a.b"], "a.b"), (["a.0.x", "a.1.x"], "a"),
    ],
)  # fmt: skip
def test_the_module_that_calls_have_in_common(modules: list[str], right: str) -> None:
    assert table.common_module([work("mul", module=one) for one in modules]) == right


def test_operators_and_lines_of_a_chain_by_hand() -> None:
    calls = [work(name) for name in ("mul", "add", "mul", "sub", "mul", "add")]
    assert table.describe_operators(calls) == "mul x 3, add x 2, sub"
    types = {"": "Net", "a": "Own", "a.b": "Linear", "c": "Bare"}
    sources = {"Net": ["n.py:9"], "Own": ["o.py:1-2", "o.py:5"], "Linear": ["torch/nn/linear.py:1"]}
    step = of_step([], types=types, sources=sources)
    given = {"a.b": ("Own", "o.py:1-2; o.py:5"), "a": ("Own", "o.py:1-2; o.py:5"), "c": ("Bare", ""), "d": ("", "")}
    assert {module: table.source_lines(step, module) for module in given} == given
    bare = of_step([], types={"x": "Linear"}, sources=sources)
    assert table.source_lines(bare, "x") == ("Linear", "torch/nn/linear.py:1")


def test_rows_that_promise_most_get_gains_with_the_ends_of_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is its kernels of 10 to 50 ns, far longer than its calls; 20 + 30 + 40 ns become 45, 30 to 60."""
    made = a_program(5, 5, 5, ns=1e6, gap=0.0)
    own = of_chain(1, 2, 3, of=5, ns=[2e6, 3e6, 4e6])
    names = ["chain", "ns", "fused_ns", "fused_ns_low", "fused_ns_high", "launches", "fused_launches"]
    rows = pd.DataFrame([[0, 9e6, 4.5e6, 3e6, 6e6, 3, 1], [1, 1e6, 1e6, 1e6, 1e6, 1, 1]], columns=names)
    rows = rows.reindex(columns=table.COLUMNS)
    idle = a_program(5, 5, 5, ns=10.0)
    found = table.add_gains(rows, own, {4: idle, 5: made, 6: idle})
    assert found["gain"].isna().tolist() == [False, True]
    ends = found.loc[0, ["gain", "gain_low", "gain_high"]].tolist()
    assert ends == pytest.approx([15 / 10.5, 15 / 12, 15 / 9], rel=1e-3)
    assert table.add_gains(rows, own, {})["gain"].isna().all()
    # 24 rows are simulated, first those with most time and launches to save: a launch is worth 10 us.
    assert table.SIMULATED == 24
    monkeypatch.setattr(table, "SIMULATED", 2)
    many, kernels = (
        pd.concat([one.assign(chain=number) for number in range(6)], ignore_index=True) for one in (rows[:1], own)
    )
    many.loc[3, "ns"], many.loc[5, "launches"] = 9e6 - 9e3, 2
    for chosen in ([0, 3, 1], [0, 5, 1]):
        few = table.add_gains(many.iloc[chosen], kernels, {5: made}).set_index("chain")["gain"]
        assert few.isna().tolist() == [False, True, False]


def test_a_fused_chain_that_takes_longer_than_now_is_refused() -> None:
    row = {"ns": [5.0, 5.0], "fused_ns": [5.0, 5.0], "launches": [2, 2], "fused_launches": [2, 2]}
    assert table._saves(pd.DataFrame(row)) is None
    for more in ({"fused_ns": [5.0, 5.1]}, {"fused_launches": [2, 3]}):
        assert table._saves(pd.DataFrame(row | more)) == "row 2: a fused chain takes longer than now"
