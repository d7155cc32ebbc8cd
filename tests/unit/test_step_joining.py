"""Owners, times and counters of a step's launches, of three tools that each ran the step for itself."""

import numpy as np
import pandas as pd
import pytest

from profzoo.kernels import demangle
from profzoo.launches.step_joining import BY, join_launches, owners_of, times_of, totals
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.raw_page import function_name
from profzoo.tools.nsys import launches_by_step
from tests.conftest import DATA

OWNER = ["operator", "shapes"]


@pytest.fixture(scope="module")
def torch() -> pd.DataFrame:
    """Two steps of MobileNetV2's training under torch.profiler on an H200, in fp32 and tf32: 475 launches each."""
    return pd.read_csv(DATA / "launches/mobilenetv2.train.torch.csv.gz")


@pytest.fixture(scope="module")
def ncu() -> pd.DataFrame:
    """A step of the same under ncu, whose names are not mangled there."""
    table = pd.read_csv(DATA / "launches/mobilenetv2.train.ncu.csv.gz")
    return table.assign(mangled="", function=table["kernel"].map(function_name))


@pytest.fixture(scope="module")
def nsys(recording) -> pd.DataFrame:
    """Ten steps of the same under nsys."""
    return launches_by_step.read_step_launches(recording("nsys/train.sqlite"))


@pytest.fixture
def by_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are told apart by functions, which all names tell."""
    monkeypatch.setattr(demangle, "can_demangle", lambda: False)


@pytest.mark.usefixtures("by_function")
def test_every_launch_of_a_recorded_step_gets_owner_and_time(
    ncu: pd.DataFrame, torch: pd.DataFrame, nsys: pd.DataFrame
) -> None:
    table = join_launches(ncu, torch, OWNER, nsys)
    assert table["launch"].tolist() == [*range(475)] and (table[BY] == "launch").all()
    assert (table["nsys_steps"] == 10).all() and (table["ncu_ns"] == ncu[GPU_TIME]).all()
    # 52 convolutions, of which 17 are depthwise, and as many normalisations, forward and backward.
    calls = table.groupby("operator")["shapes"].size()
    assert calls["aten::_conv_depthwise2d"] == 17 and calls["aten::cudnn_batch_norm"] == 52
    forward = table["range"] == "forward"
    assert not table.loc[forward, "operator"].str.contains("backward").any()
    assert table.loc[table["operator"].str.startswith("aten::_foreach"), "range"].eq("optimizer").all()
    # Times of nsys by torch's owners are those that torch itself saw.
    found = totals(table, ["operator"]).set_index("operator")
    of_torch = torch.groupby("operator")["ns"].sum() / 2
    large = found.index[found["total_ns"] > 20_000]
    assert len(large) >= 12 and (found["nsys_share"] == 1).all()
    assert (found.loc[large, "total_ns"] / of_torch[large] - 1).abs().max() < 0.03
    assert found["launches"].sum() == 475
    assert found["total_ns"].sum() == pytest.approx(nsys["ns"].sum() / 10)


@pytest.mark.usefixtures("by_function")
def test_a_convolution_by_other_kernels_keeps_its_owner(ncu: pd.DataFrame, torch: pd.DataFrame) -> None:
    """Under ncu one convolution ran as two kernels that torch's run has not."""
    place = int(torch.index[torch["operator"] == "aten::cudnn_convolution"][9])
    other = ncu.loc[[place, place]].assign(kernel="winograd_kernel", function="winograd_kernel")
    changed = pd.concat([ncu.iloc[:place], other, ncu.iloc[place + 1 :]], ignore_index=True)
    table = join_launches(changed, torch, OWNER)
    assert (table[BY] == "gap").sum() == 2 and (table.loc[[place, place + 1], BY] == "gap").all()
    assert (table.loc[[place, place + 1], OWNER] == torch.loc[place, OWNER].to_numpy()).all(axis=None)
    # Without a time of its own it has ncu's.
    mixed = table.assign(nsys_ns=np.where(table[BY] == "gap", np.nan, 1.0))
    of_operator = totals(mixed.assign(ns=mixed["nsys_ns"].fillna(mixed["ncu_ns"])), ["operator"])
    one = of_operator.set_index("operator").loc["aten::cudnn_convolution"]
    assert one["total_ns"] == 34 + 2 * ncu.loc[place, GPU_TIME] and 0 < one["nsys_share"] < 1


def launches(kernels: str, **columns: list) -> pd.DataFrame:
    """A launch of each of these kernels, all in one configuration."""
    sizes = dict.fromkeys(["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"], 1)
    table = pd.DataFrame({"mangled": list(kernels), "kernel": list(kernels)}).assign(**sizes, **columns)
    return table.assign(function=table["kernel"], range="", smem_static_bytes=0, smem_dynamic_bytes=0)


def test_launches_between_those_of_two_owners_have_none() -> None:
    owners = launches("abcde", step=[0] * 5, owner=list("PQRST"))
    found = owners_of(launches("abxde"), owners, ["owner"])
    assert found["owner"].tolist() == ["P", "Q", "R", "S", "T"] and found[BY].tolist()[2] == "gap"
    found = owners_of(launches("axde"), owners, ["owner"])
    # What stands for x is b and c, of two owners.
    assert found["owner"].fillna("").tolist() == ["P", "", "S", "T"] and found[BY].tolist()[1] == ""


def test_of_equal_launches_of_one_owner_none_has_to_be_told_from_the_other() -> None:
    owners = launches("abbbc", step=[0] * 5, owner=list("PQQQR"))
    assert owners_of(launches("abbc"), owners, ["owner"])["owner"].tolist() == ["P", "Q", "Q", "R"]
    owners["owner"] = list("PQSQR")
    assert owners_of(launches("abbc"), owners, ["owner"])["owner"].fillna("").tolist() == ["P", "", "", "R"]


def test_launches_beyond_the_last_that_both_have_are_no_error() -> None:
    """Of the owners' step, after all of ncu's; and of ncu's, around all of the owners'."""
    assert owners_of(launches("a"), launches("ab", step=[0, 0], owner=list("PQ")), ["owner"])["owner"].tolist() == ["P"]
    found = owners_of(launches("xaby"), launches("ab", step=[0, 0], owner=list("PQ")), ["owner"])
    assert found["owner"].fillna("").tolist() == ["", "P", "Q", ""] and found[BY].tolist() == [
        "",
        "launch",
        "launch",
        "",
    ]


def test_the_time_of_nsys_counts_and_ncus_where_there_is_none() -> None:
    census = launches("abx").assign(**{GPU_TIME: [10.0, 20.0, 30.0]})
    steps = launches("ab", step=[0, 0], ns=[4.0, 6.0])
    table = join_launches(census, nsys=steps)
    assert table["ns"].tolist() == [4, 6, 30] and table["ncu_ns"].tolist() == [10, 20, 30]
    assert table["nsys_steps"].tolist() == [1, 1, 0]
    found = totals(table, ["range"]).iloc[0]
    assert (found["launches"], found["total_ns"], found["nsys_share"]) == (3, 40, 0.25)
    assert join_launches(census)["ns"].tolist() == [10, 20, 30]


def test_an_owner_on_which_steps_differ_is_none() -> None:
    owners = pd.concat([launches("abc", step=[0] * 3, owner=list("PQR")), launches("abc", step=[1] * 3,
                        owner=list("PXR")), launches("ab", step=[2] * 2, owner=list("PQ"))])  # fmt: skip
    found = owners_of(launches("abc"), owners.reset_index(drop=True), ["owner"])
    assert found["owner"].fillna("").tolist() == ["P", "", "R"]
    assert owners_of(launches("abc"), owners.iloc[:0], ["owner"])["owner"].isna().all()


def test_times_are_means_over_the_steps_that_have_the_launch() -> None:
    steps = pd.concat([launches("abc", step=[0] * 3, ns=[1, 2, 3]), launches("ac", step=[1] * 2, ns=[5, 6])])
    found = times_of(launches("abc"), steps.reset_index(drop=True))
    assert found["nsys_ns"].tolist() == [3, 2, 4.5] and found["nsys_steps"].tolist() == [2, 1, 2]


def test_counters_of_owners_are_those_of_the_launches_that_stand_for_them() -> None:
    """Of three kernels one launch each was profiled; b runs for two owners."""
    census = launches("abbc", id=[*range(4)]).assign(**{GPU_TIME: [10_000, 20_000, 20_000, 40_000], "launches": 1})
    owners = launches("abbc", step=[0] * 4, owner=list("PPQQ"))
    table = join_launches(census, owners, ["owner"])
    profiled = census.iloc[[0, 1, 3]].assign(launch=[0, 1, 3], multiplicity=[1, 2, 1])
    profiled = profiled.assign(**{"dram__bytes_read.sum": [100, 60, 7], "dram__bytes_write.sum": 0})
    found = totals(table, ["owner"], [profiled]).set_index("owner")
    assert found["launches"].tolist() == [2, 2] and found["total_ns"].tolist() == [30_000, 60_000]
    assert found["dram_bytes"].tolist() == [(100 + 60) / 2, (60 + 7) / 2]
    assert (found["dram_bytes_low"] < found["dram_bytes"]).all() and (
        found["dram_bytes_high"] > found["dram_bytes"]
    ).all()
