"""profzoo.what_if against a simulated device: what it predicts from a recording is what happens where a change is made.

The simulation (tests/simulated.py) shares neither code nor constants with it. The change is made to what the simulated
CPU does.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from profzoo.tools.nsys.events import launches
from profzoo.what_if import changes, host_time, predicted_gains, simulator
from profzoo.what_if.program import Program
from profzoo.what_if.tables import read_programs
from tests import simulated
from tests.simulated import Act

PROGRAMS = 240
WITHIN, OF_ALL = 0.03, 0.95
INPUT = ("data", "transfer")
Change = tuple[Callable[[Sequence[Act]], list[Act]], Callable[[Program, np.ndarray], Program]]


def faster(acts: Sequence[Act]) -> list[Act]:
    """Kernels of groups 1 and 2 three times as fast, also in graphs."""
    found = [replace(act, ns=act.ns / 3) if act.kind == "kernel" and act.group in (1, 2) else act for act in acts]
    nodes = [tuple((group, ns / 3 if group in (1, 2) else ns, gap) for group, ns, gap in act.nodes) for act in found]
    return [replace(act, nodes=inside) for act, inside in zip(found, nodes, strict=True)]


def removed(acts: Sequence[Act]) -> list[Act]:
    """No kernels of group 3, nor the calls for them; of graphs the same."""
    found = [replace(act, nodes=tuple(node for node in act.nodes if node[0] != 3) or act.nodes) for act in acts]
    return [act for act in found if not (act.kind == "kernel" and act.group == 3)]


def host_twice(acts: Sequence[Act]) -> list[Act]:
    return [replace(act, before=act.before / 2, call=act.call / 2) for act in acts]


def unsynchronised(acts: Sequence[Act]) -> list[Act]:
    kinds = {"sync": "other", "stream_sync": "other", "pageable": "copy", "staged": "copy", "fed": "copy"}
    return [replace(act, kind=kinds.get(act.kind, act.kind)) for act in acts]


def ready(acts: Sequence[Act]) -> list[Act]:
    """Batches are there when they are needed; they are still copied to the GPU."""
    return [act for act in acts if act.part != "data"]


def unwaited(acts: Sequence[Act]) -> list[Act]:
    """Nothing waits for communication."""
    return [act for act in acts if not (act.kind == "wait" and act.stream == 7)]


def graphed(acts: Sequence[Act]) -> list[Act]:
    """All that a step launches after its input as one graph, launched as soon as the input is."""
    found, done = [], -1
    # Of the device: a program that has graphs shows how close their nodes are.
    between = min([gap for act in acts for _, _, gap in act.nodes], default=simulated.BETWEEN_NODES_NS)
    for act in acts:
        if act.kind == "end":
            found.append(replace(act, before=0))
        elif act.kind == "begin" or act.part in INPUT:
            found.append(act)
        elif done != act.step:
            done = act.step
            mine = [one for one in acts if one.step == done and one.part not in INPUT]
            nodes = [node for one in mine if one.kind in simulated.LAUNCHES
                     for node in one.nodes or [(one.group, one.ns, one.gap)]]  # fmt: skip
            shut = tuple((group, ns, min(gap, between)) for group, ns, gap in nodes)
            call = simulated.GRAPH_LAUNCH_NS + len(nodes) * simulated.GRAPH_LAUNCH_NODE_NS
            found.append(Act("graph", done, act.part, 0, call, gap=between, nodes=shut))
    return found


CHANGES: dict[str, Change] = {
    "nothing": (list, lambda program, groups: program),
    "kernels faster": (faster, lambda program, groups: changes.speed_up_kernels(program, np.isin(groups, (1, 2)), 3)),
    "kernels removed": (removed, lambda program, groups: changes.fuse(program, groups == 3)),
    "host faster": (host_twice, lambda program, groups: changes.speed_up_host(program, 2)),
    "waits removed": (unsynchronised, lambda program, groups: changes.remove_waits(program)),
    "input ready": (ready, lambda program, groups: changes.prefetch_input(program)),
    "communication overlapped": (unwaited, lambda program, groups: changes.overlap_communication(program)),
    "graph": (graphed, lambda program, groups: changes.capture_as_graph(program)),
}


def applies(change: str, acts: Sequence[Act]) -> bool:
    """Whether a program has what the change is about."""
    kinds, talks = {act.kind for act in acts}, any(act.group < 0 for act in acts)
    if change == "graph":
        return "record" not in kinds and not kinds & {"sync", "stream_sync", "pageable"}
    if change == "waits removed":
        return bool(kinds & {"sync", "stream_sync", "pageable", "staged", "fed"})
    return talks if change == "communication overlapped" else True


def groups_of(program: Program) -> np.ndarray:
    """The group of each kernel, which is its grid less 1; -1 of communication, -2 of what is none."""
    groups = np.where(program.gpu["kind"] == 0, launches.unpack_configurations(program.gpu)["grid_x"] - 1, -2)
    return np.where(program.gpu["talking"], -1, groups)


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """By change, how far off each program's predicted step is, relative; `balance`: what bounds the programs."""
    folder, found = tmp_path_factory.mktemp("traces"), defaultdict(list)
    for seed in range(PROGRAMS):
        acts = simulated.program(seed)
        # On every third device kernels leave each other no room.
        crowded = seed % 3 == 0
        # On every fifth, room in a queue comes back for many at a time.
        device = {"crowded": crowded, "back": 1 if seed % 5 else 32}
        made = simulated.simulate(acts, **device)
        # Every second trace is without events, so that what waits for other streams has to be found by its times.
        (program,) = read_programs(simulated.record(made, folder / f"{seed}.sqlite", events=seed % 2 == 0))
        assert simulator.step_times(program, simulator.measured_times(program)).mean() == pytest.approx(
            made.step_ns(), abs=2
        )
        found["balance"].append(host_time.host_time_parts(program)["balance"])
        for name, (truth, change) in CHANGES.items():
            if applies(name, acts):
                changed = change(program, groups_of(program))
                predicted = simulator.step_times(changed, simulator.simulate(changed)).mean()
                true = simulated.simulate(truth(acts), **device).step_ns()
                found[name].append(float(predicted / true - 1))
    return {name: np.array(values) for name, values in found.items()}


@pytest.mark.slow
def test_random_programs_are_bound_by_the_cpu_by_the_gpu_and_by_neither_alone(errors: dict[str, np.ndarray]) -> None:
    balance = errors["balance"]
    for kind in (balance < 0.8, balance > 1.2, (balance > 0.8) & (balance < 1.2)):
        assert kind.mean() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_predictions_are_close(name: str, errors: dict[str, np.ndarray]) -> None:
    found = errors[name]
    assert len(found) > PROGRAMS / 10
    close = np.mean(np.abs(found) <= WITHIN)
    assert close >= OF_ALL, (
        f"{close:.1%} of {len(found)} within {WITHIN:.0%}, the worst off by {np.abs(found).max():.1%}"
    )
    assert abs(np.median(found)) < 0.005


@pytest.mark.slow
def test_unchanged_programs_take_as_long_as_they_took(errors: dict[str, np.ndarray]) -> None:
    assert np.abs(errors["nothing"]).max() < 1e-3


def test_what_a_change_is_worth_differs_from_amdahls_law(tmp_path: Path) -> None:
    """The CPU is the limit: kernels three times as fast gain nothing, although they are half of the step's time."""
    acts = []
    for step in range(4):
        launching = [Act("kernel", step, "forward", 4e3, 6e3, ns=5e3) for _ in range(50)]
        acts += [Act("begin", step), *launching, Act("end", step)]
    (program,) = read_programs(simulated.record(simulated.simulate(acts), tmp_path / "t.sqlite"))
    everything = np.full(len(program.gpu), True)
    assert predicted_gains.predict_gain(
        program, changes.speed_up_kernels(program, everything, 3)
    ).gain == pytest.approx(1, abs=0.02)
    assert predicted_gains.predict_gain(program, changes.speed_up_host(program, 2)).gain == pytest.approx(
        1.64, abs=0.05
    )
