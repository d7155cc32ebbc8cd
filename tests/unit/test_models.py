"""The zoo: sizes, shapes, learning; the harness that runs it; the LSTM's fused path on a CPU."""

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from PIL import Image

from models import lstm, run
from models.harness import data, loop, registry, settings
from tests.stepwise import Stepwise
from workflow.scripts.lib import config
from workflow.scripts.lib.schema import ConfigError

TINY = {
    "mobilenetv2": {"size": 64, "batch": 4, "classes": 10},
    "unet": {"size": 32, "batch": 1},
    "lstm": {"sequence_length": 16, "batch": 4},
}
OUTPUTS = {"mobilenetv2": (4, 10), "unet": (1, 2, 32, 32), "lstm": (4, 2)}
ZOO = sorted(registry.zoo())


def tiny(name: str, phase: str = "train", **more: object) -> dict:
    """A resolved cell small enough for a CPU."""
    given = config.normalise({"settings": {name: {**TINY[name], "warmup": 0, "window": 1, **more}}, "device": "cpu"})
    return settings.resolve(name, phase, "time", given)


def network_and_batch(cell: dict) -> tuple[torch.nn.Module, tuple]:
    """The cell's network and its first batch."""
    model = importlib.import_module(cell["module"])
    network = loop.network_of(cell, model, torch.device("cpu"), None)
    return network, next(data.batches(cell, model))


@pytest.mark.parametrize("name", ZOO)
def test_parameter_count_is_the_published_one(name: str) -> None:
    model = registry.zoo()[name]
    shape = SimpleNamespace(**model.shape | model.workloads["trimmed"]["train"])
    network = importlib.import_module(model.module).build(shape)
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(model.parameters, rel=0.01)


@pytest.mark.parametrize("name", ZOO)
def test_output_shape(name: str) -> None:
    network, (inputs, _) = network_and_batch(tiny(name, "inference"))
    with torch.inference_mode():
        assert tuple(network(inputs).shape) == OUTPUTS[name]
        assert torch.equal(network(inputs), network(inputs))


@pytest.mark.parametrize("name", ZOO)
def test_loss_falls_on_one_batch(name: str) -> None:
    cell = tiny(name)
    network, (inputs, target) = network_and_batch(cell)
    model = importlib.import_module(cell["module"])
    optimizer = model.optimizer(network.parameters())
    losses = []
    for _ in range(20):
        loss = model.loss(network(inputs), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_train_and_inference_modes() -> None:
    training, (images, _) = network_and_batch(tiny("mobilenetv2"))
    before = training.features[0][1].running_mean.clone()
    training(images)
    assert not torch.equal(before, training.features[0][1].running_mean)
    assert not network_and_batch(tiny("mobilenetv2", "inference"))[0].training


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_every_precision_trains(precision: str) -> None:
    words = ["size=32", "batch=2", "window=1", "warmup=0", "device=cpu"]
    assert run.main(["mobilenetv2", "train", *words, f"precision={precision}"]) == 0


def test_a_cell_end_to_end(tmp_path: Path) -> None:
    words = ["sequence_length=8", "window=2", "warmup=1", "device=cpu"]
    files = {name: tmp_path / name for name in ("steps.csv", "facts.json", "weights.pt", "t.json.gz", "o.csv")}
    assert run.main(["lstm", "train", *words, "--steps", str(files["steps.csv"]), "--save", str(files["weights.pt"]),
                     "--facts", str(files["facts.json"])]) == 0  # fmt: skip
    steps, facts = pd.read_csv(files["steps.csv"]), json.loads(files["facts.json"].read_text())
    assert steps["items"].tolist() == [10, 10] and steps["gpu_ns"].isna().all()
    assert steps["wall_ns"].sum() == facts["window_wall_ns"]
    assert facts["steps"] == 2 and facts["parameters"] == registry.zoo()["lstm"].parameters
    assert run.main(["lstm", "inference", *words, "--load", str(files["weights.pt"]), "--trace", str(files["t.json.gz"]),
                     "--operators", str(files["o.csv"])]) == 0  # fmt: skip
    assert "profzoo:forward" in set(pd.read_csv(files["o.csv"])["name"])


def own_model(folder: Path, name: str, body: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An importable module like the LSTM but for a few lines."""
    (folder / f"{name}.py").write_text(Path(lstm.__file__).read_text() + body)
    monkeypatch.syspath_prepend(str(folder))
    return f"module={name}"


def test_exit_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    words = ["sequence_length=4", "window=1", "warmup=0", "device=cpu"]
    nan = own_model(tmp_path, "nan_model", "\ndef loss(o, t):\n    return o.sum() * float('nan')\n", monkeypatch)
    assert run.main(["mine", "train", nan, *words]) == 3
    assert "profzoo: mine train: the loss is nan at step 0" in capsys.readouterr().err
    broken = own_model(tmp_path, "broken_model", "\ndef loss(o, t):\n    raise RuntimeError('odd')\n", monkeypatch)
    assert run.main(["mine", "train", broken, *words]) == 1
    assert "profzoo: mine train failed with RuntimeError: odd" in capsys.readouterr().err
    assert run.main(["lstm", "train", "hiden=3"]) == 2
    assert "did you mean 'hidden'?" in capsys.readouterr().err


def test_weights_of_other_shapes_are_refused(tmp_path: Path) -> None:
    torch.save(lstm.build(SimpleNamespace(**lstm.SHAPE | {"hidden": 8})).state_dict(), tmp_path / "w.pt")
    with pytest.raises(ConfigError, match="does not fit lstm"):
        loop.network_of(tiny("lstm", "inference"), lstm, torch.device("cpu"), tmp_path / "w.pt")


def test_synthetic_data_is_the_same_for_the_same_seed() -> None:
    one, same, other = (network_and_batch(tiny("lstm", seed=seed))[1] for seed in (1, 1, 2))
    assert torch.equal(one[0][0], same[0][0]) and not torch.equal(one[0][0], other[0][0])


def test_images_from_a_folder(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for index in range(2):
            Image.new("L", (40, 30), index * 80).save(tmp_path / label / f"{index}.png")
    folder = {"source": "folder", "root": str(tmp_path)}
    _, (images, labels) = network_and_batch(tiny("mobilenetv2", data=folder))
    assert images.shape == (4, 3, 64, 64) and sorted(labels.tolist()) == [0, 0, 1, 1]


def test_a_torchvision_dataset() -> None:
    fake = {"source": "dataset", "name": "FakeData", "arguments": {"size": 8, "image_size": [3, 20, 20]}}
    _, (images, _) = network_and_batch(tiny("mobilenetv2", data=fake))
    assert images.shape == (4, 3, 64, 64)


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("mobilenetv2", {"source": "dataset", "name": "MNITS"}, "did you mean 'MNIST'"),
        ("mobilenetv2", {"source": "folder", "root": "/nowhere"}, "is no folder"),
        ("lstm", {"source": "dataset", "name": "FakeData"}, "takes no image data set"),
        (
            "mobilenetv2",
            {"source": "dataset", "name": "FakeData", "arguments": {"size": 2}},
            "has 2 samples, 4 are needed",
        ),
    ],
)
def test_data_that_does_not_fit_is_named(name: str, source: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        network_and_batch(tiny(name, data=source))


def operators(network: torch.nn.Module, sequence_length: int) -> int:
    """Operators of one forward pass on the CPU."""
    shape = SimpleNamespace(**lstm.SHAPE | {"sequence_length": sequence_length})
    samples = [lstm.sample(shape, torch.Generator().manual_seed(index)) for index in range(2)]
    inputs, _ = lstm.collate(samples)
    with torch.inference_mode(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        network(inputs)
    return len(profiler.events())


def test_operators_of_the_lstm_do_not_grow_with_the_sequence() -> None:
    network = lstm.build(SimpleNamespace(**lstm.SHAPE)).eval()
    operators(network, 4)
    assert operators(network, 64) == operators(network, 16)


def test_a_stepwise_lstm_would_fail_that() -> None:
    assert operators(Stepwise(), 64) > 2 * operators(Stepwise(), 16)


def test_the_lstm_is_prepared_after_moves_and_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(torch.nn.LSTM, "flatten_parameters", lambda self: calls.append(self))
    network_and_batch(tiny("lstm"))
    assert calls[-2:] and len(calls) >= 2  # Once by its own constructor, then by the harness.


def test_packing_changes_nothing_for_full_sequences() -> None:
    plain = lstm.build(SimpleNamespace(**lstm.SHAPE)).eval()
    packed = lstm.build(SimpleNamespace(**lstm.SHAPE | {"packed": True})).eval()
    packed.load_state_dict(plain.state_dict())
    text = (torch.randn(3, 7, 300), torch.tensor([7, 7, 7]))
    torch.testing.assert_close(plain(text), packed(text))


def test_carried_state_is_detached() -> None:
    network = lstm.build(SimpleNamespace(**lstm.SHAPE | {"stateful": True}))
    text = (torch.randn(3, 7, 300), torch.tensor([7, 7, 7]))
    for _ in range(2):
        network(text).sum().backward()
        assert all(state.grad_fn is None for state in network.state)
