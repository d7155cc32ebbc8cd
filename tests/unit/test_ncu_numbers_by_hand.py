"""Units, values, factors and costs of ncu's numbers, each with its answer worked out by hand."""

import json
from pathlib import Path

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.tools.ncu import (
    cost_history,
    costs,
    derived_metrics,
    export_schema,
    interval_calibration,
    number_parsing,
    quantities,
)
from profzoo.tools.ncu.cost_history import Outcome
from profzoo.tools.ncu.costs import MEASURED, PARTS, PROBED, Cost
from profzoo.tools.ncu.number_parsing import ValueFormatError
from profzoo.tools.ncu.quantity import Kind, Sum
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS


@pytest.mark.parametrize(
    ("unit", "base", "factor"),
    [
        ("nsecond", "ns", 1),
        ("ns", "ns", 1),
        ("usecond", "ns", 1_000),
        ("us", "ns", 1_000),
        ("\u00b5s", "ns", 1_000),
        ("msecond", "ns", 1_000_000),
        ("ms", "ns", 1_000_000),
        ("second", "ns", 1_000_000_000),
        ("s", "ns", 1_000_000_000),
        ("milliseconds", "ns", 1_000_000),
        ("Kbyte", "byte", 10**3),
        ("Mbyte", "byte", 10**6),
        ("Gbyte", "byte", 10**9),
        ("Tbyte", "byte", 10**12),
        ("Pbyte", "byte", 10**15),
        ("Ebyte", "byte", 10**18),
        ("KiB", "byte", 2**10),
        ("MiB", "byte", 2**20),
        ("Gibytes", "byte", 2**30),
        ("TiB", "byte", 2**40),
        ("B", "byte", 1),
        ("bytes", "byte", 1),
        ("%", "%", 1),
        ("pct", "%", 1),
        ("instruction", "inst", 1),
        ("Kinst", "inst", 1000),
        ("Mbyte/s", "byte/s", 10**6),
        ("byte/us", "byte/s", 10**6),
        ("Kbyte/msecond", "byte/s", 10**6),
        ("Gbyte/second", "byte/s", 10**9),
        ("register/thread", "register/thread", 1),
        ("inst/cycle", "inst/cycle", 1),
        ("Kinst/cycles", "inst/cycle", 1000),
        ("zebra", "zebra", 1),
        ("", "", 1),
    ],
)
def test_units_and_what_they_are_multiples_of(unit: str, base: str, factor: int) -> None:
    assert number_parsing.base_unit(unit) == (base, factor)


@pytest.mark.parametrize("unit", ["Kfoo", "Mb", "byte/Kblock", "decaseconds", "byte/Kfoo"])
def test_units_that_may_be_multiples_are_refused(unit: str) -> None:
    with pytest.raises(ValueFormatError, match="may be a multiple of a unit"):
        number_parsing.base_unit(unit)


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        (["1.234"], "1.234"),
        (["1.234", "2.345"], "1.234"),
        # Other numbers of the page are English.
        (["1.234", "7.25"], None),
        (["1.234", "7,250", "n"], None),
        (["1.234.567", "7.25"], "1.234.567"),
        (["9.234.567", "2.345", "n"], "2.345"),
        (["1234", "12"], None),
        ([], None),
    ],
)
def test_numbers_of_other_locales(printed: list[str], found: str | None) -> None:
    assert number_parsing.find_foreign_number(printed) == found


def column(*cells: str) -> pd.Series:
    return pd.Series(list(cells), dtype="str")


def test_values_in_base_units() -> None:
    found, unit = number_parsing.normalize_column("a", column("1,234.5", "n/a", "2", "(!) nan", "-inf", ""), "Kbyte")
    assert (found.tolist(), unit) == (["1234500.0", "", "2000", "", "", ""], "byte")
    found, unit = number_parsing.normalize_column("a", column("1,234.50", "7"), "byte")
    assert (found.tolist(), unit) == (["1234.50", "7"], "byte")
    found, unit = number_parsing.normalize_column("a", column("yes", "7", "n/a"), "")
    assert (found.tolist(), unit) == (["yes", "7", "n/a"], "")
    # A list of numbers is text, whatever it looks like.
    found, _ = number_parsing.normalize_column("launch__tpc_enabled", column("1, 2", "3"), "")
    assert found.tolist() == ["1, 2", "3"]


@pytest.mark.parametrize(
    ("cells", "unit", "said"),
    [
        (["yes"], "byte", "in byte, holds 'yes', which is no number"),
        (["1.234,5"], "", "holds '1.234,5', which is no number as ncu prints it in English"),
        (["1"], "12", "is in '12', which is no unit"),
        (["1"], "n/a", "is in 'n/a', which is no unit"),
    ],
)
def test_values_that_cannot_be_read(cells: list[str], unit: str, said: str) -> None:
    with pytest.raises(ValueFormatError, match=f"^{said}"):
        number_parsing.normalize_column("a", column(*cells), unit)


@pytest.mark.parametrize(
    ("cells", "kind", "found"),
    [
        (["1", "", "2,000"], "Int64", [1, None, 2000]),
        (["1.0", "3"], "Int64", [1, 3]),
        (["1.5", "3"], "float64", [1.5, 3.0]),
        ([str(2**63 - 1)], "Int64", [2**63 - 1]),
        ([f"-{2**63 - 1}"], "Int64", [1 - 2**63]),
        ([str(2**63)], "float64", [2.0**63]),
        ([str(2**63 + 5), "1"], "float64", [2.0**63, 1.0]),
        (["", ""], "float64", [None, None]),
        (["1", "x"], "str", ["1", "x"]),
        (["x", "1", ""], "str", ["x", "1", ""]),
    ],
)
def test_columns_as_numbers(cells: list[str], kind: str, found: list) -> None:
    numbers = number_parsing.parse_numbers(column(*cells))
    assert str(numbers.dtype) == kind and numbers.astype(object).where(numbers.notna(), None).tolist() == found


SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"


@pytest.mark.parametrize(
    ("quantity", "factors"),
    [
        ("ncu_ns", {"gpu__time_duration.sum": 1}),
        ("dram_bytes", {"dram__bytes_read.sum": 1, "dram__bytes_write.sum": 1}),
        ("fp64_flop", {SASS.format("dadd"): 1, SASS.format("dmul"): 1, SASS.format("dfma"): 2}),
        (
            "fp32_flop",
            {SASS.format(f"f{name}"): times for name, times in
             {"add": 1, "mul": 1, "fma": 2, "add2": 2, "mul2": 2, "fma2": 4}.items()},
        ),
        ("tensor_bf16_flop", {"sm__ops_path_tensor_src_bf16_dst_fp32.sum": 1}),
        ("tensor_tf32_flop", {"sm__ops_path_tensor_src_tf32_dst_fp32.sum": 1}),
        ("tensor_fp16_flop", {"sm__ops_path_tensor_src_fp16.sum": 1}),
        ("store_needed_sectors", {"smsp__sass_data_bytes_mem_global_op_st.sum": 1 / 32}),
        ("load_needed_sectors", {f"smsp__sass_data_bytes_mem_global_op_{way}.sum": 1 / 32 for way in ("ld", "ldgsts")}),
        ("local_sectors", {f"l1tex__t_sectors_pipe_lsu_mem_local_op_{way}.sum": 1 for way in ("ld", "st")}),
        ("l2_pct", {"lts__t_sectors.avg.pct_of_peak_sustained_elapsed": 1}),
        ("stall_math_cycles", {"smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio": 1}),
    ],
)  # fmt: skip
def test_factors_of_metrics(quantity: str, factors: dict[str, float]) -> None:
    assert quantities.QUANTITIES[quantity].sums[0].factors == factors
    # They are numbers wherever they were collected, and one of each tells that there is the metric.
    assert set(factors) <= quantities.NUMBERS and all(quantities.has_metric(name, list(factors)) for name in factors)


@pytest.mark.parametrize(
    ("given", "capability", "expected"),
    [
        ("dram__bytes_read.sum", 11.9, ["dram__bytes_read.sum"]),
        ("dram__bytes_op_read.sum", 12.0, ["dram__bytes_op_read.sum"]),
        (SASS.format("fadd2"), 9.9, []),
        (SASS.format("fadd"), 9.9, [SASS.format("fadd")]),
        ("sm__ops_path_tensor_src_bf16_dst_fp32.sum", 7.9, []),
        ("sm__ops_path_tensor_src_bf16_dst_fp32.sum", 8.0, ["sm__ops_path_tensor_src_bf16_dst_fp32.sum"]),
        ("sm__ops_path_tensor_src_tf32_dst_fp32.sum", 8.0, ["sm__ops_path_tensor_src_tf32_dst_fp32.sum"]),
        ("sm__ops_path_tensor_src_tf32_dst_fp32.sum", 7.5, []),
        ("sm__ops_path_tensor_src_fp64_dst_fp64.sum", 8.0, ["sm__ops_path_tensor_src_fp64_dst_fp64.sum"]),
        ("smsp__sass_data_bytes_mem_global_op_st.sum", 0.5, ["smsp__sass_data_bytes_mem_global_op_st.sum"]),
    ],
)
def test_metrics_by_compute_capability(given: str, capability: float, expected: list[str]) -> None:
    found = quantities.metrics_to_ask([given], capability)
    assert [name for name in found if name in {given, *expected}] == expected


def test_metrics_that_columns_tell() -> None:
    read, write = "dram__bytes_op_read.sum", "dram__bytes_op_write.sum"
    assert quantities.has_metric("dram__bytes_read.sum", [read, write, "x"]) and quantities.has_metric(
        "x__y", ["z", "x__y.sum"]
    )
    assert not quantities.has_metric("dram__bytes_read.sum", [read, "x"]) and not quantities.has_metric(
        "own.sum", [read, write]
    )


def test_what_gpus_have() -> None:
    """From one compute capability on, below another; without either nothing is known."""
    one = Sum({"x": 1}, since=8, before=9)
    assert [one.on(capability) for capability in (7.9, 8.0, 8.9, 9.0)] == [False, True, True, False] and one.limited
    assert not Sum({"x": 1}).limited and Sum({"x": 1}, since=8).limited and Sum({"x": 1}, before=9).limited
    assert Sum({"x": 1}).on(0.0) and Sum({"x": 1}).on(0.5)


def test_what_adds_up_and_what_is_of_a_launch() -> None:
    assert quantities.OF_LAUNCH == ["waves", "multiprocessors", "registers"]
    kinds = {name: quantity.kind for name, quantity in quantities.QUANTITIES.items()}
    assert kinds["dram_bytes"] is Kind.SUM and "dram_bytes" in quantities.ADDITIVE
    assert kinds["l2_hit_pct"] is Kind.RATIO and "l2_hit_pct" not in quantities.ADDITIVE
    assert kinds["l2_pct"] is Kind.OF_TIME and "l2_pct" not in quantities.ADDITIVE


def test_shares_by_what_values_are_relative_to() -> None:
    """Hits by sectors; percentages of time by that; what is of a launch by one; without sectors, hits by time."""
    table = pd.DataFrame({
        "lts__t_sector_hit_rate.pct": [50.0, None], "lts__t_sectors.sum": [10.0, 30.0],
        "launch__waves_per_multiprocessor": [2.0, 4.0],
        "lts__t_sectors.avg.pct_of_peak_sustained_elapsed": [20.0, 40.0],
    })  # fmt: skip
    times = pd.Series([100.0, 300.0])
    parts, weights = derived_metrics.split_into_sums(table, derived_metrics.derive_quantities(table), times)
    assert weights.to_dict("list") == {"l2_pct": [100, 300], "l2_hit_pct": [10, 0], "waves": [1, 1]}
    assert parts.to_dict("list") == {"l2_pct": [2000, 12000], "l2_hit_pct": [500, 0], "waves": [2, 4]}
    fewer = table.drop(columns="lts__t_sectors.sum")
    assert derived_metrics.split_into_sums(fewer, derived_metrics.derive_quantities(fewer), times)[1][
        "l2_hit_pct"
    ].tolist() == [100, 0]


def test_shares_by_a_product_of_metrics() -> None:
    """Cycles of warps by instructions: as many as are issued by cycle, times time or cycles; nothing where one lacks."""
    table = pd.DataFrame({
        "smsp__average_warp_latency_per_inst_issued.ratio": [6.0, 8.0, 9.0],
        "smsp__issue_active.avg.per_cycle_active": [0.5, 0.25, None],
    })  # fmt: skip
    weights = derived_metrics.split_into_sums(
        table, derived_metrics.derive_quantities(table), pd.Series([100.0, 300.0, 7.0])
    )[1]["warp_cycles"]
    assert weights[:2].tolist() == [50, 75] and not weights[2] > 0
    more = table.assign(**{"sm__cycles_active.avg": [10.0, 20.0, 30.0]})
    assert derived_metrics.split_into_sums(more, derived_metrics.derive_quantities(more), pd.Series([100.0, 300.0, 7.0]))[1]["warp_cycles"][:2].tolist() == [
        5, 5
    ]  # fmt: skip


# Costs in small: two sections of one pass, two of several, one that full lacks; metrics of one pass and of three.
SMALL = {
    "sets": {"full": {"passes": 9, "seconds": 9.0}},
    "sections": {
        "One": {"passes": 1, "seconds": 0.25},
        "Two": {"passes": 1, "seconds": 0.5},
        "Some": {"passes": 3, "seconds": 1.0},
        "Many": {"passes": 4, "seconds": 2.0},
        "Odd": {"passes": 2, "seconds": 0.25},
        "Beyond": {"passes": 5, "seconds": 3.0},
    },
    "metrics": [{"match": "^cheap", "passes": 1, "seconds": 0.125}, {"match": "", "passes": 3, "seconds": 0.75}],
    "ncu_sets": {"full": {"passes": 9, "seconds": 4.0, "without": ["Beyond"]}, "basic": ["One", "Some"]},
    "multi_pass_s": 0.5,
}


@pytest.mark.parametrize(
    ("chosen", "passes", "seconds", "basis"),
    [
        # Shipped as it is, whatever its launches.
        ({"set": "full"}, 9, 9.0, MEASURED),
        ({"set": "full", "launches": 3}, 9, 9.0, MEASURED),
        # One pass takes what its dearest part does.
        ({"sections": ["One", "Two"]}, 1, 0.5, PARTS),
        ({"sections": ["One", "Unheard"]}, 1, 0.25, PARTS),
        ({"sections": ["Unheard"]}, 1, 0.0, PARTS),
        # Several share the first pass, and half a second.
        ({"sections": ["Some", "Many"]}, 6, 0.5 + 0.5 + 1.5, PARTS),
        ({"sections": ["One", "Some"]}, 3, 1.0, PARTS),
        ({"sections": ["Odd", "Some"]}, 4, 1.0, PARTS),
        ({"sections": "regex:^(Some|Many)$"}, 6, 2.5, PARTS),
        ({"set": "basic"}, 3, 1.0, PARTS),
        ({"set": "basic", "sections": ["Some", "Many"]}, 6, 2.5, PARTS),
        # No more than all of ncu's.
        ({"sections": ["Some", "Many", "Odd"]}, 7, 2.5, PARTS),
        ({"set": "full", "sections": ["Some"]}, 9, 4.0, PARTS),
        ({"set": "full", "sections": ["Beyond"]}, 13, 0.5 + 3.5 + 2.5, PARTS),
        ({"sections": ["Some", "Many", "Beyond"]}, 10, 5.0, PARTS),
        # Metrics of one kind are collected together; those of several passes are beyond full.
        ({"metrics": ["cheap.a", "cheap.b"]}, 1, 0.125, PARTS),
        ({"metrics": ["dear.a", "dear.b", "cheap.a"]}, 3, 0.75, PARTS),
        ({"metrics": ["dear.a"], "sections": ["Some", "Many", "Odd"]}, 9, 2.75, PARTS),
        ({"metrics": ["cheap.a"], "sections": ["One"]}, 1, 0.25, PARTS),
    ],
)
def test_costs_of_sets(chosen: dict, passes: int, seconds: float, basis: str) -> None:
    assert costs.estimate_cost(chosen, SMALL) == Cost(passes, seconds, basis)


def test_parts_cost_no_more_than_all() -> None:
    """Three parts of 8 passes and 4.5 s, of 6 and 3 s in all."""
    few = SMALL | {"ncu_sets": {"full": {"passes": 6, "seconds": 2.25, "without": ["Beyond"]}}}
    assert costs.estimate_cost({"sections": ["Some", "Many", "Odd"]}, few) == Cost(6, 2.25, PARTS)
    # But for what is beyond it.
    assert costs.estimate_cost({"sections": ["Some", "Many", "Beyond"]}, few) == Cost(10, 5.0, PARTS)
    assert costs.estimate_cost({"sections": ["Some", "Many"], "metrics": ["dear.a"]}, few) == Cost(8, 2.75, PARTS)
    assert costs.estimate_cost({"sections": ["Some", "Many", "Odd"], "metrics": ["cheap.a"]}, few) == Cost(
        6, 2.25, PARTS
    )


@pytest.mark.parametrize(
    ("chosen", "unknown"),
    [
        ({"set": "full"}, False),
        ({"sections": ["One"]}, False),
        ({"sections": ["One", "Unheard"]}, True),
        ({"sections": "regex:Unheard"}, False),
        ({"metrics": ["cheap.a"]}, False),
        ({"metrics": ["cheap.a", "dear.a"]}, True),
        ({"set": "basic", "metrics": ["cheap.a"]}, False),
        ({"set": "unheard"}, True),
    ],
)
def test_sets_that_nobody_measured(chosen: dict, unknown: bool) -> None:
    assert costs.lacks_cost(chosen, SMALL) == unknown


ASKED = {"metrics": ["x.sum"]}
OWN = cost_history.collection_key(
    ["--metrics", "x.sum,launch__shared_mem_per_block_static,launch__shared_mem_per_block_dynamic"]
)
SHIPPED, PROBE = Cost(6, 0.5), Cost(3, 0.25, PROBED)


@pytest.mark.parametrize(
    ("known", "probed", "price"),
    [
        ([], None, SHIPPED),
        ([], PROBE, PROBE),
        # Two runs of the set, of 10 and 30 launches, took 4 and 16 s.
        ([Outcome(OWN, 10, 1.0, 4.0), Outcome(OWN, 30, 2.0, 16.0)], None, Cost(6, 0.5, cost_history.HERE)),
        ([Outcome(OWN, 10, 1.0, 4.0), Outcome((), 30, 2.0, 16.0)], PROBE, Cost(3, 0.4, cost_history.HERE)),
        # Others took 20 s where 5 were expected.
        ([Outcome((), 10, 1.0, 4.0), Outcome((), 30, 4.0, 16.0)], None, Cost(6, 2.0)),
        ([Outcome((), 10, 1.0, 4.0)], PROBE, PROBE),
    ],
)
def test_prices_by_what_is_known(known: list[Outcome], probed: Cost | None, price: Cost) -> None:
    assert cost_history.estimate_price(ASKED, SHIPPED, known, probed) == price


PLAN = {"replay": "kernel", "launches": 10, "launch_s": 0.5, "shipped_s": 0.25, "estimate_s": 9.0}


@pytest.mark.parametrize(
    ("plan", "wall_s", "took"),
    [
        # Besides 10 launches of 0.5 s, 4 s were planned, of the 10 that it took.
        ({}, 10.0, (2.5, 6.0)),
        ({"shipped_s": None}, 10.0, (5.0, 6.0)),
        ({"replay": "application"}, 10.0, None),
        ({"launches": 0}, 10.0, None),
        ({}, 4.0, None),
        ({}, 3.0, None),
        ({}, 4.5, (2.5, 0.5)),
    ],
)
def test_outcomes_of_plans(tmp_path: Path, plan: dict, wall_s: float, took: tuple | None) -> None:
    said = {name: value for name, value in (PLAN | plan).items() if value is not None}
    facts = {"gpu": "H100", "plan": said, "wall_s": wall_s, "options": ["--set", "full", "--devices", "0"]}
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell/train.full.ncu-rep.json").write_text(json.dumps(facts))
    found = cost_history.read_history(tmp_path, "H100")
    assert found == ([] if took is None else [Outcome((("--set", "full"),), 10, *took)])
    assert cost_history.read_history(tmp_path, "A100") == []


def test_half_widths_of_totals() -> None:
    """Reads of 60 by 6 and writes of 40 by 10 are 100 by 16; fused operations count twice, of both kinds."""
    totals = {
        "dram__bytes_read.sum": [60.0, 54.0, 66.0],
        "dram__bytes_write.sum": [40.0, 30.0, 50.0],
        **{SASS.format(name): [10.0, 9.0, 11.0] for name in ("hadd", "hmul", "dadd", "dmul")},
        SASS.format("hfma"): [30.0, 25.0, 35.0],
        SASS.format("dfma"): [5.0, 2.0, 8.0],
        "lts__t_sectors.sum": [0.0, 0.0, 4.0],
    }
    found = interval_calibration.relative_half_widths(totals)
    assert found == {
        "dram_bytes": 0.16,
        "operations": pytest.approx((4 * 1 + 2 * 5 + 2 * 3) / (4 * 10 + 2 * 30 + 2 * 5)),
    }


@pytest.mark.parametrize(("expected", "said"), [(0.125, False), (0.12, True), (None, False)])
def test_totals_that_came_out_clearly_less_sure(expected: float | None, said: bool) -> None:
    """Within 18.75 %, one and a half times of 12.5 %."""
    totals = {"lts__t_bytes.sum": [64.0, 52.0, 76.0], "dram__bytes.sum": [64.0, 60.0, 68.0]}
    note = interval_calibration.describe_wider_intervals(totals, expected)
    assert (note is not None) == said and (note or "totals of l2_bytes").startswith("totals of l2_bytes")
    assert interval_calibration.describe_wider_intervals({}, 0.1) is None


CENSUS = pd.DataFrame({"id": [1, 0, 2], "kernel": "k", "mangled": "k", "function": "k", "range": "", "stream": 7})
CENSUS = CENSUS.assign(**dict.fromkeys(KEYS[1:], 1), launches=3, **{"gpu__time_duration.sum": [2.5, 3.5, 4.5]})


def test_a_census_is_read_in_the_order_of_its_launches(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    CENSUS.assign(
        multiplicity=[1.5, 2.5, None], time_spread=1.5, run=1, launch=[0, 1, None], stratum=0, as_planned=True
    ).to_csv(path, index=False)
    found = export_schema.read_census(path)
    assert found["id"].tolist() == [0, 1, 2] and found.index.tolist() == [0, 1, 2]
    assert found["gpu__time_duration.sum"].tolist() == [3.5, 2.5, 4.5]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("multiplicity", ["x", 1, 1]),
        ("time_spread", ["x", 1, 1]),
        ("time_ratio", ["x", 1, 1]),
        ("run", [1.5, 1, 1]),
        ("launch", [-1, 1, 1]),
        ("stratum", ["x", 1, 1]),
        ("as_planned", ["perhaps", True, True]),
        ("stream", ["x", 7, 7]),
        ("launches", [None, 3, 3]),
        ("launches", [3, 3, 2]),
        ("launches", [2, 3, 3]),
        ("id", [3, 0, 2]),
        ("id", [1, 1, 2]),
        ("smem_static_bytes", ["x", 1, 1]),
        ("gpu__time_duration.sum", [None, 1, 1]),
        ("dram__bytes_read.sum", ["x", 1, 1]),
    ],
)
def test_a_census_with_other_values_is_refused(tmp_path: Path, name: str, values: list) -> None:
    path = tmp_path / "x.csv"
    CENSUS.assign(**{name: values}).to_csv(path, index=False)
    with pytest.raises(DataError):
        export_schema.read_census(path)


def test_the_launch_of_which_there_are_not_as_many_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    CENSUS.assign(launches=[3, 3, 4]).to_csv(path, index=False)
    with pytest.raises(DataError, match="of launch 2 there are not 4 alike"):
        export_schema.read_census(path)
