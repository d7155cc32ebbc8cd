"""Owners, times and counters of a step's launches, of three tools that each ran the step for itself."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from profzoo.kernels import kernel_classes
from profzoo.launches import joined_step as joining
from profzoo.tools.ncu.estimates import GPU_TIME
from profzoo.tools.ncu.raw_page import function_name
from profzoo.tools.nsys.events.launches import read_step_launches
from tests import slow
from tests.conftest import DATA
from tests.differing import as_nsys, as_torch, draw_tokens, routed_step

OWNER = ["operator", "shapes"]


def test_every_launch_of_a_recorded_step_gets_owner_and_time(recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of MobileNetV2's training under torch.profiler on an H200, one under ncu, and ten under nsys."""
    torch, counted = (pd.read_csv(DATA / f"launches/mobilenetv2.train.{tool}.csv.gz") for tool in ("torch", "ncu"))
    ncu = counted.assign(mangled="", function=counted["kernel"].map(function_name))
    nsys = read_step_launches(recording("nsys/train.sqlite"))
    # Kernels are told apart by functions, which all names tell.
    monkeypatch.setattr(kernel_classes, "can_demangle", lambda: False)
    table = joining.join_launches(ncu, torch, OWNER, nsys)
    assert table["launch"].tolist() == [*range(475)] and (table[joining.BY] == "launch").all()
    assert (table["nsys_steps"] == 10).all() and (table["ncu_ns"] == ncu[GPU_TIME]).all()
    # 52 convolutions, of which 17 are depthwise, and as many normalisations, forward and backward.
    calls = table.groupby("operator")["shapes"].size()
    assert calls["aten::_conv_depthwise2d"] == 17 and calls["aten::cudnn_batch_norm"] == 52
    forward = table["range"] == "forward"
    assert not table.loc[forward, "operator"].str.contains("backward").any()
    assert table.loc[table["operator"].str.startswith("aten::_foreach"), "range"].eq("optimizer").all()
    # Times of nsys by torch's owners are those that torch itself saw.
    found = joining.join_totals(table, ["operator"]).set_index("operator")
    of_torch = torch.groupby("operator")["ns"].sum() / 2
    large = found.index[found["total_ns"] > 20_000]
    assert len(large) >= 12 and (found["nsys_share"] == 1).all()
    assert (found.loc[large, "total_ns"] / of_torch[large] - 1).abs().max() < 0.03
    assert found["launches"].sum() == 475
    assert found["total_ns"].sum() == pytest.approx(nsys["ns"].sum() / 10)


def launches(kernels: str, **columns: list) -> pd.DataFrame:
    """A launch of each of these kernels, all in one configuration."""
    sizes = dict.fromkeys(["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"], 1)
    table = pd.DataFrame({"mangled": list(kernels), "kernel": list(kernels)}).assign(**sizes, **columns)
    return table.assign(function=table["kernel"], range="", smem_static_bytes=0, smem_dynamic_bytes=0)


@pytest.mark.parametrize(
    ("counted", "known", "owners", "expected"),
    [
        # Of equal launches of one owner none has to be told from the other.
        ("abbc", "abbbc", "PQQQR", "PQQR"),
        ("abbc", "abbbc", "PQSQR", "P--R"),
        # Launches beyond the last that both have are not an error: of the owners' step, and of ncu's.
        ("a", "ab", "PQ", "P"),
        ("xaby", "ab", "PQ", "-PQ-"),
    ],
)
def test_owners_of_steps_that_differ(counted: str, known: str, owners: str, expected: str) -> None:
    of_step = launches(known, step=[0] * len(known), owner=list(owners))
    found = joining.owners_of(launches(counted), of_step, ["owner"])["owner"].fillna("-")
    assert "".join(found) == expected


def test_launches_between_those_of_two_owners_have_none() -> None:
    owners = launches("abcde", step=[0] * 5, owner=list("PQRST"))
    found = joining.owners_of(launches("abxde"), owners, ["owner"])
    assert found["owner"].tolist() == ["P", "Q", "R", "S", "T"] and found[joining.BY].tolist()[2] == "gap"
    found = joining.owners_of(launches("axde"), owners, ["owner"])
    # What stands for x is b and c, of two owners.
    assert found["owner"].fillna("").tolist() == ["P", "", "S", "T"] and found[joining.BY].tolist()[1] == ""


def test_the_time_of_nsys_counts_and_ncus_where_there_is_none() -> None:
    census = launches("abx").assign(**{GPU_TIME: [10.0, 20.0, 30.0]})
    steps = launches("ab", step=[0, 0], ns=[4.0, 6.0])
    table = joining.join_launches(census, nsys=steps)
    assert table["ns"].tolist() == [4, 6, 30] and table["ncu_ns"].tolist() == [10, 20, 30]
    assert table["nsys_steps"].tolist() == [1, 1, 0]
    found = joining.join_totals(table, ["range"]).iloc[0]
    assert (found["launches"], found["total_ns"], found["nsys_share"]) == (3, 40, 0.25)
    assert joining.join_launches(census)["ns"].tolist() == [10, 20, 30]
    # Times are means over the steps that have the launch.
    steps = pd.concat([launches("abc", step=[0] * 3, ns=[1, 2, 3]), launches("ac", step=[1] * 2, ns=[5, 6])])
    found = joining.times_of(launches("abc"), steps.reset_index(drop=True))
    assert found["nsys_ns"].tolist() == [3, 2, 4.5] and found["nsys_steps"].tolist() == [2, 1, 2]


def test_an_owner_on_which_steps_differ_is_none() -> None:
    owners = pd.concat([launches("abc", step=[0] * 3, owner=list("PQR")), launches("abc", step=[1] * 3,
                        owner=list("PXR")), launches("ab", step=[2] * 2, owner=list("PQ"))])  # fmt: skip
    found = joining.owners_of(launches("abc"), owners.reset_index(drop=True), ["owner"])
    assert found["owner"].fillna("").tolist() == ["P", "", "R"]
    assert joining.owners_of(launches("abc"), owners.iloc[:0], ["owner"])["owner"].isna().all()


def test_counters_of_owners_are_those_of_the_launches_that_stand_for_them() -> None:
    """Of three kernels one launch each was profiled; b runs for two owners."""
    census = launches("abbc", id=[*range(4)]).assign(**{GPU_TIME: [10_000, 20_000, 20_000, 40_000], "launches": 1})
    owners = launches("abbc", step=[0] * 4, owner=list("PPQQ"))
    table = joining.join_launches(census, owners, ["owner"])
    profiled = census.iloc[[0, 1, 3]].assign(launch=[0, 1, 3], multiplicity=[1, 2, 1])
    profiled = profiled.assign(**{"dram__bytes_read.sum": [100, 60, 7], "dram__bytes_write.sum": 0})
    found = joining.join_totals(table, ["owner"], [profiled]).set_index("owner")
    assert found["launches"].tolist() == [2, 2] and found["total_ns"].tolist() == [30_000, 60_000]
    assert found["dram_bytes"].tolist() == [(100 + 60) / 2, (60 + 7) / 2]
    low, high = found["dram_bytes_low"], found["dram_bytes_high"]
    assert (low < found["dram_bytes"]).all() and (high > found["dram_bytes"]).all()


STEPS, OF_TORCH = 8, 4


def drawn(seed: int, like_torch: int) -> tuple[joining.Joined, pd.DataFrame]:
    """Steps of nsys, of which torch saw the first `like_torch` too, joined with steps of torch."""
    generator = np.random.default_rng(seed)
    steps = [routed_step(own) for own in draw_tokens(generator, STEPS)]
    others = [routed_step(own) for own in draw_tokens(generator, OF_TORCH - like_torch)]
    nsys, torch = as_nsys(steps), as_torch([*steps[:like_torch], *others])
    return joining.join_differing_steps(nsys, torch), nsys


def holds(module: str, other: str) -> bool:
    return module in (other, "(root)") or other.startswith(f"{module}.")


@pytest.mark.parametrize("like_torch", slow.first([2, 0, OF_TORCH]))
def test_every_launch_is_of_its_layer_or_of_what_holds_it(like_torch: int) -> None:
    right, exact, unaligned = [], [], []
    for seed in range(6):
        rows = drawn(seed, like_torch)[0].launches
        pairs = list(zip(rows["module"], rows["true_module"], strict=True))
        right += [holds(module, true) for module, true in pairs if module != joining.UNALIGNED]
        exact += [module == true for module, true in pairs]
        unaligned += [module == joining.UNALIGNED for module, _ in pairs]
    assert np.mean(right) > 0.985 and np.mean(unaligned) < 0.01 and np.mean(exact) > 0.55


def test_a_step_that_torch_saw_too_has_its_owners() -> None:
    joined, _ = drawn(1, OF_TORCH)
    rows = joined.launches[joined.launches["step"] < OF_TORCH]
    assert (rows["module"] == rows["true_module"]).all() and (rows[joining.BY] == joining.LIKE).all()
    # Shapes, too, are those of the step itself.
    assert (rows["shapes"] == rows["grid_x"].astype(str)).all()


def test_times_and_launches_are_means_over_all_steps() -> None:
    joined, nsys = drawn(2, 1)
    assert joined.steps == STEPS and len(joined.launches) == len(nsys)
    table = joining.kernels(joined)
    assert table["total_ns"].sum() == pytest.approx(nsys["ns"].sum() / STEPS)
    assert table["launches"].sum() == pytest.approx(len(nsys) / STEPS)
    head = table[table["module"] == "head"]
    of_head = nsys.loc[nsys["true_module"] == "head", "ns"].sum() / STEPS
    assert head["launches"].sum() == 3 and head["total_ns"].sum() == pytest.approx(of_head)


def test_an_expert_that_cannot_be_told_is_of_the_experts() -> None:
    """In one step of torch the second expert is left out, in the other the first; in nsys's step both are at work."""
    torch = as_torch([routed_step([5, 0, 0, 0]), routed_step([0, 5, 0, 0])])
    rows = joining.join_differing_steps(as_nsys([routed_step([9, 0, 0, 0])]), torch).launches
    experts = rows[rows["true_module"] == "experts.0"]
    assert set(experts["module"]) <= {"experts", "experts.0"} and "experts" in set(experts["module"])
    assert set(experts.loc[experts["module"] == "experts", joining.BY]) == {joining.COMMON}
    assert (experts.loc[experts["kernel"] == "up", "operator"] == "up").all()
    # Modules of other networks have nothing in common.
    assert (
        joining.common_module(["a.b", "c"]) == "(root)"
        and joining.common_module(["a", "(optimizer)"]) == joining.UNALIGNED
    )
    assert joining.common_module(["a.b", "a.b.c"]) == "a.b" and joining.common_module(["(root)", "a"]) == "(root)"


def test_the_process_with_the_most_common_step_counts() -> None:
    own, other = as_nsys([routed_step([3, 0, 0, 0])] * 3), as_nsys([routed_step([3, 4, 0, 0])])
    both = pd.concat([other.assign(process=2), own], ignore_index=True)
    joined = joining.join_differing_steps(both, as_torch([routed_step([3, 0, 0, 0])]))
    assert joined.steps == 3 and len(joined.launches) == len(own) and not joining.traced_steps_differ(both)
    assert joining.traced_steps_differ(as_nsys([routed_step([3, 4, 5, 6]), routed_step([3, 4, 5, 7])]))


def test_launches_of_ncus_step_have_owners_found_in_the_same_way() -> None:
    generator = np.random.default_rng(0)
    steps = [routed_step(own) for own in draw_tokens(generator, OF_TORCH + 1)]
    torch, census = as_torch(steps[1:]), as_nsys(steps[:1]).drop(columns=["process", "step"])
    counted = joining.join_ncu_launches(census.assign(**{GPU_TIME: census["ns"]}), 1, [], torch, None)
    found = joining.own_counted_step(counted, torch).launches
    assert len(found) == len(census) and found["launch"].tolist() == list(range(len(census)))
    modules = list(zip(found["module"], found["true_module"], strict=True))
    assert np.mean([holds(module, true) for module, true in modules]) > 0.985
    before = (counted.launches["module"] != joining.UNALIGNED).mean()
    assert (found["module"] != joining.UNALIGNED).mean() > before
    # Where a window has several steps, it is not known where one ends.
    assert joining.own_counted_step(replace(counted, steps=2), torch).launches is counted.launches


def test_counters_of_ncus_step_are_added_where_it_has_such_launches() -> None:
    joined, _ = drawn(3, OF_TORCH)
    rows = joining.kernels(joined)
    counted = rows.head(3).assign(dram_bytes=[1.0, 2.0, 3.0])
    found = joining.add_counters(rows, counted)
    assert list(found.columns) == list(rows.columns) and found[joining.GROUPS].equals(rows[joining.GROUPS])
    assert found["dram_bytes"].tolist()[:3] == [1.0, 2.0, 3.0] and found["dram_bytes"].iloc[3:].isna().all()
    assert found["total_ns"].equals(rows["total_ns"])
