"""Metrics with several values per launch: samples over time, opcodes and links, as ncu prints them; and their figure."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.figures import kernel_timeline
from profzoo.tools.ncu import instances
from profzoo.tools.ncu.instances import read_instances

# Two replays that took samples: the second began 70 ms later, and its kernel 3 µs earlier after the first sample.
ZERO, LATER = 1698153949609986400, 1698153949679986400
THROUGHPUT = "TPC.TriageCompute.{}.avg.pct_of_peak_sustained_elapsed"
MIX = {"STG": 98304, "LDG": 98304, "EXIT": 65536}


def samples(zero: int, values: list[float]) -> str:
    return "; ".join(f"{zero + 1000 * at} (+{1000 * at}): {value}" for at, value in enumerate(values))


def page(
    more: Mapping[str, tuple[str, str]] | None = None, starts: str = "profiler__timestamp_workload_start_{}"
) -> str:
    """Return a raw page of one launch: metrics with their unit and field."""
    metrics = {
        THROUGHPUT.format("sm__inst_executed_realtime"): ("%", f"({samples(ZERO, [0, 0, 50, 80.5, 1])})"),
        "FBSP.TriageCompute.dramc__read_throughput.avg.pct_of_peak_sustained_elapsed": (
            "%", f"7.5 ({samples(LATER, [20, 90, 0])})"),
        "SM_A.TriageAC.l1tex__data_pipe_lsu_wavefronts.avg": ("", f"11.5 ({samples(ZERO, [0, 0, 4, 7, 0.5])})"),
        "sass__inst_executed_per_opcode": ("inst", f"262,144 ({'; '.join(f'{k}: {v}' for k, v in MIX.items())})"),
        "smsp__pcsamp_sample_count": ("", "42 (139726613238272: 40; 139726613238288: 2)"),
        "memory_type": ("", "0 (0x7f14a325d290: 4; 0x7f14a325d2a0: 4)"),
        "launch__occupancy_per_register_count": ("warp", "96 (0: 48; 32: 48)"),
        "launch__block_size": ("", "256 (0: 256)"),
        "gpu__time_duration.sum": ("ns", "3,000"),
        "nvlink__enabled_mask": ("", "0 (11520: 0; 11776: 0)"),
        "nvlink__bandwidth": ("", "0 (0: 0; 1: 0)"),
        starts.format(0): ("ns", f"1 ({ZERO + 2000} (+0): 1)"),
        starts.format(1): ("ns", f"1 ({LATER + 500} (+0): 1)"),
        **(more or {}),
    }  # fmt: skip
    lead = {"ID": ("", "3"), "Kernel Name": ("", "k"), "Block Size": ("", "(256, 1, 1)"), "CC": ("", "9.0")}
    every = {**lead, **metrics}
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([list(every), *zip(*every.values(), strict=True)])
    return "==PROF== Target process 1\n" + out.getvalue()


def of(table: pd.DataFrame, part: str) -> pd.DataFrame:
    return table[table["metric"].str.contains(part, regex=False)]


@pytest.mark.parametrize("starts", ["profiler__timestamp_workload_start_{}", "profiler__pmsampler_ctxsw_{}"])
def test_samples_are_timed_from_the_start_of_the_kernel_in_their_replay(starts: str) -> None:
    table = read_instances(page(starts=starts), "x")
    assert of(table, "sm__inst")["time_ns"].tolist() == [-2000, -1000, 0, 1000, 2000]
    assert of(table, "dramc__read")["time_ns"].tolist() == [-500, 500, 1500]
    assert of(table, "sm__inst")["value"].tolist() == [0, 0, 50, 80.5, 1]
    assert set(of(table, "sm__inst")["kind"]) == {"time"} and set(of(table, "sm__inst")["unit"]) == {"%"}


def test_an_entry_without_a_time_before_the_samples_is_none_of_them() -> None:
    """As ncu 2025.3 prints it, where other releases print the value of the launch."""
    name = "LTS.TriageCompute.lts__average_t_sector_hit_rate_realtime.pct"
    table = of(read_instances(page({name: ("%", f"(0 (+0): 49.40; {samples(ZERO, [10, 90])})")}), "x"), "hit_rate")
    assert table["value"].tolist() == [10, 90] and set(table["kind"]) == {"time"}


def test_samples_without_a_start_are_timed_from_the_first() -> None:
    table = read_instances(page(starts="profiler__other_{}"), "x")
    assert of(table, "sm__inst")["time_ns"].tolist() == [0, 1000, 2000, 3000, 4000]


def test_values_add_up_to_what_ncu_prints_for_the_launch() -> None:
    table = read_instances(page(), "x")
    assert of(table, "wavefronts")["value"].sum() == 11.5
    mix = of(table, "per_opcode").set_index("instance")["value"]
    assert mix.to_dict() == MIX and mix.sum() == 262_144


def test_instructions_links_that_are_not_there_and_single_values_are_left_out() -> None:
    table = read_instances(page(), "x")
    assert not set(table["metric"]) & {"smsp__pcsamp_sample_count", "memory_type", "launch__block_size"}
    assert not table["metric"].str.startswith(("nvlink__", "profiler__")).any()
    assert set(of(table, "launch__")["kind"]) == {"occupancy"}


def test_links_that_are_there_are_told_with_words_and_numbers() -> None:
    more = {
        "nvlink__enabled_mask": ("", "262143 (0: 262143; 1: 262143)"),
        "nvlink__bandwidth": ("Gbyte/second", "50 (0: 25; 1: 25)"),
        "nvlink__dev_display_name_all": ("", "2 (0: NVIDIA H100; 1: NVSwitch: 3)"),
    }
    table = read_instances(page(more), "x")
    bandwidth = of(table, "nvlink__bandwidth")
    assert bandwidth["value"].tolist() == [25e9, 25e9] and set(bandwidth["unit"]) == {"byte/s"}
    assert of(table, "display_name")["text"].tolist()[0] == "NVIDIA H100" and set(bandwidth["kind"]) == {"link"}


def test_a_report_without_machine_code_has_no_opcodes_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {"with": page(), "without": page().replace("sass__inst", "inst")}
    monkeypatch.setattr(instances, "print_page", lambda report, words, launch: pages[report])
    chosen = pd.DataFrame({"place": [1], "id": [3], "function": ["k"], "mangled": ["k"]})
    monkeypatch.setattr(instances, "read_expensive", lambda launches, kernels: chosen)
    said: list[str] = []
    for report in pages:
        instances.export_instances(report, "x.csv", 1, str(tmp_path / f"{report}.csv"), said.append)
    (line,) = said
    assert line.startswith(f"{tmp_path}/without.csv: the report does not tell which") and "sass: true" in line


@pytest.mark.parametrize("printed", ["", "==ERROR== nothing\n", page() + page().partition("\n")[2]])
def test_a_page_of_other_than_one_launch_is_named_in_one_line(printed: str) -> None:
    with pytest.raises(DataError, match=r"^train.x.ncu-rep: the raw page of one launch has not") as caught:
        read_instances(printed, "train.x.ncu-rep")
    assert "\n" not in str(caught.value)


def course(
    place: int, function: str, ns: Sequence[int], unit: str = "sm__throughput", value: float = 50
) -> pd.DataFrame:
    metric = f"TPC.TriageCompute.{unit}.avg.pct_of_peak_sustained_elapsed"
    return pd.DataFrame({"place": place, "id": place, "function": function, "metric": metric, "kind": "time",
                         "time_ns": ns, "value": value})  # fmt: skip


def test_kernels_of_few_samples_and_units_that_idle_are_not_drawn() -> None:
    """As on an H200: most kernels of a network are shorter than a few samples, and draw empty panels."""
    long, short = range(-2000, 22_000, 1000), range(-2000, 6_000, 1000)
    told = pd.concat([course(1, "long", long), course(1, "long", long, "dramc__throughput"),
                      course(1, "long", long, "sm__pipe_tensor_cycles_active", 0.2), course(2, "short", short)])  # fmt: skip
    times = pd.Series({1: 20_000.0, 2: 4000.0})
    figure = kernel_timeline.draw(told, times)
    (axis,) = figure.axes
    assert {line.get_label() for line in axis.get_lines()} == {"SM", "DRAM"}
    assert axis.get_title(loc="left") == "1. long, 20.0 µs" and axis.get_xlabel().endswith("left out: 1")
    nothing = kernel_timeline.draw(told[told["place"] == 2], times)
    assert "--pm-sampling-interval" in nothing.axes[0].texts[0].get_text()
    plt.close("all")


def test_the_figure_shows_each_unit_from_the_start_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_timeline, "LEAST_SAMPLES", 2)
    told = read_instances(page(), "x").assign(place=1, id=3, function="k", mangled="k")
    both = pd.concat([told, told.assign(place=2, id=4, function="other")], ignore_index=True)
    figure = kernel_timeline.draw(both, pd.Series({3: 3000.0, 4: 2000.0}))
    plt.close(figure)
    first, second = figure.axes
    lines = {line.get_label(): line for line in first.get_lines()}
    assert set(lines) == {"SM", "DRAM, reads"}
    assert list(lines["SM"].get_xdata()) == [0, 1, 2] and list(lines["SM"].get_ydata()) == [50, 80.5, 1]
    assert (first.get_title(loc="left"), second.get_title(loc="left")) == ("1. k, 3.0 µs", "2. other, 2.0 µs")
    # What ends before the longest kernel is drawn to its own end.
    assert second.get_xlim()[1] < first.get_xlim()[1]
