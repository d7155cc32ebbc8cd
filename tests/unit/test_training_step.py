"""harness/training_step: how networks are placed, optimizers made, blocks checkpointed, and steps updated and checked."""

import contextlib
import os
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from profzoo import run
from profzoo.errors import ConfigError
from profzoo.harness import distributed, inspection, interface
from profzoo.harness.step import step_loop, training_step
from tests import slow
from tests.harness_cells import cell, functions, needs_eight_bits

CPU = torch.device("cpu")
# Products of these sizes take longer in several threads.
torch.set_num_threads(1)


def test_a_network_is_placed_in_the_memory_format_of_its_cell() -> None:
    for last in (True, False):
        placed = training_step.place_network(nn.Conv2d(3, 4, 3), cell(channels_last=last), CPU)
        assert placed.weight.is_contiguous(memory_format=torch.channels_last) == last
    assert isinstance(training_step.place_network(nn.LazyConv2d(4, 3), cell(), CPU), nn.LazyConv2d)
    with pytest.raises(ConfigError, match="has lazy modules"):
        training_step.place_network(nn.LazyConv2d(4, 3), cell(channels_last=True), CPU)


@pytest.mark.parametrize(
    ("kind", "asked", "graph", "held"),
    [
        (torch.optim.Adam, "auto", False, {"foreach": None, "fused": None, "capturable": False}),
        (torch.optim.Adam, "auto", True, {"foreach": None, "fused": None, "capturable": True}),
        (torch.optim.Adam, "for_loop", False, {"foreach": False, "fused": False, "capturable": False}),
        (torch.optim.Adam, "foreach", False, {"foreach": True, "fused": False, "capturable": False}),
        (torch.optim.Adam, "fused", False, {"foreach": False, "fused": True, "capturable": False}),
        (torch.optim.SGD, "foreach", True, {"foreach": True, "fused": False}),
        # It has no fused one, and does without it where none is asked for.
        (torch.optim.RMSprop, "foreach", False, {"foreach": True, "capturable": False}),
        (torch.optim.RMSprop, "fused", False, None),
    ],
)
def test_optimizers_are_made_by_the_implementation_asked_for(
    kind: Any, asked: str, graph: bool, held: dict[str, Any] | None
) -> None:
    before = kind(nn.Linear(2, 2).parameters(), lr=0.25)
    one = cell(optimizer=asked, graph=graph)
    if held is None:
        with pytest.raises(ConfigError, match="RMSprop of m has no such implementation"):
            training_step.choose_implementation(before, one)
        return
    found = training_step.choose_implementation(before, one)
    assert type(found) is kind and (found is before) == (asked == "auto" and not graph)
    (group,) = found.param_groups
    assert {name: group[name] for name in held} == held and group["lr"] == 0.25 and len(group["params"]) == 2


def held_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of an optimizer's states, each once."""
    storages = {one.untyped_storage().data_ptr(): one.nbytes for one in inspection.find_tensors(optimizer.state)}
    return sum(storages.values())


@needs_eight_bits
@pytest.mark.parametrize(
    ("kind", "given"), [(torch.optim.Adam, {}), (torch.optim.AdamW, {"weight_decay": 0.1, "betas": (0.8, 0.99)})]
)
def test_states_in_eight_bits_take_a_quarter_and_train_alike(kind: Any, given: dict[str, Any]) -> None:
    inputs, target = torch.rand(8, 64), torch.rand(8, 64)
    losses, weights, sizes = {}, {}, {}
    for asked in ("auto", "8bit"):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))
        model = functions(
            optimizer=lambda weights: kind([{"params": list(weights), "lr": 3e-3}], **given),
            loss=nn.functional.mse_loss,
        )
        trainer = training_step.Trainer(cell(optimizer=asked), model, network, CPU, step_loop.Ranges())
        losses[asked] = [training_step.run_training_step(trainer, (inputs, target)).item() for _ in range(20)]
        weights[asked], sizes[asked] = network[0].weight.detach(), held_bytes(*trainer.optimizers)
        assert type(*trainer.optimizers).__name__ == kind.__name__ + {"auto": "", "8bit": "8bit"}[asked]
        assert "kernels" not in sys.modules
    assert losses["8bit"] == pytest.approx(losses["auto"], rel=0.05) and losses["8bit"][-1] < 0.1 * losses["8bit"][0]
    assert not torch.equal(weights["8bit"], weights["auto"])
    # Biases stay in fp32, and each 256 numbers have a scale.
    assert 0.25 < sizes["8bit"] / sizes["auto"] < 0.29


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda weights: torch.optim.SGD(weights, lr=1.0), "SGD of m has no form in 8 bits, as Adam and AdamW have"),
        (
            lambda weights: torch.optim.AdamW(weights, amsgrad=True),
            "AdamW of m has amsgrad, which has no form in 8 bits",
        ),
        (lambda weights: torch.optim.Adam(weights, weight_decay=0.1), "Adam of m adds its weight_decay to gradients"),
        (torch.optim.Adam, "needs bitsandbytes, which is not installed: pip install 'profzoo[bitsandbytes]'"),
    ],
)
def test_an_optimizer_without_a_form_in_eight_bits_is_refused(
    made: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ConfigError, match=r"^optimizer = '8bit'") as error:
        training_step.choose_implementation(made(nn.Linear(2, 2).parameters()), cell(optimizer="8bit"))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_sparse_embeddings_have_an_optimizer_of_their_own() -> None:
    network = nn.ModuleDict({"a": nn.Embedding(3, 2, sparse=True), "b": nn.Linear(2, 2), "c": nn.Embedding(3, 2)})
    dense, sparse = training_step.make_optimizers(network, interface.make_adam)
    assert type(sparse) is torch.optim.SparseAdam and sparse.param_groups[0]["lr"] == 1e-3
    assert [one.shape for one in sparse.param_groups[0]["params"]] == [(3, 2)]
    assert len(dense.param_groups[0]["params"]) == 3 and dense.param_groups[0]["lr"] == 1e-3
    assert [len(training_step.make_optimizers(network[name], interface.make_adam)) for name in "ab"] == [1, 1]
    (own,) = training_step.make_optimizers(network, lambda parameters: torch.optim.SGD(parameters, lr=1.0))
    assert type(own) is torch.optim.SGD and len(own.param_groups[0]["params"]) == 4


def test_what_is_checkpointed_is_in_runs_that_begin_with_nothing_in_place() -> None:
    lines, relu = [nn.Linear(1, 1) for _ in range(9)], nn.ReLU(inplace=True)
    for count, lengths in ((9, [3, 3, 3]), (5, [2, 2, 1]), (2, [1, 1])):
        assert [len(run) for run in training_step.group_modules(lines[:count])] == lengths
    mixed = [lines[0], lines[1], nn.Sequential(relu, lines[2]), lines[3]]
    assert [len(run) for run in training_step.group_modules(mixed)] == [3, 1]
    listed = nn.ModuleList([lines[0], relu, lines[1]])
    network = nn.ModuleDict({"a": listed, "b": nn.ModuleList([lines[2]]), "c": nn.Sequential(lines[3])})
    assert list(training_step._sequences(network, set())) == [listed[0], listed[2]]
    pair = nn.Sequential(lines[4], lines[5])
    nested = nn.ModuleList([pair, pair, nn.ModuleList([pair, lines[0]])])
    assert list(training_step._sequences(nested, set())) == [pair, lines[0]]
    outer = nn.Module()
    outer.a, outer.b, outer.c, outer.d = lines[0], nn.Sequential(lines[1]), nn.ModuleList([pair]), relu
    assert list(training_step._blocks(outer)) == [outer.b]


def test_checkpointed_networks_have_the_same_gradients() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    inputs = torch.ones(2, 2, requires_grad=True)
    network(inputs).sum().backward()
    plain = [inputs.grad.clone(), *(one.grad.clone() for one in network.parameters())]  # type: ignore[union-attr]
    network.zero_grad()
    inputs.grad = None
    calls: list[int] = []
    network[0].register_forward_hook(lambda *_: calls.append(1))
    training_step.insert_checkpoints(network, "m")
    network(inputs).sum().backward()
    assert len(calls) == 2
    found = [inputs.grad, *(one.grad for one in network.parameters())]
    assert all(torch.equal(one, other) for one, other in zip(plain, found, strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_an_optimizer_keeps_its_options_and_groups(kind: type) -> None:
    one, other = nn.Linear(1, 1), nn.Linear(1, 1)
    groups = [{"params": one.parameters(), "lr": 0.5}, {"params": other.parameters(), "weight_decay": 0.25}]
    made = kind(groups, lr=0.125)
    found = training_step.choose_implementation(made, {"optimizer": "fused", "graph": True, "model": "mine"})
    assert type(found) is kind and [group["lr"] for group in found.param_groups] == [0.5, 0.125]
    assert found.param_groups[1]["weight_decay"] == 0.25 and found.param_groups[1]["params"][0] is other.weight
    for group in found.param_groups:
        assert group["fused"] is True and group["foreach"] is False and group.get("capturable", True) is True
    assert training_step.choose_implementation(made, {"model": "mine"}) is made


class Refusing(torch.optim.SGD):
    """An own optimizer that is made once, and says nothing where it is to be made again."""

    made = 0

    def __init__(self, parameters: Any, foreach: bool | None = None, fused: bool | None = None) -> None:
        Refusing.made += 1
        if Refusing.made > 1:
            raise ValueError
        super().__init__(parameters, lr=1.0)


def test_an_optimizer_that_cannot_be_made_again_is_told_though_it_says_nothing() -> None:
    own = Refusing(nn.Linear(1, 1).parameters())
    with pytest.raises(ConfigError, match="Refusing of m cannot be made so: ValueError; set optimizer to auto"):
        training_step.choose_implementation(own, cell(optimizer="foreach"))


def test_a_step_updates_and_forgets_gradients_and_is_checked() -> None:
    network = nn.Linear(1, 1, bias=False)
    network.weight.data.fill_(2.0)
    model = functions(
        build=lambda shape: network, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5),
        loss=lambda outputs, target: (outputs * target).sum(),
    )  # fmt: skip

    def trainer(precision: str) -> training_step.Trainer:
        one = cell(optimizer="auto", precision=precision)
        return training_step.Trainer(one, model, network, CPU, step_loop.Ranges())

    plain, fresh, half = map(trainer, ("fp32", "bf16", "fp16"))
    loss = training_step.run_training_step(plain, (torch.tensor([[3.0]]), torch.tensor([[1.0]])))
    # 3 * 2; less half of the gradient of 3.
    assert float(loss) == 6 and float(network.weight) == 0.5 and network.weight.grad is None
    plain.check(loss)
    for wrong, said in ((5, "it returned int"), (torch.ones(2), "it returned a tensor of 2")):
        with pytest.raises(ConfigError, match=said):
            plain.check(wrong)
    with pytest.raises(ConfigError, match="did not enter"):
        fresh.check(torch.ones(()))
    with fresh.forward():
        assert torch.is_autocast_enabled("cpu") and network(torch.ones(1, 1)).dtype == torch.bfloat16
    fresh.check(torch.ones(()))
    with half.forward():
        pass
    with pytest.raises(ConfigError, match="gradients were not scaled"):
        half.check(torch.ones(()))


def trainer_of(
    network: nn.Module, loss: Any = lambda outputs, target: (outputs - target).square().mean(), **given: Any
) -> training_step.Trainer:
    """Objects of a training by SGD at a rate of 0.5."""
    model = functions(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5), loss=loss)
    return training_step.Trainer(cell(**given), model, network, CPU, step_loop.Ranges())


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize(("largest", "norm"), [(2.0, 2.0), (10.0, 5.0)])
def test_gradients_are_scaled_down_to_the_norm_asked_for(precision: str, largest: float, norm: float) -> None:
    """Those of two weights are 3 and 4, whose norm is 5, though a gradient scaler multiplies them first."""
    network = nn.ModuleList([nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)])
    before = [float(one) for one in network.parameters()]
    trainer = trainer_of(network, clip=largest, precision=precision)
    trainer.update(3 * network[0].weight.sum() + 4 * network[1].weight.sum(), *trainer.optimizers)
    moved = [one - float(now) for one, now in zip(before, network.parameters(), strict=True)]
    assert moved == pytest.approx([0.5 * norm * 3 / 5, 0.5 * norm * 4 / 5], rel=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_several_batches_make_the_update_of_one_that_holds_them(precision: str) -> None:
    inputs, target = torch.rand(8, 3), torch.rand(8, 1)
    networks = [nn.Linear(3, 1), nn.Linear(3, 1)]
    networks[1].load_state_dict(networks[0].state_dict())

    # Small enough that no gradient overflows in fp16.
    def loss_of(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return 0.1 * (outputs - target).square().mean()

    whole = trainer_of(networks[0], loss_of, precision=precision)
    parts = trainer_of(networks[1], loss_of, precision=precision, accumulate=2)
    for _ in range(2):
        loss = training_step.run_training_step(whole, (inputs, target))
        mean = training_step.run_training_step(parts, [(inputs[:4], target[:4]), (inputs[4:], target[4:])])
        near = {"rtol": 1e-5, "atol": 1e-6} if precision == "fp32" else {"rtol": 1e-2, "atol": 1e-3}
        torch.testing.assert_close(mean, loss.detach(), **near)
        torch.testing.assert_close(networks[1].weight, networks[0].weight, **near)
        assert networks[1].weight.grad is None
    own = functions(training_step=lambda trainer, batch: None)
    with pytest.raises(ConfigError, match="accumulate: 2: m has a training step of its own"):
        training_step.Trainer(cell(accumulate=2), own, networks[0], CPU, step_loop.Ranges())


def test_weights_are_averaged_by_the_formula_after_each_update() -> None:
    network, judge = nn.Linear(3, 1), nn.Linear(1, 1)
    trainer = trainer_of(network, ema=0.75)
    other = torch.optim.SGD(judge.parameters(), lr=0.5)
    expected = network.weight.detach().clone()
    for _ in range(3):
        training_step.run_training_step(trainer, (torch.rand(2, 3), torch.rand(2, 1)))
        expected = 0.75 * expected + 0.25 * network.weight.detach()
        # A step of another network, as of adversarial ones, does not move them.
        trainer.update(judge(torch.ones(1, 1)).sum(), other)
        torch.testing.assert_close(trainer.averages[network.weight], expected)
    assert set(trainer.averages) == set(network.parameters()) and not trainer.averages[network.weight].requires_grad


def test_what_updates_weights_otherwise_cannot_clip() -> None:
    trainer = trainer_of(nn.Linear(1, 1), clip=0.25)
    with pytest.raises(ConfigError, match=r"training_step of mine: clip = 0\.25 was not applied: have trainer.update"):
        trainer.check(torch.ones(()))
    with pytest.raises(ConfigError, match=r"clip: 1\.0: m has sparse gradients"):
        trainer_of(nn.Embedding(3, 2, sparse=True), clip=1.0)


def test_arithmetic_is_set_as_the_cell_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "x")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    backends = torch.backends

    def now() -> tuple[bool, ...]:
        return (backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32, backends.cudnn.benchmark,
                backends.cudnn.deterministic, torch.are_deterministic_algorithms_enabled())  # fmt: skip

    try:
        training_step.set_arithmetic(cell(precision="tf32", cudnn_benchmark=True, deterministic=True))
        assert now() == (True,) * 5 and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    finally:
        training_step.set_arithmetic(cell(precision="fp32", cudnn_benchmark=False, deterministic=False))
    assert now() == (False,) * 5


@pytest.mark.parametrize("memory", slow.first([False, True]))
def test_what_averages_gradients_ends_before_the_group(
    memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that end it later wait for each other now and then."""
    made: list[weakref.ref] = []
    begin = training_step.Trainer.__init__

    def noted(trainer: training_step.Trainer, *given: object) -> None:
        begin(trainer, *given)
        made.append(weakref.ref(trainer))

    @contextlib.contextmanager
    def group(*given: object) -> Iterator[None]:
        yield
        assert made and not any(one() for one in made)

    monkeypatch.setattr(training_step.Trainer, "__init__", noted)
    monkeypatch.setattr(distributed, "join_group", group)
    more = ["--memory", str(tmp_path / "m.csv")] if memory else []
    assert run.main(["lstm", "train", "device=cpu", "warmup=1", "window=2", "sequence_length=8", "batch=3", *more]) == 0
