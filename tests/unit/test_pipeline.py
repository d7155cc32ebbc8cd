"""harness/step/pipeline: stages on processes with gloo on this CPU compute what one process computes."""

import multiprocessing
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from profzoo.cell import registry, settings
from profzoo.config import configuration as config
from profzoo.errors import ConfigError
from profzoo.harness import distributed, interface
from profzoo.harness.observers.first_steps import FirstSteps
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import batches, pipeline, step_loop
from tests.harness_cells import cell, functions

CPU, STEPS = torch.device("cpu"), 3
TEXT = {"vocabulary": 31, "hidden": 16, "heads": 2, "layers": 3, "tokens": 6}
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "gpt": {**TEXT, "positions": 9, "dropout": 0.0, "generated": 1},
    "bert": {**TEXT, "positions": 9, "dropout": 0.0, "padded": True},
    "llama": {**TEXT, "groups": 1, "width": 8, "turned": 8, "feed": 24, "tied": True, "generated": 1},
    "vit": {"classes": 5, "patch": 4, "hidden": 16, "layers": 3, "heads": 2, "size": 8},
}


def train(name: str, **more: Any) -> dict[str, Any]:
    """Losses, numbers and weights of some steps of a model in double precision, and the ranges of the last one."""
    sizes = {"model": name, "shape": SHAPES[name], "batch": 2, "samples": 16, "accumulate": 4, "epochs": 9, "warmup": 2}
    plain = dict.fromkeys(("compile", "cudnn_benchmark", "deterministic"), False)
    own: Any = cell(**{**sizes, **plain, "clip": 0.3, "ema": 0.9, **more})
    model, ended = interface.load_functions(f"models.{name}"), list[str]()
    network, ranges = step_loop.build_network(own, model, None).double(), Ranges()
    if own.get("frozen"):
        # The first stage then has nothing to learn.
        cut = model.stages(network)
        for part in (*cut.before, *list(cut.blocks)[:-1]):
            part.requires_grad_(False)
    first = FirstSteps(own, network)
    repeated = step_loop.make_step(own, model, network, CPU, ranges)
    assert repeated.trainer
    repeated.trainer.first_steps = first
    losses = []
    for several, _ in zip(batches.iterate_batches(own, model), range(STEPS), strict=False):
        ended.clear()
        ranges.closed = ended.append
        wide = [[part.double() if part.is_floating_point() else part for part in one] for one in several]
        losses.append(repeated.step(wide))
        first.note(several, losses[-1])
    told = step_loop._finite(losses, own)  # type: ignore[arg-type]
    averages = {key: repeated.trainer.averages[one] for key, one in network.named_parameters()}
    return {
        "losses": torch.tensor(told), "numbers": first.read(told, None), "ranges": ended,
        "weights": distributed.whole_state(network, own), "averages": distributed.join_stages(own, averages),
        "parameters": step_loop.count_parameters(network, own), "own": sum(map(torch.numel, network.parameters())),
    }  # fmt: skip


def run_stage(folder: Path, processes: int, rank: int, name: str, more: Mapping[str, Any]) -> None:
    """Train as one process of a pipeline, and leave what it found in the folder."""
    torch.set_num_threads(1)
    os.environ |= {"WORLD_SIZE": str(processes), "RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"}
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=processes)
    torch.save(train(name, gpus=processes, parallel="pipeline", **more), folder / f"{rank}.pt")
    dist.destroy_process_group()


def train_together(folder: Path, processes: int, name: str, **more: Any) -> list[dict[str, Any]]:
    """What each process of a pipeline found.

    They are forks of a server that has imported what a step imports. Forks of this process cannot run autograd once
    another test has used fake tensors in it.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([__name__, "torch._dynamo", "torch.distributed.pipelining"])
    children = [
        server.Process(target=run_stage, args=(folder, processes, rank, name, more)) for rank in range(processes)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * processes
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(processes)]


@pytest.mark.parametrize(
    ("name", "processes", "more"),
    [("gpt", 2, {}), ("bert", 2, {"checkpoint": True}), ("llama", 3, {}), ("vit", 2, {"frozen": True})],
)
def test_stages_compute_what_one_process_computes(
    name: str, processes: int, more: dict[str, Any], tmp_path: Path
) -> None:
    alone, stages = train(name, **more), train_together(tmp_path, processes, name, **more)
    whole = stages[0]
    for one in stages:
        assert torch.equal(one["losses"], stages[-1]["losses"])
    torch.testing.assert_close(whole["losses"], alone["losses"])
    for part in ("weights", "averages"):
        assert whole[part].keys() == alone[part].keys()
        for key in alone[part]:
            torch.testing.assert_close(whole[part][key], alone[part][key], rtol=0, atol=1e-10, msg=f"{part} {key}")
    for key in ("gradient_norms", "gradient_parts", "used_parameters", "weight_norm"):
        found, right = (torch.tensor(one["numbers"][key], dtype=torch.float64) for one in (whole, alone))
        torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-12)
    assert whole["parameters"] == alone["parameters"] > max(one["own"] for one in stages)


def test_the_ranges_of_a_stage_are_those_of_its_passes(tmp_path: Path) -> None:
    """The first stage is one batch ahead, and the last has the losses; gradients of shared weights come last."""
    first, last = (one["ranges"] for one in train_together(tmp_path, 2, "gpt", accumulate=2))
    assert first == ["forward", "forward", "backward", "backward", "backward", "optimizer"]
    assert last == [*["forward", "loss", "backward"] * 2, "backward", "optimizer"]


@pytest.mark.parametrize("name", ["bert", "deepseekmoe", "deepseekv2", "gpt", "llama", "mamba2", "qwen3next", "vit"])
def test_each_weight_has_a_stage(name: str) -> None:
    declared, model = registry.find_model(name), interface.load_functions(f"models.{name}")
    with torch.device("meta"):
        network = model.build(SimpleNamespace(**{**declared.shape, **declared.workloads["trimmed"]["train"]}))
    before = len(list(network.parameters()))
    assert model.stages
    pipeline.cut_network(network, model.stages(network), 1, 2, name)
    assert 0 < len(list(network.parameters())) < before


def make_stages(before: list[nn.Module], after: list[nn.Module], *blocks: nn.Module) -> interface.Stages:
    """Stages of layers that run one after the other."""
    return interface.Stages(nn.Identity(), blocks, nn.Identity(), before, after)


def test_what_cannot_be_cut_is_refused() -> None:
    network = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))
    one, *blocks = network
    together: Any = cell(gpus=2, parallel="pipeline")
    whole: Any = cell(gpus=2)
    with pytest.raises(ConfigError, match=re.escape("m cannot be cut into stages: define stages(network)")):
        pipeline.find_blocks(network, together, functions())
    few = functions(stages=lambda network: make_stages([], [], one))
    with pytest.raises(ConfigError, match="m has 1 blocks, too few for 2 stages"):
        pipeline.find_blocks(network, together, few)
    assert pipeline.find_blocks(network, whole, few) == ()
    with pytest.raises(ConfigError, match=re.escape("stages(network) of m puts 0.weight in no stage")):
        pipeline.cut_network(network, make_stages([], [], *blocks), 0, 2, "m")
    # Gradients of a weight are added up over the first and the last stage only.
    with pytest.raises(ConfigError, match=re.escape("stages(network) of m puts 2.weight in several stages")):
        pipeline.cut_network(network, make_stages([one, blocks[1]], [blocks[2], one], *blocks), 0, 3, "m")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gpus": 1}, " splits the network over several GPUs: set gpus to 2 or more"),
        ({"precision": "fp16"}, " and precision: fp16 cannot be combined"),
        ({"accumulate": 1}, " fills 2 stages with as many batches: set accumulate to 2 or more"),
    ],
)
def test_settings_that_exclude_a_pipeline_are_refused(changes: dict[str, Any], why: str) -> None:
    own = {"gpus": 2, "parallel": "pipeline", "accumulate": 2, **changes}
    with pytest.raises(ConfigError, match=f"parallel: pipeline{why}"):
        settings.resolve_cell("gpt", "train", "time", config.normalise_config({"settings": {"gpt": own}}))


def test_all_stages_compute_on_the_same_batches() -> None:
    given = config.normalise_config({"gpus": "2", "parallel": "pipeline", "accumulate": "4"})
    one = settings.resolve_cell("gpt", "train", "time", given)
    assert one["samples"] == 4 * one["batch"] * one["steps"]
