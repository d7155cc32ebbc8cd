"""The zoo: sizes, shapes, learning; the harness that runs it."""

import json
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from torch import Tensor
from torchvision.models import ConvNeXt_Tiny_Weights, ViT_B_16_Weights, WeightsEnum, convnext_tiny
from torchvision.models.video import Swin3D_T_Weights
from torchvision.ops import StochasticDepth, complete_box_iou_loss

from models import bert, convnext, flux, gnmt, inceptionv3, lstm, stablediffusion, whisper, yolov8
from profzoo import run
from profzoo.cell import registry, settings
from profzoo.config import configuration as config
from profzoo.document import zoo as document_zoo
from profzoo.harness import interface
from profzoo.harness.step import batches, training_step
from profzoo.harness.tasks import adversarial, decoder, images, mixers
from tests import slow, zoo
from tests.unit.test_autocast import Log

ZOO = sorted(registry.shipped_models())
# Of these a test of all models runs each time: a convolution, a recurrence, an attention.
FEW = ("bert", "lstm", "mobilenetv2", "qwen3next")
ADVERSARIAL = [name for name in ZOO if "adversarial" in registry.shipped_models()[name].groups]
# Settings of a workload that a tiny cell has its own of.
SIZES = {"batch", "size", "height", "width", "tokens", "sequence_length", "classes", "hidden", "layers", "vocabulary"}
# Sizes that heads and strides of AI Benchmark's networks need.
LARGER = {"inceptionv3": 299, "inceptionv4": 299, "inceptionresnetv2": 299, "spade": 128}
# Models whose inference looks at values to know the sizes of what follows, which torch's meta device does not have.
COUNTED = ("yolov8",)
# Those whose networks are built on the meta device in less than a second or so.
QUICKLY_COUNTED = ("llama", "deepseekmoe", "dlrm", "rgat", "whisper", "vit", "convnext", "videoswin", "yolov8")
# Models whose outputs are choices of words.
WORDS = ("gnmt", "gpt", "whisper", "smolvlm", *zoo.DECODERS)
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


# Tokens of a text, of which each number below is written from the published configuration.
TEXT = 1024


def attend(layers: int, width: int, queries: int, keys: int | None = None) -> int:
    """Operations of attention by heads that are so wide in all, without its linear layers."""
    return layers * 4 * queries * (keys or queries) * width


def deepseek(attention: int, layers: int) -> int:
    """Of a token: linear layers of attention, the first layer's network, routes, two shared experts, and the head."""
    routed = 64 * 2048 + 2 * 3 * 2048 * 1408
    return layers * attention + 3 * 2048 * 10_944 + (layers - 1) * routed + 102_400 * 2048


# Products of a token with the experts that it chooses.
CHOSEN = {
    "deepseekmoe": 27 * 6 * 3 * 2048 * 1408,
    "deepseekv2": 26 * 6 * 3 * 2048 * 1408,
    "qwen3next": 48 * 10 * 3 * 2048 * 512,
}
# Operations of one sample's pass at the published sizes; multiplying and adding are two. All products of linear layers
# and convolutions, and attention.
DERIVED = {
    "llama": 2 * TEXT * (16 * (2 * 2048**2 + 2 * 2048 * 512 + 3 * 2048 * 8192) + 128_256 * 2048)
    + attend(16, 2048, TEXT),
    "deepseekmoe": 2 * TEXT * deepseek(4 * 2048**2, 28) + attend(28, 2048, TEXT),
    # Keys have 192 features a head, values 128.
    "deepseekv2": 2 * TEXT * deepseek(2048 * 16 * 192 + 2048 * 576 + 512 * 16 * 256 + 2048**2, 27)
    + attend(27, 16 * (192 + 128) // 2, TEXT),
    # Twelve layers of gated attention; 36 of the delta rule, with a convolution over four tokens, and by each head three
    # products within 64 tokens and three with the state; routes, the shared expert and its gate; the head.
    "qwen3next": 2 * TEXT * 12 * (2048 * (2 * 4096 + 2 * 512) + 4096 * 2048)
    + 2 * TEXT * 36 * (2048 * (2 * (2048 + 4096) + 64) + 4096 * 2048 + 4 * 8192 + 32 * 3 * (64 * 128 + 128**2))
    + 2 * TEXT * (48 * 2048 * (512 + 3 * 512 + 1) + 151_936 * 2048)
    + attend(12, 4096, TEXT),
    # Keys and queries are those of all 24 heads; each has a product within 256 tokens and two with the state.
    "mamba2": 2 * TEXT * 24 * (768 * (2 * 1536 + 2 * 128 + 24) + 1536 * 768 + 4 * (1536 + 256))
    + 2 * TEXT * (24 * (256 * 128 + 24 * (256 * 64 + 2 * 128 * 64)) + 50_288 * 768),
    # 4096 patches and 256 words; modulation, once a sample.
    "flux": 2 * (57 * 12 * 3072**2 * (256 + 4096) + (19 * 12 + 38 * 3) * 3072**2 + 4096 * 3072 * 256)
    + 2 * 3072 * (256 + 768 + 4 * 3072 + 2 * 64 * 4096)
    + attend(57, 3072, 256 + 4096),
    # Products as BK-SDM's code counts them (arXiv:2305.15798), which takes four for each value of the three layer norms
    # of a block, and leaves out attention to each other and to 77 words.
    "stablediffusion": 2 * 338_749_194_240
    + sum(
        attend(count, width, size**2, size**2 + 77) - 2 * 4 * 3 * count * width * size**2
        for count, width, size in ((5, 320, 64), (5, 640, 32), (5, 1280, 16), (1, 1280, 8))
    ),
    # Three encoders for each item and one for each candidate; time and score of candidates.
    "dlrm": 2 * 8448 * (2 * 2 * 512 * 256 + 40 * 256 + 256 * 512)
    + 2 * (512**2 + 8449 * 5 * 7 * 512**2 + 2048 * (516 * 512 + 3 * 512**2 + 512**2 + 512))
    + attend(5, 512, 8449),
    "rgat": 2 * 8192 * (11 * (1024 * 512 + 2 * 512**2) + 512 * 2983),
    # 3000 frames become 1500; of a layer of the decoder, keys and values of them.
    "whisper": 2 * (3 * 80 * 512 * 3000 + (3 + 6 * (12 + 2)) * 512**2 * 1500 + (6 * 14 * 512 + 51_864) * 512 * 224)
    + sum(attend(6, 512, *lengths) for lengths in ((1500,), (224,), (224, 1500))),
    # 1024 patches of 16 pixels become 64 tokens, which 256 words follow.
    "smolvlm": 2 * (1024 * (3 * 256 * 768 + 12 * 12 * 768**2) + 64 * 16 * 768 * 576 + 256 * 49_280 * 576)
    + 2 * 320 * 30 * (2 * 576**2 + 2 * 576 * 192 + 3 * 576 * 1536)
    + attend(12, 768, 1024) + attend(30, 576, 320),
}  # fmt: skip
# As published, where they have a figure of their own: torchvision's are of products.
STATED = {
    "vit": 2 * ViT_B_16_Weights.IMAGENET1K_V1.meta["_ops"],
    "convnext": 2 * ConvNeXt_Tiny_Weights.IMAGENET1K_V1.meta["_ops"],
    "videoswin": 2 * 87.9,
    "yolov8": 8.7,
}
# Parameters that no source tells: of tables, encoders, places and times, layers, and what follows them; of each relation
# in each layer, and of the head.
UNTOLD = {
    "dlrm": 1_010_000_128 * 512 + 2 * (2 * 256 * 512 + 3 * 768) + 40 * 256 + 256 * 512 + 3 * 768 + 2 * 40
    + (8192 + 2049) * 512 + 5 * (7 * 512**2 + 6 * 512 + 2 * 512)
    + (512 + 516 + 1024 + 512 + 512) * 512 + 14 * 512 + 1,
    "rgat": 11 * (1024 * 512 + 3 * 512 + 2 * (512**2 + 3 * 512)) + 512 * 2983 + 2983,
}  # fmt: skip


@pytest.mark.parametrize("name", slow.only([*DERIVED, *STATED], *QUICKLY_COUNTED))
def test_counts_at_the_published_size_are_the_published_or_derived_ones(name: str) -> None:
    model = registry.shipped_models()[name]
    parameters, operations = document_zoo.count_reference(model)
    assert parameters == model.reference["parameters"] + EXTRA.get(name, 0)
    assert model.reference["parameters"] == UNTOLD.get(name, model.reference["parameters"])
    if name in STATED:
        assert model.reference["operations"] == round(1e9 * STATED[name])
        assert operations == pytest.approx(model.reference["operations"], rel=0.01)
        return
    # An expert has room for twice its share of tokens.
    chosen = 2 * TEXT * CHOSEN.get(name, 0)
    assert model.reference["operations"] == DERIVED[name] + chosen
    assert operations == DERIVED[name] + 2 * chosen


@pytest.mark.parametrize(
    ("name", "weights"),
    [("vit", ViT_B_16_Weights), ("convnext", ConvNeXt_Tiny_Weights), ("videoswin", Swin3D_T_Weights)],
)
def test_parameters_are_those_that_torchvision_lists(name: str, weights: type[WeightsEnum]) -> None:
    assert registry.shipped_models()[name].parameters == weights.DEFAULT.meta["num_params"]


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


@pytest.mark.parametrize("name", slow.only([name for name in ZOO if name not in WORDS], *FEW[:3], "resnetv2_152"))
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
    assert zoo.learnt(name) < LEARNT


def test_every_model_learns() -> None:
    assert sorted(zoo.LEARNING) == ZOO


# A loss of each kind: of classes, words, images and directions, and one with a discriminator.
@pytest.mark.parametrize("fault", zoo.FAULTS)
@pytest.mark.parametrize("name", slow.only(["lstm", "gpt", "srcnn", "flux", "spade"], "lstm", "gpt", "srcnn"))
def test_a_broken_loss_teaches_nothing(name: str, fault: str) -> None:
    assert not zoo.learnt(name, zoo.FAULTS[fault]) < LEARNT


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


@pytest.mark.parametrize("workload", slow.first(["trimmed", "reference", "large", "single"]))
@pytest.mark.parametrize("name", slow.only(ZOO, *FEW))
def test_every_workload_has_shapes_that_the_model_takes(name: str, workload: str) -> None:
    """On torch's meta device, which computes shapes and no numbers."""
    meta = torch.device("meta")
    for phase in registry.shipped_models()[name].workloads.get(workload, {}):
        cell = settings.resolve_cell(name, phase, "time", config.normalise_config({"workload": workload}))
        model, shape = interface.load_functions(cell["module"]), SimpleNamespace(**cell["shape"])
        collate = model.collate or torch.utils.data.default_collate
        sample = model.sample(shape, torch.Generator().manual_seed(0))
        inputs, target = batches.move_to_device(collate([sample] * cell["batch"]), meta, torch.contiguous_format)
        with meta:
            network = model.build(shape).train(phase == "train")
            if name in COUNTED and phase == "inference":
                assert {len(part) for part in network(inputs)[:2]} == {cell["batch"]}
            elif phase == "inference":
                assert len(model.infer(network, inputs)) == cell["batch"]
            elif model.training_step is None:
                assert model.loss(network(inputs), target).shape == ()


def switches(name: str, phase: str) -> dict[str, object]:
    """What makes the network of the workload `reference`, but for its sizes."""
    declared = registry.shipped_models()[name].workloads["reference"][phase]
    return {key: value for key, value in declared.items() if key not in SIZES}


@pytest.mark.parametrize("phase", slow.first(settings.PHASES))
@pytest.mark.parametrize("name", slow.only([name for name in ZOO if switches(name, "train")], "dped", "gnmt", "unet"))
def test_a_network_of_ai_benchmark_runs(name: str, phase: str) -> None:
    tiny = zoo.cell(name, phase, **{**switches(name, phase), **({"size": LARGER[name]} if name in LARGER else {})})
    network, batch, model = zoo.network(tiny), zoo.batch(tiny), interface.load_functions(tiny["module"])
    if phase == "train":
        trainer = zoo.trainer(tiny, network)
        assert (model.training_step or training_step.run_training_step)(trainer, batch).isfinite()
    else:
        with torch.inference_mode():
            assert len(model.infer(network, batch[0])) == tiny["batch"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inceptionv3", "inceptionv4", "inceptionresnetv2"])
def test_the_auxiliary_classifiers_of_inception_train(name: str) -> None:
    tiny = zoo.cell(name, auxiliary=True, size=299)
    network, (pixels, classes) = zoo.network(tiny), zoo.batch(tiny)
    outputs = network(pixels)
    parts = [torch.nn.functional.cross_entropy(part, classes) for part in outputs]
    assert len(parts) == 2
    torch.testing.assert_close(inceptionv3.loss(outputs, classes), parts[0] + 0.3 * parts[1])


@pytest.mark.parametrize("more", [{}, {"diagonal": True}])
def test_a_pixel_is_predicted_from_those_before_it_alone(more: dict[str, bool]) -> None:
    network = zoo.network(zoo.cell("pixelrnn", "inference", **more))
    image = torch.rand(1, 1, 8, 8, requires_grad=True)
    network(image)[0, :, 4, 3].sum().backward()
    seen = image.grad[0, 0] != 0
    assert seen[:4].any() and seen[4, :3].any() and not seen[4, 3:].any() and not seen[5:].any()
    # Of the rows above, also what lies to the right of it.
    assert seen[3, 4:].any()


@pytest.mark.parametrize("levels", [1, 256])
def test_pixels_are_drawn_by_what_is_predicted_from_those_before(levels: int) -> None:
    tiny = zoo.cell("pixelrnn", "inference", diagonal=True, levels=levels, drawn=11)
    network, (image, _), model = zoo.network(tiny), zoo.batch(tiny), interface.load_functions(tiny["module"])
    with torch.inference_mode():
        made = model.infer(network, image)
        assert made.shape == image.shape and (made[:, :, 0] > 0).any() and not made[:, :, 1, 3:].any()
        if levels == 1:
            torch.testing.assert_close(network(made)[:, :, 0], made[:, :, 0])
        else:
            torch.testing.assert_close(made * levels, (made * levels).round())


@pytest.mark.parametrize("more", [{}, {"feeding": True}, {"padded": True, "length_norm": 1.0}])
def test_beam_search_of_one_beam_is_greedy_and_wider_ones_find_likelier_translations(more: dict[str, object]) -> None:
    tiny = zoo.cell("gnmt", "inference", **more)
    network, ((source, _), _) = zoo.network(tiny), zoo.batch(tiny)

    def likelihood(found: torch.Tensor) -> float:
        start = torch.full((len(found), 1), gnmt.START)
        scores = network((source, torch.cat((start, found[:, :-1]), dim=1))).log_softmax(-1)
        after = (found == gnmt.END).cumsum(1) - (found == gnmt.END).int() > 0 if network.padded else found < 0
        chosen = scores.gather(-1, found[..., None])[..., 0].masked_fill(after, 0).sum(1)
        return (chosen / ((5 + (~after).sum(1)) / 6) ** network.length_norm).sum().item()

    with torch.inference_mode():
        network.beams = 1
        greedy, following = network.translate(source, 5), torch.full((2, 1), gnmt.START)
        for _ in range(5):
            following = torch.cat((following, network((source, following))[:, -1:].argmax(-1)), dim=1)
        assert torch.equal(greedy, following[:, 1:])
        network.beams = 50
        assert likelihood(network.translate(source, 5)) >= likelihood(greedy)


def test_a_translation_ends_and_attention_passes_over_padding() -> None:
    tiny = zoo.cell("gnmt", "inference", padded=True, longest=2)
    network, ((source, target), _) = zoo.network(tiny), zoo.batch(tiny)
    source[:, 5:] = gnmt.PADDING
    encoded, keys, padding = network._read(source)
    scores, _ = network.decoder(target, (encoded, keys, padding))
    encoded[:, 5:], keys[:, 5:] = 7, 7
    torch.testing.assert_close(network.decoder(target, (encoded, keys, padding))[0], scores)
    with torch.inference_mode():
        network.decoder.classifier.bias[gnmt.END] += 100
        found = interface.load_functions(tiny["module"]).infer(network, (source, target))
    assert found.shape == (2, 16) and (found[:, 0] == gnmt.END).all()


def test_padding_changes_no_scores_of_bert_and_15_percent_of_a_text_are_to_be_told() -> None:
    tiny = zoo.cell("bert", "inference", padded=True, tokens=2000, positions=2000, vocabulary=500, layers=1)
    network, (text, told) = zoo.network(tiny), zoo.batch(tiny)
    words = text != bert.PADDING
    assert not words.all() and (told[~words] == bert.IGNORED).all()
    with torch.inference_mode():
        for network.padded in (True, False):
            scores = network(text)[words][:, 1:]
            network.words.weight[bert.PADDING].normal_()
            changed = (network(text)[words][:, 1:] - scores).abs().max()
            assert changed < 1e-5 if network.padded else changed > 1e-4
    asked = told != bert.IGNORED
    kept, masked = text == told, text == bert.MASK
    assert 0.13 < asked.sum() / words.sum() < 0.17
    assert 0.75 < masked[asked].float().mean() < 0.85 and 0.06 < kept[asked].float().mean() < 0.14
    assert (told[asked] != bert.PADDING).all()


def test_keys_turn_by_their_place() -> None:
    """Pairs of halves: the first by its place, the second by that over 9 ** (1 / 2)."""
    network, seen = zoo.network(zoo.cell("llama", turned=4, base=9.0)), list[mixers.Places]()

    def look(flow: Tensor, places: mixers.Places, _: None) -> Tensor:
        seen.append(places)
        return flow

    decoder.Decoder.run(network, torch.zeros(1, 2, 8), [look], start=5)  # type: ignore[arg-type, list-item]
    turned = seen[0].turn(torch.tensor([[1.0, 1, 0, 0, 7]] * 2))
    angles = torch.tensor([[5, 5 / 3], [6, 2]])
    torch.testing.assert_close(turned, torch.cat((angles.cos(), angles.sin(), torch.full((2, 1), 7.0)), dim=1))


@pytest.mark.parametrize("name", ["gpt", "whisper", "smolvlm"])
def test_generating_from_caches_gives_what_reading_it_all_again_gives(name: str) -> None:
    tiny = zoo.cell(name, "inference")
    network, (inputs, _) = zoo.network(tiny), zoo.batch(tiny)
    # An image or a sound comes with the text, and a text of a sound begins with one token.
    before, text = ([], inputs) if name == "gpt" else (inputs[:1], inputs[1])
    text = torch.full((2, 1), whisper.START) if name == "whisper" else text
    asked = before[0] if name == "whisper" else inputs
    with torch.inference_mode():
        # So large that tokens differ.
        for weight in network.parameters():
            weight.mul_(5 if weight.dim() == 2 else 1)
        for _ in range(4):
            text = torch.cat((text, network((*before, text) if before else text)[:, -1:].argmax(-1)), dim=1)
        assert torch.equal(network.generate(asked, 4), text[:, -4:])


def test_candidates_see_the_history_and_not_each_other() -> None:
    tiny = zoo.cell("dlrm")
    network, (inputs, _) = zoo.network(tiny).eval(), zoo.batch(tiny)
    _, items, _, _, actions = inputs
    before, length = network(inputs), actions.shape[1]
    items[:, length] = (items[:, length] + 1) % tiny["shape"]["items"]
    after = network(inputs)
    assert torch.equal(before[:, 1:], after[:, 1:]) and (before[:, 0] != after[:, 0]).all()
    items[:, length - 1] = (items[:, length - 1] + 1) % tiny["shape"]["items"]
    assert (network(inputs) != after).all()


@pytest.mark.parametrize("name", zoo.DECODERS)
def test_caches_hold_what_later_tokens_need(name: str) -> None:
    """Hidden states of tokens that come one at a time are those of the whole text, in double precision."""
    # Nothing exceeds what the experts take.
    network = zoo.network(zoo.cell(name, "inference")).double()
    for module in network.modules():
        if isinstance(module, decoder.Experts):
            module.reach = len(module.inner)
    with torch.inference_mode():
        for weight in network.parameters():
            weight.mul_(5 if weight.dim() > 1 else 1)
        flow, caches = network.words(torch.randint(50, (2, 11))), network.caches(2, 11)
        parts = [network.read(flow[:, :6], caches), *(network.read(flow[:, [at]], caches, at) for at in range(6, 11))]
        torch.testing.assert_close(torch.cat(parts, dim=1), network.read(flow))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*zoo.DECODERS, "flux", "smolvlm", "whisper"])
def test_blocks_compile_as_whole_graphs(name: str) -> None:
    for phase in settings.PHASES:
        tiny = zoo.cell(name, phase)
        network, (inputs, _), model = zoo.network(tiny), zoo.batch(tiny), interface.load_functions(tiny["module"])
        with torch.inference_mode():
            expected = model.infer(network, inputs)
            torch.compiler.reset()
            for block in model.compiled(network):
                block.compile(backend="eager", fullgraph=True)
            torch.testing.assert_close(model.infer(network, inputs), expected)


@pytest.mark.parametrize("corrected", [False, True])
def test_a_recurrence_in_chunks_is_that_of_single_steps(corrected: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 3, 11, size, generator=generator).double() for size in (4, 4, 5))
    decay, strength, state = (
        torch.rand(size, generator=generator).double() for size in ((2, 3, 11), (2, 3, 11), (2, 3, 4, 5))
    )
    key, expected, kept = torch.nn.functional.normalize(key, dim=-1), [], state.clone()
    found = mixers.scan(query, key, value, -decay, strength if corrected else None, kept, chunk=4)
    for at in range(11):
        state = (-decay[:, :, at, None, None]).exp() * state
        new = value[:, :, at]
        if corrected:
            new = strength[:, :, at, None] * (new - torch.einsum("bhi,bhio->bho", key[:, :, at], state))
        state = state + key[:, :, at, :, None] * new[:, :, None]
        expected.append(torch.einsum("bhi,bhio->bho", query[:, :, at], state))
    torch.testing.assert_close(found, torch.stack(expected, dim=2))
    torch.testing.assert_close(kept, state)


@pytest.mark.parametrize("whole", [False, True])
def test_experts_give_each_token_the_sum_of_those_it_chose(whole: bool) -> None:
    shape = {"hidden": 8, "experts": 5, "expert": 6, "chosen": 2, "shared": 1, "shared_gate": False, "reach": 5.0}
    shape["whole"] = whole
    experts, flow = decoder.Experts(SimpleNamespace(**shape)), torch.randn(2, 20, 8)
    weights, choice = experts.route(flow).softmax(-1).topk(2)
    expected = experts.shared(flow)
    for one in range(5):
        gate, wide = (flow @ experts.inner[one]).chunk(2, dim=-1)
        share = (weights * (choice == one)).sum(-1, keepdim=True) / (weights.sum(-1, keepdim=True) if whole else 1)
        expected = expected + share * ((torch.nn.functional.silu(gate) * wide) @ experts.outer[one])
    torch.testing.assert_close(experts(flow), expected)
    # Of forty tokens that all choose the same two experts, each takes its sixteen at least.
    experts.reach, experts.shared = 0.1, None
    experts.route.weight.data.zero_()
    assert [bool(row.any()) for row in experts(flow).flatten(0, 1)] == [True] * 16 + [False] * 24


# As the releases' configurations and papers say.
RELEASED = [
    *((name, "RMSNorm", "eps", 1e-5) for name in ("llama", "mamba2", "smolvlm")),
    *((name, "RMSNorm", "eps", 1e-6) for name in ("deepseekmoe", "deepseekv2", "qwen3next", "flux")),
    *((name, "Experts", "whole", False) for name in ("deepseekmoe", "deepseekv2")),
    ("qwen3next", "Experts", "whole", True),
    *((name, "Dropout", "p", 0.2) for name in ("inceptionv4", "inceptionresnetv2")),
]


@pytest.mark.parametrize(("name", "kind", "trait", "right"), RELEASED)
def test_layers_are_as_in_the_release(name: str, kind: str, trait: str, right: float) -> None:
    tiny = zoo.cell(name)
    with torch.device("meta"):
        network = interface.load_functions(tiny["module"]).build(SimpleNamespace(**tiny["shape"]))
    found = [getattr(one, trait) for one in network.modules() if type(one).__name__ == kind]
    assert found and set(found) == {right}


def test_training_skips_blocks_of_convnext_as_often_as_torchvision_does() -> None:
    with torch.device("meta"):
        ours, theirs = convnext.build(SimpleNamespace(**convnext.SHAPE)), convnext_tiny()
    skipped = [block.drop_path for stage in ours.stages for block in stage.blocks]
    right = [one.p for one in theirs.modules() if isinstance(one, StochasticDepth)]
    assert [getattr(one, "drop_prob", 0.0) for one in skipped] == pytest.approx(right) and right[-1] == 0.1


def test_the_image_of_smolvlm_is_seen_through_the_tanh_form_of_gelu() -> None:
    act, values = zoo.network(zoo.cell("smolvlm")).eye.blocks[0].mlp.act, torch.linspace(-3, 3, 50)
    assert torch.equal(act(values), torch.nn.functional.gelu(values, approximate="tanh"))


def test_bert_drops_nothing_between_the_linear_layers_of_a_block() -> None:
    tiny = zoo.cell("bert")
    with Log() as log:
        zoo.network(tiny)(zoo.batch(tiny)[0])
    dropped = {results[0].shape[-1] for name, _, results in log.rows if "bernoulli" in name}
    # Of vectors, and of weights of the attention.
    assert dropped == {tiny["shape"]["hidden"], tiny["shape"]["tokens"]}


@pytest.mark.parametrize("name", ["llama", "deepseekv2", "qwen3next", "smolvlm", "flux"])
def test_autocast_casts_no_cosines_in_each_layer(name: str) -> None:
    tiny = zoo.cell(name)
    with torch.autocast("cpu", torch.bfloat16), Log() as log:
        zoo.network(tiny)(zoo.batch(tiny)[0])
    width = sum(tiny["shape"].get("axes", [tiny["shape"].get("turned", 0)])) // 2
    cast = [given[0] for name, given, _ in log.rows if name == "aten::_to_copy"]
    assert len([one for one in cast if one.dim() == 2 and one.shape[1] == width and one.dtype == torch.float32]) <= 2
    if name == "flux":
        # As in the release: activations of the time and the vector, of two streams, of a single block and of the last
        # layer; and queries and keys, which alone have heads of so many features, turn in fp32.
        assert [operator for operator, *_ in log.rows].count("aten::silu") == 2 + 2 + 1 + 1
        given = [given[0] for operator, given, _ in log.rows if operator == "aten::mul"]
        assert {one.dtype for one in given if one.dim() == 4 and one.shape[-1] == width} == {torch.float32}


def test_times_of_flux_lie_about_the_middle() -> None:
    shape, generator = SimpleNamespace(**zoo.cell("flux")["shape"]), torch.Generator().manual_seed(0)
    times = torch.stack([flux.sample(shape, generator)[0][1] for _ in range(1000)])
    # Of the logistic function of a normal variable; even ones would have 0.289.
    assert abs(times.mean() - 0.5) < 0.03 and abs(times.std() - 0.208) < 0.01


def test_noise_of_stable_diffusion_is_that_of_its_release_and_is_taken_away_with_guidance() -> None:
    # Of the largest and the smallest share of noise, as k-diffusion gives them for this release.
    most, least = ((1 - left) ** 0.5 / left**0.5 for left in (stablediffusion.LEFT[-1], stablediffusion.LEFT[0]))
    assert (most, least) == (pytest.approx(14.6146, abs=1e-4), pytest.approx(0.0292, abs=1e-4))
    image, text = torch.randn(2, 4, 8, 8), torch.ones(2, 3, 5)

    class Knowing(SimpleNamespace):
        """Knows the noise, but adds 7.5 by an empty text and 6.5 by another, so that guidance of 7.5 adds none."""

        def __call__(self, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
            latents, time, texts = inputs
            left = torch.tensor(stablediffusion.LEFT)[(1000 * time).round().long()][:, None, None, None]
            return (latents - left.sqrt() * image.repeat(2, 1, 1, 1)) / (1 - left).sqrt() + 7.5 - texts[:, :1, :1, None]

    made = stablediffusion.infer(Knowing(steps=4), (torch.randn(2, 4, 8, 8), torch.rand(2), text))
    assert (made - image).abs().max() < 0.2


def test_overlaps_of_boxes_are_those_of_torchvision() -> None:
    corners = torch.rand(2, 50, 2, generator=torch.Generator().manual_seed(0))
    boxes = torch.cat((corners, corners + 0.1 + corners.flip(1)), dim=-1).requires_grad_()
    found, right = yolov8.compare(*boxes), 1 - complete_box_iou_loss(*boxes)
    torch.testing.assert_close(found, right)
    torch.testing.assert_close(*(torch.autograd.grad(one.sum(), boxes)[0] for one in (found, right)))


def test_distances_of_edges_are_means_by_the_layer_that_the_release_has() -> None:
    network, given = zoo.network(zoo.cell("yolov8", "inference")), torch.full((1, 1, 4, 16), -50.0)
    given[0, 0, range(4), [0, 3, 9, 15]] = 50
    found = network.mean(given.permute(0, 3, 2, 1).softmax(1))
    assert not network.mean.weight.requires_grad and found.flatten().tolist() == pytest.approx([0, 3, 9, 15])


def test_adapters_start_without_effect_and_alone_are_trained() -> None:
    tiny = zoo.cell("llama", lora=4)
    network, (inputs, _) = zoo.network(tiny), zoo.batch(tiny)
    trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
    # Queries, outputs, keys, values and three layers of the feed-forward network, in three layers.
    assert trained == 3 * 4 * (2 * (32 + 32) + 2 * (32 + 16) + 3 * (32 + 64))
    plain, before = zoo.network(zoo.cell("llama")), {key: value.clone() for key, value in network.state_dict().items()}
    plain.load_state_dict(before, strict=False)
    assert torch.equal(network(inputs), plain(inputs)) and torch.equal(
        network.generate(inputs, 2), plain.generate(inputs, 2)
    )
    training_step.run_training_step(zoo.trainer(tiny, network), zoo.batch(tiny))
    changed = {key for key, value in network.state_dict().items() if not torch.equal(value, before[key])}
    assert changed and all(".down." in key or ".up." in key for key in changed)


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
