"""What samples of NVML and tables of the baseline say, worked out by hand; NVML's own numbers are those of nvml.h."""

import signal
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo import tools
from profzoo.tools.sample import activity, command, doctor, nvml, sampler, tables
from profzoo.tools.time import command as time_command
from profzoo.tools.time import tables as time_tables
from tests import nvml as standin
from tests.unit.test_sample import facts, raw


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standin.built(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def loaded(library: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Of this process; what its GPUs are is told by the environment."""
    return standin.load_here(library, monkeypatch)


@pytest.mark.parametrize(
    ("mode", "instant", "mean"), [("", True, False), ("old", False, True), ("silent", False, False)]
)
def test_a_gpu_is_read(loaded: pytest.MonkeyPatch, mode: str, instant: bool, mean: bool) -> None:
    """What the stand-in tells: power at a moment or of a second, which lies at 200 W on the whole, or neither."""
    loaded.setenv("STANDIN_NVML", mode)
    with nvml.open_library() as opened:
        device = opened.device(standin.UUIDS[0])
        told = device.reading()
    assert device.power_is == (nvml.INSTANT if instant else nvml.MEAN) and device.power_limit_mw == 700_000
    assert (told["power_mw"] is not None) == (instant or mean)
    if mean:
        assert told["power_mw"] == pytest.approx(200_000, rel=0.01)
    elif instant:
        assert 100_000 <= told["power_mw"] <= 300_000
    assert (told["sm_clock_mhz"], told["memory_clock_mhz"], told["temperature_c"]) == (1980, 2619, 61)
    assert (told["gpu_utilisation_pct"], told["memory_utilisation_pct"]) == (87, 42)
    assert told["memory_used_bytes"] == 2**36 and tuple(told) == nvml.READ
    # More than 32 bits: 200 J a second since the machine began.
    now = standin.energy_j(time.perf_counter_ns()) * 1e3
    assert (told["energy_mj"] is None) == (mode == "silent")
    assert told["energy_mj"] is None or told["energy_mj"] == pytest.approx(now, abs=60_000)


def test_gpus_are_told_apart(loaded: pytest.MonkeyPatch) -> None:
    loaded.setenv("STANDIN_GPUS", "2")
    with nvml.open_library() as opened:
        assert [one["gpu_uuid"] for one in opened.present()] == standin.UUIDS
        assert {one["gpu"] for one in opened.present()} == {"NVIDIA H200"} and opened.driver() == "580.159.04"
        with pytest.raises(nvml.NvmlError, match="NVML: nvmlDeviceGetHandleByUUID: Not Found"):
            opened.device("GPU-none")
        loaded.setenv("CUDA_VISIBLE_DEVICES", standin.UUIDS[1])
        rows: list = []
        sampler.make_writer(sampler.visible_gpus(opened), rows.append)()
        assert rows[0] == [*sampler.HEADING, *nvml.READ] and rows[1][1:4] == [standin.UUIDS[1], nvml.INSTANT, 700_000]
        loaded.setenv("CUDA_VISIBLE_DEVICES", "-1")
        with pytest.raises(nvml.NvmlError, match="no GPU is visible"):
            sampler.visible_gpus(opened)


@pytest.mark.parametrize(
    ("gpus", "mode", "said"),
    [("1", "", "1 GPU(s)"), ("2", "silent", "2 GPU(s); no power, energy"), ("0", "", "no GPU")],
)
def test_doctor_says_what_there_is(loaded: pytest.MonkeyPatch, gpus: str, mode: str, said: str) -> None:
    loaded.setenv("STANDIN_GPUS", gpus)
    loaded.setenv("STANDIN_NVML", mode)
    found = doctor.check_nvml()
    assert (found.found, found.advice) == (f"580.159.04, {said}", "see GPU above" if gpus == "0" else None)
    for lacking in ("GPU", "torch CUDA", "torch", "NVML"):
        assert doctor.describe_use(frozenset({lacking, "other"})) is None
    assert doctor.describe_use(frozenset({"other"})) == "sample"


def test_a_program_is_sampled_at_the_interval() -> None:
    """At 0, 100, 200 ms and so on while it runs, never more often; at once as it ends, whatever is left to wait."""
    before, times = signal.pthread_sigmask(signal.SIG_BLOCK, ()), []
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(0.25); raise SystemExit(7)"]
    began = time.perf_counter()
    assert sampler.run_and_sample(sleep, lambda: times.append(time.perf_counter() - began), 100_000_000) == 7
    assert 2 <= len(times) <= (time.perf_counter() - began) / 0.1 + 1
    count: list[int] = []
    killed = [sys.executable, "-S", "-c", "import os; os.kill(os.getpid(), 9)"]
    began = time.perf_counter()
    assert sampler.run_and_sample(killed, lambda: count.append(1), 60_000_000_000) == 128 + 9
    assert count == [1] and time.perf_counter() - began < 30
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_a_window_lasts_until_a_move_of_the_counter_is_a_fiftieth() -> None:
    """Fifty moves of 100 ms, and 300 ms in which it begins and ends between two."""
    assert float(command.program_options({"steps": Path("x")})[-1]) == pytest.approx(5.3)
    assert command.program_options({"steps": Path("x")})[:3] == ["--steps", "x", "--at-least-s"]
    assert [command.wrap_command([], {"samples": Path("x")}, count)[:1] for count in (1, 2)] == [["python"]] * 2
    assert "first" not in command.wrap_command([], {"samples": Path("x")}, 1)
    assert command.wrap_command([], {"samples": Path("x")}, 2)[3:7] == ["first", *command.SAMPLER]


def test_every_column_is_in_its_base_unit() -> None:
    columns = {"power_mw": 1_500, "sm_clock_mhz": 2, "memory_clock_mhz": 3, "temperature_c": 61, "gpu_utilisation_pct": 87,
               "memory_utilisation_pct": 42, "memory_used_bytes": 2**36, "throttle_reasons": 4, "energy_mj": [2_000, 5_000]}  # fmt: skip
    row = tables.select_window(raw([10, 20], **columns), 10, 10, 3).iloc[-1]
    assert row.to_dict() == {
        "process": 3, "t_ns": 10, "gpu_uuid": "a", "power_w": 1.5, "sm_clock_hz": 2e6, "memory_clock_hz": 3e6,
        "temperature_c": 61, "gpu_utilisation_pct": 87, "memory_utilisation_pct": 42, "memory_used_bytes": 2**36,
        "throttle_reasons": 4, "energy_j": 3,
    }  # fmt: skip


def sampled(times: dict[tuple[int, str], list[int]]) -> pd.DataFrame:
    """When each GPU was sampled in each process."""
    rows = [{"process": process, "gpu_uuid": uuid, "t_ns": at} for (process, uuid), own in times.items() for at in own]
    return pd.DataFrame(rows, columns=["process", "gpu_uuid", "t_ns"])


def test_the_gpu_with_the_fewest_samples_decides() -> None:
    ten, nine = list(range(10)), list(range(9))
    windows = [{"window_wall_ns": 3_000_000}, {"window_wall_ns": 2_000_000}]
    whole = {(process, uuid): ten for process in (0, 1) for uuid in "ab"}
    assert tables.find_gaps(sampled(whole), windows, ["a", "b", "b"]) == []
    (said,) = tables.find_gaps(sampled(whole | {(1, "a"): nine}), windows, ["a", "b"])
    assert said.startswith("the window of 2 ms holds 9 sample(s), but at least 10 are needed")
    # One that is lacking in a process, a process without any, and no sample at all.
    for lacking in ({(0, "a"): ten, (1, "b"): ten}, {(0, "a"): ten}, {}):
        assert "holds 0 sample(s)" in tables.find_gaps(sampled(lacking), windows, [])[0]
    assert tables.find_gaps(sampled(whole), windows, ["a", "b", "c"]) == [
        "only 2 of 3 GPUs were sampled: the GPUs of the first node"
    ]


def test_the_interval_is_of_each_gpus_samples() -> None:
    """2, 4 and 9 ms, not what lies between one GPU's and another's."""
    times = {(0, "a"): [0, 2_000_000, 6_000_000], (0, "b"): [1, 9_000_001], (1, "a"): [50_000_000]}
    assert tables.mean_interval_ms(sampled(times)) == 5
    assert tables.mean_interval_ms(sampled({(0, "a"): [1], (1, "a"): [7]})) is None


def test_power_between_samples_is_the_mean_of_both() -> None:
    """100 W for 8 s, from 100 to 300 for 1 s, which is 200: 1,000 J in 9 s."""
    rows = pd.DataFrame({"t_ns": np.arange(10) * 10**9, "power_w": [100.0] * 9 + [300.0]})
    assert tables.mean_power_w(rows, averaged=False) == pytest.approx(1000 / 9)
    assert np.isnan(tables.mean_power_w(rows, averaged=True))
    assert np.isnan(tables.mean_power_w(rows.assign(power_w=[np.nan, *[1.0] * 9]), averaged=False))
    # The sample at the end of the first second is the first of the window.
    late = pd.DataFrame({"t_ns": 10**9 + np.arange(10), "power_w": 5.0})
    assert tables.mean_power_w(late, averaged=True) == 5
    assert np.isnan(tables.mean_power_w(late.assign(t_ns=late["t_ns"] - 1), averaged=True))


def test_a_counters_power_is_from_move_to_move() -> None:
    """Ten moves of 3 J, 0.1 s apart: 27 J in 0.9 s."""
    rows = pd.DataFrame({"t_ns": np.arange(11) * 10**8, "energy_j": np.arange(11) * 3.0})
    assert tables.energy_counter_power_w(rows) == pytest.approx(30)
    assert np.isnan(tables.energy_counter_power_w(rows.iloc[:10]))


@pytest.mark.parametrize(("moves", "error"), [(0, np.nan), (1, np.nan), (2, 1), (51, 0.02)])
def test_a_move_is_a_part_of_the_counted_energy(moves: int, error: float) -> None:
    rows = pd.DataFrame({"energy_j": [*range(moves + 1), moves]})
    assert tables.energy_resolution(rows) == pytest.approx(error, nan_ok=True)


def test_a_counter_that_leaves_more_than_a_fiftieth_open_is_told() -> None:
    def of(**moves: int) -> pd.DataFrame:
        frames = [pd.DataFrame({"process": 0, "gpu_uuid": uuid, "energy_j": range(n + 1)}) for uuid, n in moves.items()]
        return pd.concat(frames)

    assert tables.describe_coarse_energy(of(a=51, b=0)) == [] == tables.describe_coarse_energy(of(a=0))
    (said,) = tables.describe_coarse_energy(of(a=60, b=50))
    assert said == "the energy counter is exact to 2.0%, not to 2%: it moved too seldom"


def test_a_cell_is_told_of_all_its_gpus() -> None:
    """100 and 300 W for 2 s in 4 steps of 8 items; one counter moves 11 times, the other 20; one clock is held back."""
    at = np.arange(21) * 10**8
    first = raw(list(at), "a", power_mw=100_000, energy_mj=[min(n, 11) * 10_000 for n in range(21)], temperature_c=61,
                sm_clock_mhz=1_000, throttle_reasons=0x101)  # fmt: skip
    second = raw(list(at), "b", power_mw=300_000, energy_mj=[n * 30_000 for n in range(21)], temperature_c=70,
                 sm_clock_mhz=2_000, throttle_reasons=0x80)  # fmt: skip
    told = tables.summarise_cell(
        tables.select_window(pd.concat([first, second]), 0, 2 * 10**9), facts(window_began_ns=0)
    )
    assert told == pytest.approx(
        {
            "power_w": 400, "step_energy_power_j": 200, "step_energy_counter_j": 200, "item_energy_power_j": 100,
            "item_energy_counter_j": 100, "energy_error": 0.1, "sm_clock_hz": 1.5e9, "sm_clock_high_hz": 2e9,
            "temperature_max_c": 70,
            "throttled_share": 0.5, "clocks": "power brake in 50% of samples",
        }
    )  # fmt: skip


def test_means_of_the_last_second_are_told_from_momentary_power() -> None:
    """900 W in the first second and 100 after it: of means of a second only the latter are of the window."""
    rows = raw([n * 10**8 for n in range(21)], power_mw=[900_000] * 10 + [100_000] * 11)
    table = tables.select_window(rows, 0, 2 * 10**9)
    assert tables.summarise_cell(table, facts(power_is=nvml.MEAN))["power_w"] == pytest.approx(100)
    assert tables.summarise_cell(table, facts())["power_w"] == pytest.approx((9 * 90 + 50 + 10 * 10) / 2)


def clocked(**hz: list[float]) -> pd.DataFrame:
    """Clocks of GPUs, which nothing holds back."""
    frames = [pd.DataFrame({"process": 0, "gpu_uuid": uuid, "sm_clock_hz": own}) for uuid, own in hz.items()]
    return pd.concat(frames).assign(throttle_reasons=0)


def spread(low: float) -> list[float]:
    """21 clocks of which the second is low, and the last but one 1 GHz: the middle nine tenths' edges."""
    return [1e8, low, *[1e9] * 18, 9e9]


def test_a_clock_has_moved_by_more_than_a_fiftieth_of_its_middle_nine_tenths() -> None:
    assert tables.describe_clocks(clocked(a=spread(0.981e9))) == ""
    assert tables.describe_clocks(clocked(a=spread(0.979e9))) == "SM clock from 979 to 1,000 MHz"
    # The one that moved most.
    moved = clocked(a=spread(0.9e9), b=spread(0.5e9), c=spread(0.7e9))
    assert tables.describe_clocks(moved) == "SM clock from 500 to 1,000 MHz"
    assert tables.describe_clocks(moved.iloc[:0]) == ""


# SwPowerCap, SyncBoost and so on of nvml.h.
BITS = {4: "power cap", 8: "hardware slowdown", 16: "sync boost", 32: "thermal slowdown by software",
        64: "thermal slowdown by hardware", 128: "power brake"}  # fmt: skip


@pytest.mark.parametrize(("bit", "name"), list(BITS.items()))
def test_a_reason_is_named_from_a_hundredth_of_the_samples_on(bit: int, name: str) -> None:
    steady = pd.DataFrame(
        {"process": 0, "gpu_uuid": "a", "sm_clock_hz": [1e9] * 100, "throttle_reasons": [bit, *[1] * 99]}
    )
    assert tables.describe_clocks(steady) == f"{name} in 1% of samples"
    assert tables.describe_clocks(pd.concat([steady, steady.iloc[-1:]])) == ""
    # What does not tell of reasons is no sample of them.
    assert tables.describe_clocks(steady.assign(throttle_reasons=[bit, *[np.nan] * 99])) == f"{name} in 100% of samples"


def test_what_is_shown_of_a_cell_has_units() -> None:
    values = {"power": 1_234.4, "energy per step (power)": 1.2345, "SM clock": 1.98e9, "hottest": 61.4}
    assert [activity.COLUMNS[name][1](value) for name, value in values.items()] == [
        "1,234 W",
        "1.23 J",
        "1,980 MHz",
        "61 °C",
    ]


def test_steps_of_the_baseline_are_all_there() -> None:
    holds = time_tables.TABLE.holds
    assert holds is not None and holds(pd.DataFrame({"step": [1, 0, 2]})) is None
    for steps in ([0, 2], [1, 2], [0, 0]):
        assert holds(pd.DataFrame({"step": steps})) == "steps are not those from 0 to 1: rows are missing"


def test_steps_of_each_process_of_the_baseline_are_all_there() -> None:
    holds = time_tables.REPEATED.holds
    assert holds is not None
    whole = pd.DataFrame({"process": [0, 0, 1, 1], "step": [0, 1, 0, 1]})
    assert holds(whole) is None
    assert holds(whole.assign(process=[0, 0, 2, 2])) == "processes are not those from 0 to 1: rows are missing"
    lacking = whole.assign(step=[0, 1, 0, 2])
    assert holds(lacking) == "process 1: steps are not those from 0 to 1: rows are missing"
    assert holds(lacking.assign(step=[1, 2, 0, 2])).startswith("process 0: ")


def test_what_a_step_holds_adds_up_to_its_peak() -> None:
    holds = time_tables.MEMORY.holds
    held = {f"{name}_bytes": [1, 2, 3] for name in time_tables.HELD}
    table = pd.DataFrame({"order": [0, 1, 2], "peak_bytes": [7, 14, 21], **held})
    assert holds is not None and len(time_tables.HELD) == 7 and holds(table) is None
    assert holds(table.assign(order=[1, 2, 3])) == "ranges are not those from 0 to 2: rows are missing"
    assert holds(table.assign(peak_bytes=[7, 15, 20])) == "row 2: what is held adds up to another peak"


def test_the_baselines_clock_writes_steps_and_memory() -> None:
    steps, memory = Path("s"), Path("m")
    assert time_command.program_options({"steps": steps}) == ["--steps", "s", "--numerics"]
    assert tools.commands()["time"].output_files({"steps": steps, "sidecar": Path("s.json")}) == [steps]
    both = {"steps": steps, "memory": memory}
    assert time_command.program_options(both) == ["--steps", "s", "--memory", "m", "--numerics"]
    assert tools.commands()["time"].output_files(both) == [steps, memory]
