"""The zoo: sizes, shapes, learning; the harness that runs it; the LSTM's fused path on a CPU."""

import json
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from PIL import Image

from models import dped, gnmt, inceptionv3, lstm
from profzoo import run
from profzoo.cell import registry, settings
from profzoo.config import configuration as config
from profzoo.errors import ConfigError
from profzoo.harness import data_loading, interface, step_loop, training_step
from profzoo.harness.tasks import adversarial, images
from tests import slow, zoo
from tests.stepwise import Stepwise

ZOO = sorted(registry.shipped_models())
# Of these a test of all models runs each time: a convolution, a recurrence, an attention.
FEW = ("bert", "lstm", "mobilenetv2")
ADVERSARIAL = [name for name in ZOO if "adversarial" in registry.shipped_models()[name].groups]
# What an answer may leave of the error that the best one without a look at the input has.
LEARNT = 0.85
# Widths of the stages of a bottleneck ResNet.
WIDE = (256, 512, 1024, 2048)


def keras_resnet(blocks: tuple[int, ...]) -> int:
    """What Keras counts of a ResNet V2 besides: the running mean and variance of each channel under batch norm (two
    norms within a block, one before each, one at the end), and biases of the first convolution, of the last one in each
    block and of the shortcut of each stage."""
    stages = list(zip(blocks, (64, *WIDE), WIDE, strict=False))
    within = sum(2 * count * width // 4 for count, _, width in stages)
    before = sum(narrow + (count - 1) * width for count, narrow, width in stages)
    biases = 64 + sum(count * width + width for count, _, width in stages)
    return 2 * (within + before + WIDE[-1]) + biases


# Parameters that the network has over the published count, each derived.
EXTRA = {
    # 110 M is rounded: embeddings with their norm, twelve layers of 12*768^2 + 13*768, a head with its norm, no pooler.
    "bert": (30_522 + 512 + 2 + 2) * 768 + 12 * (12 * 768**2 + 13 * 768) + 768**2 + 3 * 768 + 30_522 - 110_000_000,
    # Keras: two running figures for each of 30,272 channels, and no scale.
    "inceptionresnetv2": 30_272 - 2 * 30_272,
    # 42.68 M is rounded.
    "inceptionv4": 42_679_816 - 42_680_000,
    "resnetv2_50": -keras_resnet((3, 4, 6, 3)),
    "resnetv2_152": -keras_resnet((3, 8, 36, 3)),
    # Biases of 64, 32 and 1 maps.
    "srcnn": 64 + 32 + 1,
}


@pytest.mark.parametrize("name", ZOO)
def test_parameter_count_is_the_published_one(name: str) -> None:
    model = registry.shipped_models()[name]
    shape = SimpleNamespace(**model.shape | model.workloads["trimmed"]["train"])
    with torch.device("meta"):
        network = interface.load_functions(model.module).build(shape)
    counted = sum(p.numel() for p in network.parameters())
    assert counted == model.parameters + EXTRA.get(name, 0)
    assert bool(model.difference) == (name in EXTRA)


@pytest.mark.parametrize("name", slow.only(ZOO, *FEW))
def test_inference_gives_the_same_output_of_the_right_shape_and_learns_nothing(name: str) -> None:
    tiny = zoo.cell(name, "inference")
    network, (inputs, _), model = zoo.network(tiny), zoo.batch(tiny), interface.load_functions(tiny["module"])
    before = {key: value.clone() for key, value in network.state_dict().items()}
    with torch.inference_mode():
        first, second = model.infer(network, inputs), model.infer(network, inputs)
    assert tuple(first.shape) == zoo.OUTPUTS[name] and torch.equal(first, second)
    assert not first.is_floating_point() or first.isfinite().all()
    assert not network.training
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


@pytest.mark.parametrize("name", slow.only(zoo.LEARNING, "lstm", "srcnn"))
def test_training_learns_a_batch(name: str) -> None:
    tiny = zoo.cell(name)
    assert share_left(tiny, zoo.network(tiny)) < LEARNT


def test_of_every_task_a_model_is_seen_to_learn() -> None:
    tasks = {model.groups[0] for model in registry.shipped_models().values()}
    assert tasks == {registry.shipped_models()[name].groups[0] for name in zoo.LEARNING}


def share_left(tiny: dict, network: torch.nn.Module) -> float:
    """Training's error on one batch, as a share of the least that an answer has which does not look at the input."""
    steps, times = zoo.LEARNING[tiny["model"]]
    errors = []
    batch, trainer = zoo.telling_batch(tiny), zoo.trainer(tiny, network)
    trainer.optimizers[0].param_groups[0]["lr"] *= times
    step = trainer.model.training_step or training_step.run_training_step
    for index in range(steps):
        step(trainer, batch)
        # At high rates an error goes up and down at the end.
        if index >= steps - 4:
            errors.append(zoo.error(trainer, batch))
    left, blind = min(errors), zoo.blind_error(trainer, batch)
    print(f"{tiny['model']}: {left:.4f} of {blind:.4f}")
    return left / blind


@pytest.mark.slow
def test_small_initial_weights_would_fail_that() -> None:
    """What torch draws by itself shrinks from layer to layer in a network of convolutions and ReLU alone."""
    tiny = zoo.cell("unet")
    network = zoo.network(tiny)
    for module in network.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    assert share_left(tiny, network) > LEARNT


@pytest.mark.slow
def test_a_colour_loss_of_no_weight_would_fail_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """The total variation alone makes a grey image of everything."""
    monkeypatch.setattr(dped, "COLOUR_WEIGHT", 1e-4)
    tiny = zoo.cell("dped")
    assert share_left(tiny, zoo.network(tiny)) > LEARNT


@pytest.mark.parametrize("scale", slow.first([images.IMAGENET, None]))
@pytest.mark.parametrize("seed", slow.first(range(2)))
def test_features_tell_images_apart_at_every_depth(scale: images.Scale | None, seed: int) -> None:
    torch.manual_seed(seed)
    features = adversarial.Features(*adversarial.Features.CONVOLUTIONS, scale=scale)
    one, other = (
        images.random(SimpleNamespace(size=32), torch.Generator().manual_seed(number))[None].requires_grad_()
        for number in (0, 1)
    )
    for mine, theirs in zip(features(one), features(other), strict=True):
        difference = (mine - theirs).norm() / mine.norm()
        assert 0.1 < difference < 2
        # Neither vanished nor grown out of bounds.
        assert 0.03 < mine.square().mean().sqrt() < 5
        # A change of the image by its own size would change this by about as much, up to a factor of ten.
        (gradient,) = torch.autograd.grad(difference, one, retain_graph=True)
        assert gradient.norm() * one.norm() > 0.1


@pytest.mark.parametrize("name", slow.only(ADVERSARIAL, "dped"))
def test_discriminators_learn_as_well_and_features_do_not(name: str) -> None:
    tiny = zoo.cell(name)
    trainer = zoo.trainer(tiny, zoo.network(tiny))
    before = {key: value.clone() for key, value in trainer.others.named_parameters()}
    trainer.model.training_step(trainer, zoo.batch(tiny))
    changed = {
        key.split(".")[0] for key, value in trainer.others.named_parameters() if not torch.equal(value, before[key])
    }
    assert changed == {"discriminator"}


@pytest.mark.parametrize("workload", slow.first(["trimmed", "reference"]))
@pytest.mark.parametrize("name", slow.only(ZOO, *FEW))
def test_every_workload_has_shapes_that_the_model_takes(name: str, workload: str) -> None:
    """On torch's meta device, which computes shapes and no numbers."""
    meta = torch.device("meta")
    for phase in settings.PHASES:
        cell = settings.resolve_cell(name, phase, "time", config.normalise_config({"workload": workload}))
        model, shape = interface.load_functions(cell["module"]), SimpleNamespace(**cell["shape"])
        collate = model.collate or torch.utils.data.default_collate
        sample = model.sample(shape, torch.Generator().manual_seed(0))
        inputs, target = data_loading.move_to_device(collate([sample] * cell["batch"]), meta, torch.contiguous_format)
        with meta:
            network = model.build(shape).train(phase == "train")
            if phase == "inference":
                assert len(model.infer(network, inputs)) == cell["batch"]
            elif model.training_step is None:
                assert model.loss(network(inputs), target).shape == ()


def test_the_auxiliary_classifier_of_inception_trains() -> None:
    tiny = zoo.cell("inceptionv3", auxiliary=True, size=299)
    network, (pixels, classes) = zoo.network(tiny), zoo.batch(tiny)
    outputs = network(pixels)
    parts = [torch.nn.functional.cross_entropy(part, classes) for part in outputs]
    assert len(parts) == 2
    torch.testing.assert_close(inceptionv3.loss(outputs, classes), parts[0] + 0.3 * parts[1])


def test_a_pixel_is_predicted_from_those_before_it_alone() -> None:
    network = zoo.network(zoo.cell("pixelrnn", "inference"))
    image = torch.rand(1, 1, 8, 8, requires_grad=True)
    network(image)[0, :, 4, 3].sum().backward()
    seen = image.grad[0, 0] != 0
    assert seen[:4].any() and seen[4, :3].any() and not seen[4, 3:].any() and not seen[5:].any()


def test_beam_search_of_one_beam_is_greedy_and_wider_ones_find_likelier_translations() -> None:
    tiny = zoo.cell("gnmt", "inference")
    network, ((source, _), _) = zoo.network(tiny), zoo.batch(tiny)

    def likelihood(found: torch.Tensor) -> float:
        start = torch.full((len(found), 1), gnmt.START)
        scores = network((source, torch.cat((start, found[:, :-1]), dim=1))).log_softmax(-1)
        return scores.gather(-1, found[..., None]).sum().item()

    with torch.inference_mode():
        network.beams = 1
        greedy, following = network.translate(source, 5), torch.full((2, 1), gnmt.START)
        for _ in range(5):
            following = torch.cat((following, network((source, following))[:, -1:].argmax(-1)), dim=1)
        assert torch.equal(greedy, following[:, 1:])
        network.beams = 50
        assert likelihood(network.translate(source, 5)) >= likelihood(greedy)


def test_generating_from_caches_gives_what_reading_it_all_again_gives() -> None:
    network = zoo.network(zoo.cell("gpt", "inference"))
    text = prompt = torch.randint(50, (2, 6))
    with torch.inference_mode():
        for _ in range(4):
            text = torch.cat((text, network(text)[:, -1:].argmax(-1)), dim=1)
        assert torch.equal(network.generate(prompt, 4), text[:, 6:])


@pytest.mark.parametrize("precision", slow.only(["fp32", "tf32", "bf16", "fp16"], "bf16"))
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
    assert facts["steps"] == 2 and facts["parameters"] == registry.shipped_models()["lstm"].parameters
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
        step_loop.make_network(zoo.cell("lstm", "inference"), lstm, torch.device("cpu"), tmp_path / "w.pt")


def test_synthetic_data_is_the_same_for_the_same_seed() -> None:
    one, same, other = (zoo.batch(zoo.cell("lstm", seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(one[0][0], same[0][0]) and not torch.equal(one[0][0], other[0][0])


def test_images_from_a_folder(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for index in range(2):
            Image.new("L", (40, 30), index * 80).save(tmp_path / label / f"{index}.png")
    folder = {"source": "folder", "root": str(tmp_path)}
    pixels, labels = zoo.batch(zoo.cell("mobilenetv2", data=folder))
    assert pixels.shape == (4, 3, 64, 64) and sorted(labels.tolist()) == [0, 0, 1, 1]


def test_a_torchvision_dataset() -> None:
    fake = {"source": "dataset", "name": "FakeData", "arguments": {"size": 8, "image_size": [3, 20, 20]}}
    pixels, _ = zoo.batch(zoo.cell("mobilenetv2", data=fake))
    assert pixels.shape == (4, 3, 64, 64)


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
        zoo.batch(zoo.cell(name, data=source))


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
    zoo.network(zoo.cell("lstm"))
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
