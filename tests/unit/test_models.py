"""The zoo: sizes, shapes, learning; the harness that runs it."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from models import gnmt, inceptionv3, lstm
from profzoo import run
from profzoo.cell import registry, settings
from profzoo.config import configuration as config
from profzoo.harness import interface
from profzoo.harness.step import batches
from profzoo.harness.tasks import adversarial, images
from tests import slow, zoo

ZOO = sorted(registry.shipped_models())


# Of these a test of all models runs each time: a convolution, a recurrence, an attention.
FEW = ("bert", "lstm", "mobilenetv2")


# Networks with batch norm whose initial weights need a scale of their own.
SCALED = ("inceptionresnetv2", "inceptionv3", "inceptionv4", "resnetv2_152")


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


@pytest.mark.parametrize("name", slow.only(ZOO, *FEW, *sorted(EXTRA)))
def test_parameter_count_is_the_published_one(name: str) -> None:
    model = registry.shipped_models()[name]
    shape = SimpleNamespace(**model.shape | model.workloads["trimmed"]["train"])
    with torch.device("meta"):
        network = interface.load_functions(model.module).build(shape)
    counted = sum(p.numel() for p in network.parameters())
    assert counted == model.parameters + EXTRA.get(name, 0) and bool(model.difference) == (name in EXTRA)


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


# Of the models whose outputs are no choices of words.
@pytest.mark.parametrize("name", slow.only([name for name in ZOO if name not in ("gnmt", "gpt")], *FEW, *SCALED))
def test_outputs_by_initial_weights_depend_on_the_input_and_fit_into_fp16(name: str) -> None:
    """Batch norm that has seen no data keeps no sizes of values."""
    tiny = zoo.cell(name, "inference", batch=2)
    network, (inputs, _), model = zoo.network(tiny), zoo.batch(tiny), interface.load_functions(tiny["module"])
    with torch.inference_mode():
        one, other = model.infer(network, inputs)
    largest = max(one.abs().max(), other.abs().max())
    assert 1e-3 < largest < 1e4 and (one - other).abs().max() > 1e-3 * largest


@pytest.mark.parametrize("name", slow.only(zoo.LEARNING, *zoo.QUICK))
def test_training_lowers_the_error_of_samples_that_it_did_not_see(name: str) -> None:
    assert zoo.learnt(zoo.cell(name, **zoo.LEARNT_SHAPES.get(name, {})), *zoo.LEARNING[name]) < LEARNT


def test_every_model_learns_or_is_named() -> None:
    assert sorted({*zoo.LEARNING, *zoo.UNKNOWN}) == ZOO


# Losses that are broken, each made of the right one.
BROKEN: dict[str, Callable[[Callable], Callable]] = {
    "detached": lambda loss: lambda outputs, target: loss(outputs.detach().requires_grad_(), target),
    "shuffled targets": lambda loss: lambda outputs, target: loss(outputs, target.roll(1, 0)),
    "sign flipped": lambda loss: lambda outputs, target: -loss(outputs, target),
    "wrong axis": lambda loss: lambda outputs, target: loss(outputs.transpose(-1, -2).reshape(outputs.shape), target),
}


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("name", ["lstm", "gpt", "srcnn"])
def test_a_broken_loss_teaches_nothing(name: str, fault: str) -> None:
    tiny = zoo.cell(name, **zoo.LEARNT_SHAPES[name])
    loss = BROKEN[fault](interface.load_functions(tiny["module"]).loss)
    assert not zoo.learnt(tiny, *zoo.LEARNING[name], loss) < LEARNT


@pytest.mark.slow
@pytest.mark.parametrize("scale", [images.IMAGENET, None])
@pytest.mark.parametrize("seed", range(2))
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_discriminators_learn_as_well_and_features_do_not(name: str) -> None:
    tiny = zoo.cell(name)
    trainer = zoo.trainer(tiny, zoo.network(tiny))
    others = dict(trainer.others.named_parameters())
    before = {key: value.clone() for key, value in others.items()}
    trainer.model.training_step(trainer, zoo.batch(tiny))
    assert {key.split(".")[0] for key in others if not torch.equal(others[key], before[key])} == {"discriminator"}


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
        inputs, target = batches.move_to_device(collate([sample] * cell["batch"]), meta, torch.contiguous_format)
        with meta:
            network = model.build(shape).train(phase == "train")
            if phase == "inference":
                assert len(model.infer(network, inputs)) == cell["batch"]
            elif model.training_step is None:
                assert model.loss(network(inputs), target).shape == ()


@pytest.mark.slow
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


def test_a_cell_end_to_end(tmp_path: Path) -> None:
    words = ["sequence_length=8", "window=2", "warmup=1", "device=cpu"]
    names = ("steps", "facts", "save", "load", "trace", "operators")
    files = {name: [f"--{name}", str(tmp_path / ("save" if name == "load" else name))] for name in names}
    assert run.main(["lstm", "train", *words, *files["steps"], *files["save"], *files["facts"]]) == 0
    steps, facts = pd.read_csv(tmp_path / "steps"), json.loads((tmp_path / "facts").read_text())
    assert steps["items"].tolist() == [10, 10] and steps["gpu_ns"].isna().all()
    assert steps["wall_ns"].sum() == facts["window_wall_ns"]
    assert facts["steps"] == 2 and facts["parameters"] == registry.shipped_models()["lstm"].parameters
    assert run.main(["lstm", "inference", *words, *files["load"], *files["trace"], *files["operators"]]) == 0
    assert "profzoo:forward" in set(pd.read_csv(tmp_path / "operators")["name"])


def test_exit_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    words = ["sequence_length=4", "window=1", "warmup=0", "device=cpu"]
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, body, code, said in (
        ("nan_model", "return o.sum() * float('nan')", 3, "the loss is nan at step 0"),
        ("broken_model", "raise RuntimeError('odd')", 1, "RuntimeError: odd"),
    ):
        (tmp_path / f"{name}.py").write_text(f"{Path(lstm.__file__).read_text()}\ndef loss(o, t):\n    {body}\n")
        assert run.main(["mine", "train", f"module={name}", *words]) == code
        printed = capsys.readouterr().err
        assert "profzoo: mine train" in printed and said in printed
    assert run.main(["lstm", "train", "hiden=3"]) == 2 and "did you mean 'hidden'?" in capsys.readouterr().err


def test_a_torchvision_dataset() -> None:
    fake = {"source": "dataset", "name": "FakeData", "arguments": {"size": 8, "image_size": [3, 20, 20]}}
    pixels, _ = zoo.batch(zoo.cell("mobilenetv2", data=fake))
    assert pixels.shape == (4, 3, 64, 64)
