"""Variants: which can be combined, what each sets in the step, and that results are those of the plain step."""

from typing import Any

import pytest
import torch
from torch import nn

from profzoo.cell import settings
from profzoo.compare import sides
from profzoo.config import configuration
from profzoo.errors import ConfigError
from profzoo.harness import ranges
from profzoo.harness.step import step_loop, training_step
from profzoo.trials import trial_table
from tests import slow, zoo

CPU = torch.device("cpu")


def resolved(name: str, phase: str = "train", **given: Any) -> dict[str, Any]:
    """A cell of the zoo."""
    return settings.resolve_cell(name, phase, "time", configuration.normalise_config(given))


def test_variants_that_are_joined_set_what_each_sets() -> None:
    cell = resolved("lstm@bf16+graph+fused")
    assert (cell["precision"], cell["graph"], cell["optimizer"]) == ("bf16", True, "fused")
    own = {"variants": {"mine": {"data": {"root": "a"}}, "other": {"data": {"source": "folder"}, "hidden": 3}}}
    cell = resolved("lstm@mine+other", **own)
    assert (cell["data"]["root"], cell["data"]["source"], cell["shape"]["hidden"]) == ("a", "folder", 3)


def test_they_are_taken_wherever_one_is() -> None:
    checked = configuration.normalise_config({"models": "lstm@bf16+compile", "candidate": "bf16+compile,tf32"})
    assert configuration.select_models(checked) == ["lstm@bf16+compile"]
    assert [side.of("lstm") for side in sides.sides_of(checked)] == ["lstm", "lstm@bf16+compile", "lstm@tf32"]
    configuration.check_targets(["results/lstm@bf16+graph/train.nsys.csv"], "results", checked)


def test_trials_go_on_from_them() -> None:
    found, _ = trial_table.candidate_words("lstm@bf16+fused", "train", configuration.normalise_config({}))
    assert found["compile"] == ["compile=true"] and "bf16" not in found


def test_settings_that_were_there_before_are_all_that_a_plain_cell_has() -> None:
    assert not set(settings.LATER) & set(resolved("lstm")) and resolved("lstm@compile")["compile"] is True
    assert resolved("lstm", compile="default") == resolved("lstm@compile")
    for name in ("graph+fp16+fused", "graph+compile", "graph+max-autotune-no-cudagraphs", "checkpoint+compile+foreach"):
        assert resolved(f"lstm@{name}")
    for name in ("optimizer8bit+fp8+compile+checkpoint", "fp8+graph", "optimizer8bit+fp16+clip+ema+accumulate"):
        assert resolved(f"gpt@{name}")
    for name in ("graph+fp16", "graph+optimizer8bit"):
        assert resolved(f"lstm@{name}", "inference")["graph"]


@pytest.mark.parametrize(
    ("name", "phase", "given", "line"),
    [
        ("lstm@bf16+fp16", "train", {}, "variants bf16 and fp16 cannot be combined: precision is bf16 in the one and fp"),
        ("lstm@compile+reduce-overhead", "train", {}, "variants compile and reduce-overhead cannot be combined: compile"),
        ("lstm@bf16+bf16", "train", {}, "variant 'bf16+bf16' names bf16 twice"),
        ("lstm@bf16+graf", "train", {}, "unknown variant 'graf' of 'lstm@bf16+graf': did you mean 'graph'?"),
        ("lstm@bf16+", "train", {}, "unknown variant '' of 'lstm@bf16+'"),
        ("lstm@a+b", "train", {"variants": {"a": {"data": {"root": "x"}}, "b": {"data": {"root": "y"}}}},
         "variants a and b cannot be combined: data.root is x in the one and y in the other"),
        ("lstm@graph", "train", {"device": "cpu"}, "lstm train: graph: true captures CUDA graphs, which a CPU has none"),
        ("lstm@graph", "train", {"gpus": 2}, "lstm train: graph: true is for one GPU, not 2"),
        ("lstm@graph+reduce-overhead", "inference", {}, "lstm inference: graph: true and compile: reduce-overhead"),
        ("lstm@graph+fp16", "train", {}, "lstm train: graph: true and precision: fp16 train with optimizer: fused only"),
        ("lstm@graph", "inference", {"warmup": 2}, "lstm inference: graph: true takes 3 steps of warm-up or more, not 2"),
        ("lstm@graph+checkpoint", "train", {}, "lstm train: checkpoint: true and graph: true cannot be combined"),
        ("lstm@checkpoint", "inference", {}, "lstm inference: checkpoint: true is for training"),
        ("lstm@accumulate", "inference", {}, "lstm inference: accumulate: 4 is for training"),
        ("lstm@accumulate+reduce-overhead", "train", {}, "lstm train: accumulate: 2 or more and compile: reduce-overh"),
        ("lstm@ema", "inference", {}, "lstm inference: ema: 0.999 is for training"),
        ("lstm", "inference", {"prefetch_factor": 3}, "lstm inference: prefetch_factor: 3 is for worker processes, and"),
        ("lstm", "train", {"persistent_workers": False}, "lstm train: persistent_workers: false is for worker processes"),
        ("lstm@optimizer8bit+graph", "train", {}, "lstm train: optimizer: 8bit and graph: true cannot be combined"),
        ("lstm@optimizer8bit+channels_last", "train", {}, "lstm train: optimizer: 8bit and channels_last: true cannot"),
        ("lstm@optimizer8bit+fused", "train", {}, "variants optimizer8bit and fused cannot be combined: optimizer is 8"),
        ("gpt@optimizer8bit", "train", {"gpus": 2, "parallel": "fsdp"}, "gpt train: optimizer: 8bit and parallel: fsdp"),
        ("gpt@fp8", "train", {"gpus": 2, "parallel": "tensor"}, "gpt train: precision: fp8 and parallel: tensor cannot"),
        ("mine@optimizer8bit", "train", {"settings": {"mine": {"command": "python x.py"}}},
         "mine train: optimizer: 8bit makes another optimizer, which cannot be done to a script"),
        ("lstm@clip", "inference", {}, "lstm inference: clip: 1.0 is for training, inference updates no weights"),
    ],
)  # fmt: skip
def test_what_cannot_be_combined_is_refused_with_the_reason(name: str, phase: str, given: dict, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolved(name, phase, **given)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


def losses(cell: dict[str, Any], steps: int = 3) -> tuple[list[float], nn.Module]:
    """Losses of steps on one batch, and the network that was trained."""
    network = zoo.network(cell)
    model = step_loop.interface.load_functions(cell["module"])
    step = step_loop.make_step(cell, model, network, CPU, ranges.Ranges()).step
    batch = zoo.batch(cell)
    torch.manual_seed(1)
    return [float(step(batch)) for _ in range(steps)], network


@pytest.mark.parametrize("name", slow.first(["srcnn", "bert"]))
@pytest.mark.parametrize("implementation", ["for_loop", "foreach", "fused"])
def test_every_implementation_of_an_optimizer_trains_alike(name: str, implementation: str) -> None:
    plain, _ = losses(zoo.cell(name))
    chosen, _ = losses(zoo.cell(name, optimizer=implementation))
    assert chosen == pytest.approx(plain, rel=1e-4) and len(set(plain)) == 3


def gradients(cell: dict[str, Any]) -> tuple[torch.Tensor, dict[str, torch.Tensor], int]:
    """Loss, gradients of the network by parameter, and how many modules were called."""
    network = zoo.network(cell)
    if cell.get("checkpoint"):
        training_step.insert_checkpoints(network, cell["model"])
    calls: list[nn.Module] = []
    for module in network.modules():
        module.register_forward_hook(lambda module, *_: calls.append(module))
    trainer, (inputs, target) = zoo.trainer(cell, network), zoo.batch(cell)
    torch.manual_seed(1)
    loss = trainer.model.loss(trainer.network(inputs), target)
    loss.backward()
    found = {name: one.grad for name, one in network.named_parameters() if one.grad is not None}
    return loss.detach(), found, len(calls)


# By runs of a Sequential, modules of a list with random dropping and several inputs, and blocks.
@pytest.mark.parametrize("name", slow.first(["mobilenetv2", "bert", "gpt", "inceptionv3"], 2))
def test_checkpoints_leave_gradients_as_they_are(name: str) -> None:
    loss, plain, calls = gradients(zoo.cell(name))
    same, found, more = gradients(zoo.cell(name, checkpoint=True))
    assert torch.equal(loss, same) and set(plain) == set(found) and len(plain) > 3
    for parameter, gradient in plain.items():
        torch.testing.assert_close(found[parameter], gradient, rtol=1e-5, atol=1e-7)
    # Of what is in a checkpoint the forward pass runs again.
    assert calls * 1.3 < more


def test_a_network_without_sequences_has_nothing_to_checkpoint() -> None:
    cell = zoo.cell("lstm", checkpoint=True)
    with pytest.raises(ConfigError, match="checkpoint: true finds nothing in lstm"):
        losses(cell)
