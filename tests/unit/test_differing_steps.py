"""Steps of nsys that launch differently get the owners of torch's steps; the truth is a mixture of experts."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from profzoo.launches.differing_steps import (
    COMMON,
    add_counters,
    common_module,
    join_differing_steps,
    own_counted_step,
    traced_steps_differ,
)
from profzoo.launches.joined_step import GROUPS, UNALIGNED, Joined, join_ncu_launches, kernels
from profzoo.launches.step_joining import BY, LIKE
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from tests.differing import as_nsys, as_torch, draw_tokens, routed_step

STEPS, OF_TORCH = 8, 4


def drawn(seed: int, like_torch: int) -> tuple[Joined, pd.DataFrame]:
    """Steps of nsys, of which torch saw the first `like_torch` too, joined with steps of torch."""
    generator = np.random.default_rng(seed)
    steps = [routed_step(own) for own in draw_tokens(generator, STEPS)]
    others = [routed_step(own) for own in draw_tokens(generator, OF_TORCH - like_torch)]
    nsys, torch = as_nsys(steps), as_torch([*steps[:like_torch], *others])
    return join_differing_steps(nsys, torch), nsys


def holds(module: str, other: str) -> bool:
    return module in (other, "(root)") or other.startswith(f"{module}.")


@pytest.mark.parametrize("like_torch", [0, 2, OF_TORCH])
def test_every_launch_is_of_its_layer_or_of_what_holds_it(like_torch: int) -> None:
    right, exact, unaligned = [], [], []
    for seed in range(20):
        rows = drawn(seed, like_torch)[0].launches
        pairs = list(zip(rows["module"], rows["true_module"], strict=True))
        right += [holds(module, true) for module, true in pairs if module != UNALIGNED]
        exact += [module == true for module, true in pairs]
        unaligned += [module == UNALIGNED for module, _ in pairs]
    assert np.mean(right) > 0.985 and np.mean(unaligned) < 0.01 and np.mean(exact) > 0.55


def test_a_step_that_torch_saw_too_has_its_owners() -> None:
    joined, _ = drawn(1, OF_TORCH)
    rows = joined.launches[joined.launches["step"] < OF_TORCH]
    assert (rows["module"] == rows["true_module"]).all() and (rows[BY] == LIKE).all()
    # Shapes, too, are those of the step itself.
    assert (rows["shapes"] == rows["grid_x"].astype(str)).all()


def test_times_and_launches_are_means_over_all_steps() -> None:
    joined, nsys = drawn(2, 1)
    assert joined.steps == STEPS and len(joined.launches) == len(nsys)
    table = kernels(joined)
    assert table["total_ns"].sum() == pytest.approx(nsys["ns"].sum() / STEPS)
    assert table["launches"].sum() == pytest.approx(len(nsys) / STEPS)
    head = table[table["module"] == "head"]
    assert head["launches"].sum() == 3 and head["total_ns"].sum() == pytest.approx(
        nsys.loc[nsys["true_module"] == "head", "ns"].sum() / STEPS
    )


def test_an_expert_that_cannot_be_told_is_of_the_experts() -> None:
    """In one step of torch the second expert is left out, in the other the first; in nsys's step both are at work."""
    torch = as_torch([routed_step([5, 0, 0, 0]), routed_step([0, 5, 0, 0])])
    rows = join_differing_steps(as_nsys([routed_step([9, 0, 0, 0])]), torch).launches
    experts = rows[rows["true_module"] == "experts.0"]
    assert set(experts["module"]) <= {"experts", "experts.0"} and "experts" in set(experts["module"])
    assert set(experts.loc[experts["module"] == "experts", BY]) == {COMMON}
    assert (experts.loc[experts["kernel"] == "up", "operator"] == "up").all()


def test_only_another_order_is_no_difference() -> None:
    same = as_nsys([routed_step([3, 4, 5, 6])] * 3)
    assert not traced_steps_differ(same)
    assert traced_steps_differ(as_nsys([routed_step([3, 4, 5, 6]), routed_step([3, 4, 5, 7])]))


def test_the_process_with_the_most_common_step_counts() -> None:
    own, other = as_nsys([routed_step([3, 0, 0, 0])] * 3), as_nsys([routed_step([3, 4, 0, 0])])
    both = pd.concat([other.assign(process=2), own], ignore_index=True)
    joined = join_differing_steps(both, as_torch([routed_step([3, 0, 0, 0])]))
    assert joined.steps == 3 and len(joined.launches) == len(own) and not traced_steps_differ(both)


def test_modules_of_other_networks_have_nothing_in_common() -> None:
    assert common_module(["a.b", "c"]) == "(root)" and common_module(["a", "(optimizer)"]) == UNALIGNED
    assert common_module(["a.b", "a.b.c"]) == "a.b" and common_module(["(root)", "a"]) == "(root)"


def test_launches_of_ncus_step_have_owners_found_in_the_same_way() -> None:
    generator = np.random.default_rng(0)
    steps = [routed_step(own) for own in draw_tokens(generator, OF_TORCH + 1)]
    torch, census = as_torch(steps[1:]), as_nsys(steps[:1]).drop(columns=["process", "step"])
    counted = join_ncu_launches(census.assign(**{GPU_TIME: census["ns"]}), 1, [], torch, None)
    found = own_counted_step(counted, torch).launches
    assert len(found) == len(census) and found["launch"].tolist() == list(range(len(census)))
    modules = list(zip(found["module"], found["true_module"], strict=True))
    assert np.mean([holds(module, true) for module, true in modules]) > 0.985
    before = (counted.launches["module"] != UNALIGNED).mean()
    assert (found["module"] != UNALIGNED).mean() > before
    # Where a window has several steps, it is not known where one ends.
    assert own_counted_step(replace(counted, steps=2), torch).launches is counted.launches


def test_counters_of_ncus_step_are_added_where_it_has_such_launches() -> None:
    joined, _ = drawn(3, OF_TORCH)
    rows = kernels(joined)
    counted = rows.head(3).assign(dram_bytes=[1.0, 2.0, 3.0])
    found = add_counters(rows, counted)
    assert list(found.columns) == list(rows.columns) and found[GROUPS].equals(rows[GROUPS])
    assert found["dram_bytes"].tolist()[:3] == [1.0, 2.0, 3.0] and found["dram_bytes"].iloc[3:].isna().all()
    assert found["total_ns"].equals(rows["total_ns"])
