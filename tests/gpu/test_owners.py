"""Owners of launches on a real GPU: eager, compiled, captured in a CUDA graph, and of a cell of the zoo."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from torch.profiler import record_function

from profzoo.harness import ranges
from profzoo.io import csv_tables as reading
from profzoo.launches import joined_step
from profzoo.range_names import DOMAIN
from profzoo.tables import layers
from profzoo.tools.torch import compiled, owners
from profzoo.tools.torch import trace as torch_trace
from tests import compiling, owned
from tests.gpu.running import run_snakemake

CUDA = torch.device("cuda")
SHOWN = ["step", "order", "name", "operator", "shapes", "module", "direction", "call"]


def launches(events: list[dict[str, Any]]) -> pd.DataFrame:
    """The table of owners of a trace."""
    return owners.tabulate_launches(torch_trace.make_trace(events))


def right(table: pd.DataFrame) -> float:
    """The share of launches with the right module, of those whose shapes tell it; both directions have to be there."""
    expected = owned.expected(table)
    known = table[expected.notna()]
    assert len(known) >= 40 and {"forward", "backward"} <= set(known["direction"])
    wrong = known[known["module"].astype(str) != expected.dropna()]
    print(wrong[SHOWN].assign(expected=expected).to_string())
    return 1 - len(wrong) / len(known)


@pytest.mark.parametrize("checkpoints", [False, True])
def test_launches_belong_to_their_layers(checkpoints: bool) -> None:
    table = launches(owned.traced(owned.Known(checkpoints).to(CUDA)))
    kernels = table[table["kind"] == "kernel"]
    assert right(table) >= 0.99 and (kernels["operator"] != "").all() and (kernels["step"].notna()).all()
    assert ("recompute" in set(table["direction"])) == checkpoints
    # Autograd launches from a thread of its own, and all of it has found its forward pass.
    assert set(kernels.loc[kernels["range"] == "backward", "direction"]) <= {"backward", "recompute"}
    assert (kernels["module"] == "(backward)").mean() < 0.05


def test_marks_change_no_launch() -> None:
    torch.manual_seed(0)
    names = []
    for marked in (False, True):
        network = owned.Known(checkpoints=False).to(CUDA)
        if marked:
            ranges.mark_modules(network, ranges.torch_range)
        names.append(launches(owned.of_steps(list(owned.steps(network))))["name"].tolist())
    assert names[0] == names[1] and len(names[0]) > 100


def test_compiled_launches_say_what_was_fused() -> None:
    torch._dynamo.reset()
    network = owned.Known(checkpoints=False).to(CUDA)
    network.compile()
    table = launches(owned.traced(network))
    parts = table[table["range"].isin(["forward", "backward"]) & (table["kind"] == "kernel")]
    ours = parts[parts["module"] == "(compiled)"]
    assert set(ours["direction"]) == {"forward", "backward"}
    # The loss is not compiled, so that its backward pass is not either, nor the gradient of the loss itself.
    rest = parts[parts["module"] != "(compiled)"]
    assert set(rest["module"]) <= {"(loss)", "(backward)"} and len(rest) < 0.1 * len(parts), rest[SHOWN].to_string()
    fused = ours[ours["name"].str.startswith("triton")]
    assert len(fused) and fused["operator"].str.startswith("fused ").all()
    assert ours["operator"].str.startswith(("fused ", "aten::")).mean() >= 0.95


def captured(network: nn.Module) -> list[Callable[[], None]]:
    """Steps of which the first warms up, the second captures a training step, and the others replay it."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    batch, graph = torch.randn(owned.BATCH, 19, device=CUDA), torch.cuda.CUDAGraph()

    def train() -> None:
        owned.passes(network, batch)
        with record_function(f"{DOMAIN}:optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

    def warm() -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                train()
        torch.cuda.current_stream().wait_stream(side)

    def capture() -> None:
        with torch.cuda.graph(graph):
            train()

    def replay() -> None:
        with record_function(f"{DOMAIN}:step"):
            graph.replay()
        torch.cuda.synchronize()

    return [warm, capture, replay, replay]


def test_replayed_launches_belong_to_what_was_captured() -> None:
    network = owned.Known(checkpoints=False).to(CUDA)
    ranges.mark_modules(network, ranges.torch_range)
    table = launches(owned.of_steps(captured(network)))
    replays = table[table["step"].notna()]
    assert set(replays["step"]) == {0, 1} and len(replays) > 80
    assert right(replays) >= 0.99 and (replays["module"] == "(graph)").mean() < 0.01
    assert {"(optimizer)", "(loss)"} <= set(replays["module"])


def test_replays_without_their_capture_are_named_as_such() -> None:
    network = owned.Known(checkpoints=False).to(CUDA)
    warm, capture, *replays = captured(network)

    def before() -> None:
        warm()
        capture()

    table = launches(owned.of_steps([before, *replays]))
    assert set(table.loc[table["step"].notna(), "module"]) == {"(graph)"}


def made(cell: str, results: Path, *config: str) -> None:
    run_snakemake(f"{cell}.layers.csv", "--config", f"pathvars={{results: {results}}}", *config)


def test_a_cell_has_owners_for_nearly_all_of_its_time(tmp_path: Path) -> None:
    cell = f"{tmp_path}/mobilenetv2/train"
    made(cell, tmp_path, "tool=torch")
    table = reading.read(f"{cell}.torch.launches.csv", owners.TABLE)
    covered = reading.read(f"{cell}.owners.csv", layers.OWNER_COVERAGE_TABLE).iloc[0]
    assert covered["operator_share"] >= 0.95 and covered["module_share"] >= 0.95
    facts = json.loads(Path(f"{cell}.trace.json.gz.json").read_text())
    assert facts["cell"]["profiler"]["modules"]
    tree = reading.read(f"{cell}.layers.csv", layers.TABLE)
    root = tree[tree["module"] == "(step)"]
    assert root["total_ns"].sum() == pytest.approx(table["ns"].sum() / facts["cell"]["window"])
    assert tree.loc[tree["module"] == "(root)", "share"].sum() > 0.7


def test_layers_have_times_of_nsys_and_counters_of_ncu(tmp_path: Path) -> None:
    cell = f"{tmp_path}/mobilenetv2/inference"
    made(cell, tmp_path, "tool=[ncu,nsys,torch]", "ncu={set: roofline}")
    covered = reading.read(f"{cell}.owners.csv", layers.OWNER_COVERAGE_TABLE).iloc[0]
    assert min(covered["aligned_share"], covered["nsys_share"]) >= 0.99
    tree = reading.read(f"{cell}.layers.csv", layers.TABLE)
    network = tree[tree["module"] == "(root)"].iloc[0]
    assert network["counted_share"] > 0.95 and 0.05 < network["efficiency"] < 1.1 and network["bound"]
    # Depthwise convolutions count no less than they need, as they run on no tiles; the intervals hold the counts.
    assert (
        network["needed_share"] > 0.95
        and (network["simt_flop"] + network["tensor_flop"]) / network["needed_flop"] > 0.9
    )
    assert network["dram_bytes_low"] <= network["dram_bytes"] <= network["dram_bytes_high"]


def test_kernels_of_a_compiled_network_have_their_modules(tmp_path: Path) -> None:
    """In a process of their own, as Inductor is told to note what it compiles; parts add up to each kernel's time."""
    command = [sys.executable, "-m", "tests.compiling", str(tmp_path), "whole", "cuda"]
    subprocess.run(command, check=True)
    trace = torch_trace.read_trace(tmp_path / "whole.trace.json.gz")
    table = owners.tabulate_launches(trace)
    steps = table[table["step"].notna() & (table["kind"] == "kernel")].astype({"module": "str", "operator": "str"})
    triton = steps[steps["name"].str.startswith("triton")]
    print(steps[[*SHOWN, compiled.PARTS]].to_string())
    assert {"forward", "backward"} <= set(triton["direction"]) and (triton[compiled.PARTS] != "").all()
    network = {
        "(root)",
        "head",
        *(f"blocks.{n}{part}" for n in range(compiling.BLOCKS) for part in ("", ".fc", ".norm")),
    }
    assert set(triton["module"]) <= network and {"blocks.0", "blocks.1"} <= set(triton["module"])
    products = steps[steps["operator"].isin(["aten::mm", "aten::addmm"])]
    assert set(products["module"]) == {"blocks.0.fc", "blocks.1.fc", "head"}
    shares = [sum(part[-1] for part in json.loads(parts)) for parts in triton[compiled.PARTS]]
    assert shares == pytest.approx([1] * len(triton))
    divided = compiled.divide_parts(steps[[*joined_step.OWNED, "ns"]], ["ns"])
    assert divided["ns"].sum() == pytest.approx(steps["ns"].sum())
    norms = divided[divided["module"].isin(["blocks.0.norm", "blocks.1.norm"])]
    assert norms["ns"].sum() > 0 and set(norms["lines"].str.rpartition(":")[0]) == {"tests/compiling.py"}
