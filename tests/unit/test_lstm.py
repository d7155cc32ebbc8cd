"""models/lstm: the fused path on a CPU, with a criterion that a stepwise LSTM fails; packing; carried state."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from models import lstm
from profzoo.cell import settings
from profzoo.config import configuration as config
from profzoo.harness import interface
from profzoo.harness.step import step_loop
from tests import slow

FUSED = {"aten::lstm", "aten::mkldnn_rnn_layer"}


def network(**shape: object) -> nn.Module:
    """The LSTM, in evaluation mode."""
    torch.manual_seed(0)
    return lstm.build(SimpleNamespace(**lstm.SHAPE | shape)).eval()


def text(length: int, lengths: list[int] | None = None, batch: int = 2) -> tuple[Tensor, Tensor]:
    """Random words of a batch."""
    words = torch.randn(batch, length, lstm.SHAPE["features"], generator=torch.Generator().manual_seed(1))
    return words, torch.tensor(lengths or [length] * batch)


def operators(module: nn.Module, length: int, train: bool) -> dict[str, int]:
    """Calls of each operator in one step on the CPU, the second one."""
    for _ in range(2):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            with torch.set_grad_enabled(train):
                scores = module(text(length))
            if train:
                scores.sum().backward()
        module.zero_grad()
    return {event.key: event.count for event in profiler.key_averages()}


@pytest.mark.parametrize("hidden", slow.first([64, 1024]))
@pytest.mark.parametrize("train", [False, True])
def test_the_zoos_lstm_is_one_fused_operator_for_a_sequence_of_any_length(train: bool, hidden: int) -> None:
    module = network(hidden=hidden)
    if train and "aten::mkldnn_rnn_layer_backward" not in operators(module, 16, train):
        pytest.skip("torch has no fused backward pass on this CPU")
    short, long = operators(module, 8, train), operators(module, 24, train)
    # The library may fill one buffer more.
    assert {**short, "aten::fill_": 0} == {**long, "aten::fill_": 0}
    assert FUSED & set(long) and long[max(FUSED & set(long))] == 1


@pytest.mark.parametrize("layers", [1, 2])
def test_packing_reads_no_padding(layers: int) -> None:
    module = network(packed=True, layers=layers)
    (words, lengths), alone = text(7, [3, 7]), text(7)[0][:1, :3]
    torch.testing.assert_close(module((words, lengths))[:1], module((alone, torch.tensor([3]))))
    changed = words.clone()
    changed[0, 3:] = 99
    torch.testing.assert_close(module((changed, lengths)), module((words, lengths)))


@pytest.mark.parametrize("packed", [False, True])
def test_carried_state_continues_the_text(packed: bool) -> None:
    module, whole = network(stateful=True, packed=packed), network()
    words, _ = text(8)
    for half in words.split(4, dim=1):
        scores = module((half, torch.tensor([4, 4])))
    torch.testing.assert_close(scores, whole((words, torch.tensor([8, 8]))))


def test_training_with_carried_state_goes_on_and_state_is_no_part_of_the_weights() -> None:
    module = network(stateful=True).train()
    before, optimizer = set(module.state_dict()), interface.make_adam(module.parameters())
    for _ in range(3):
        torch.nn.functional.cross_entropy(module(text(5)), torch.tensor([0, 1])).backward()
        optimizer.step()
        optimizer.zero_grad()
        assert all(state.grad_fn is None and not state.requires_grad for state in module.state)
    assert set(module.state_dict()) == before == set(network().state_dict())


@pytest.mark.parametrize("packed", [False, True])
def test_samples(packed: bool) -> None:
    shape = SimpleNamespace(**lstm.SHAPE | {"sequence_length": 12, "packed": packed})
    samples = [lstm.sample(shape, torch.Generator().manual_seed(seed)) for seed in range(8)]
    (words, lengths), classes = lstm.transfer(lstm.collate(samples), torch.device("cpu"))
    assert words.shape == (8, 12, 300) and classes.shape == (8,) and lengths.device.type == "cpu"
    assert (lengths.min() < 12) == packed and lengths.min() >= 1 and lengths.max() <= 12
    for row, length in zip(words, lengths.tolist(), strict=True):
        assert row[length:].eq(0).all() and row[:length].ne(0).any(1).all()


class Library(nn.Linear):
    """Has a method of that name that is something else, as it needs arguments."""

    def prepare(self, inputs: torch.Tensor) -> torch.Tensor:
        raise AssertionError("not for the harness")


def test_prepare_reaches_modules_at_any_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[nn.Module] = []
    modules = nn.Sequential(Library(2, 2), nn.Sequential(network(), network()))
    monkeypatch.setattr(nn.LSTM, "flatten_parameters", lambda self: calls.append(self))
    step_loop.prepare_network(modules)
    assert calls == [module.lstm for module in modules[1]]


@pytest.mark.parametrize("phase", settings.PHASES)
def test_the_reference_is_as_wide_as_ai_benchmarks(phase: str) -> None:
    cell = settings.resolve_cell("lstm", phase, "time", config.normalise_config({"workload": "reference"}))
    assert cell["shape"]["hidden"] == 1024 and cell["shape"]["sequence_length"] == 1024
    module = lstm.build(SimpleNamespace(**cell["shape"]))
    # AI Benchmark's count, and a second bias for each of 1024 units in four gates.
    assert sum(p.numel() for p in module.parameters()) == 5_429_250 + 4 * 1024
    assert settings.resolve_cell("lstm", phase, "time", config.normalise_config({}))["shape"]["hidden"] == 64
