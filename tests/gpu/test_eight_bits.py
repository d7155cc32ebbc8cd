"""Products in fp8 and int8 on a real GPU: against exact products, peaks, counters, and whole cells."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

from profzoo import run
from profzoo.calibration import peaks
from profzoo.compare import numerics
from profzoo.harness.variants import eight_bit_layers
from profzoo.tools.ncu import estimates
from profzoo.tools.torch import export, owners, trace
from tests.gpu import eight_bit_product
from tests.gpu.running import run_snakemake
from tests.harness_cells import needs_eight_bits
from tests.numeric_runs import side

CUDA = torch.device("cuda")
FORMATS = ("fp8", "int8")
AVAILABLE = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 9)
pytestmark = pytest.mark.skipif(
    not AVAILABLE, reason="no NVIDIA GPU of compute capability 8.9 is visible to torch here"
)


@pytest.fixture(autouse=True)
def _fast_path() -> Iterator[None]:
    """Conversion turns torch's fused path of Transformers off, for the whole process."""
    yield
    torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize("precision", FORMATS)
@pytest.mark.parametrize("rows", [1, 17, 128])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_multiplies_what_it_rounded(precision: str, rows: int, bias: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(768, 3072, bias=bias, device=CUDA)
    layer = eight_bit_layers.EightBitLinear(linear, precision)
    inputs = torch.randn(1, rows, 768, device=CUDA) * torch.logspace(-2, 2, rows, device=CUDA)[:, None]
    rounded, scale = eight_bit_layers.quantise(inputs.reshape(-1, 768), precision, True)
    weight = layer.weight.double() * layer.scale.double().reshape(-1, 1)
    right = (rounded.double() * scale) @ weight.T + (0 if layer.bias is None else layer.bias.double())
    with torch.inference_mode():
        found = layer(inputs)
    assert found.shape == (1, rows, 3072) and found.dtype == torch.bfloat16
    error = (found.double().reshape(-1, 3072) - right).norm(dim=1) / right.norm(dim=1)
    print(precision, rows, bias, error.max())
    assert error.max() < 0.02


@pytest.mark.parametrize(("precision", "words"), [("fp8", ["graph=true"]), ("int8", []), ("int8", ["graph=true"])])
def test_layers_are_checked_and_captured_in_a_graph(precision: str, words: list[str], tmp_path: Path) -> None:
    facts = tmp_path / "f.json"
    assert run.main(["bert", "inference", "window=3", f"precision={precision}", *words, "--facts", str(facts)]) == 0
    found = json.loads(facts.read_text())["eight_bit"]
    print(precision, words, found)
    # Two layers of each of 12 blocks, and one of the head; the projections of attention are of another class.
    assert (found["layers"], found["other_linear_layers"], found["scales"]) == (25, 12, "row")
    # Steps of int8 are 1/127 of a row's largest value; behind GELU, that is almost six times its quadratic mean.
    assert found["largest_error"] < 2 * eight_bit_layers.UNITS[precision]


def test_peaks_are_above_those_of_bf16() -> None:
    found = {name: rate for name, rate, _, _ in peaks.measure_peaks(CUDA, peaks.choose_sizes(CUDA))}
    print({name: f"{rate / 1e12:.0f}" for name, rate in found.items()})
    # A data sheet has twice the rate of bf16; torch's kernels and the power limit keep them from it.
    for precision, least in (("fp8", 1.2), ("int8", 0.8)):
        assert least * found["bf16"] < found[precision] < 2.3 * found["bf16"]


@pytest.mark.parametrize("precision", FORMATS)
def test_sides_are_within_precision(precision: str) -> None:
    given: dict[str, Any] = {"device": "cuda"}
    plain = side("transformer", "inference", **given)
    found = numerics.compare_numbers(plain, side("transformer", "inference", precision=precision, **given))
    print(precision, found)
    # Of fp8, a tenth of the outputs may be rounding.
    assert found.result == {"int8": numerics.WITHIN, "fp8": numerics.UNDECIDED}[precision]
    assert found.difference < eight_bit_layers.UNITS[precision]


@pytest.mark.parametrize(
    ("precision", "phase", "operator", "dtypes", "products"),
    [
        ("fp8", "inference", "aten::_scaled_mm", {"float8_e4m3fn"}, 1),
        ("int8", "inference", "aten::_int_mm", {"int8"}, 1),
        # Outputs, and gradients of inputs and of weights.
        pytest.param("fp8", "train", "aten::_scaled_mm", {"float8_e4m3fn", "float8_e5m2"}, 3, marks=needs_eight_bits),
    ],
)
def test_the_trace_has_the_products_with_their_operations(
    precision: str, phase: str, operator: str, dtypes: set[str], products: int, tmp_path: Path
) -> None:
    files = ["--operators", str(tmp_path / "o.csv"), "--trace", str(tmp_path / "t.json.gz")]
    words = ["module=tests.gpu.eight_bit_product", f"precision={precision}", "window=2"]
    assert run.main(["eight", phase, *words, *files]) == 0
    read = trace.read_trace(tmp_path / "t.json.gz")
    table = export.tabulate_dtypes(read, gpu=True)
    print(table.head(12).to_string())
    rows = table[table["operator"] == operator]
    assert all(rows["dtypes"].str.contains(one).any() for one in dtypes) and (rows["device_ns"] > 0).all()
    launches = owners.tabulate_launches(read)
    own = launches[(launches["operator"] == operator) & launches["step"].notna()]
    each = own.groupby("step")["needed_product_flop"].sum()
    assert each.tolist() == [products * eight_bit_product.FLOPS] * len(each) and len(each)
    print(own["name"].value_counts().to_string())
    # cuBLAS names formats of inputs by a letter where it does not write them out: t is bf16, s fp32 and h fp16.
    if precision == "fp8":
        assert own["name"].str.contains(r"e4m3|e5m2|nvjet_(?:sm\d+_)?[^tsh]").sum() >= products * len(each)


TRAINED = ["gpt", "train", "hidden=1024", "heads=16", "layers=4", "vocabulary=16000", "dropout=0", "window=17"]


def train(folder: Path, *words: str) -> dict[str, Any]:
    """Facts of a training in bf16, unless words say otherwise."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    facts = folder / "f.json"
    assert run.main([*TRAINED, *words, "--facts", str(facts)]) == 0
    found: dict[str, Any] = json.loads(facts.read_text())
    print(words, {key: found.get(key) for key in ("loss", "peak_memory_bytes", "parameters", "eight_bit")})
    return found


@needs_eight_bits
def test_training_in_eight_bits_learns_as_in_bf16(tmp_path: Path) -> None:
    plain = train(tmp_path, "precision=bf16", "optimizer=fused")
    less = train(tmp_path, "precision=bf16", "optimizer=8bit")
    # Two states of 4 bytes for each weight become two of 1, and a scale for each 256.
    saved = plain["peak_memory_bytes"] - less["peak_memory_bytes"]
    assert saved == pytest.approx(plain["parameters"] * 2 * (3 - 4 / 256), rel=0.05)
    rounded = [train(tmp_path, "precision=fp8", *words) for words in (["optimizer=8bit"], ["graph=true"])]
    for found in (less, *rounded):
        assert found["loss"] == pytest.approx(plain["loss"], rel=0.05)
    for found in rounded:
        assert found["eight_bit"]["layers"] == 16 and found["eight_bit"]["largest_error"] < 0.1


@needs_eight_bits
def test_training_in_fp8_is_compiled(tmp_path: Path) -> None:
    plain, found = (train(tmp_path, "precision=fp8", "layers=1", *words) for words in ([], ["compile=true"]))
    assert found["loss"] == pytest.approx(plain["loss"], rel=0.05)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of results with ncu's counters of the product in both formats."""
    folder = tmp_path_factory.mktemp("results")
    settings = ["models={eight: {module: tests.gpu.eight_bit_product}}", f"pathvars={{results: {folder}}}",
                "phases=inference", "ncu={launches: all}"]  # fmt: skip
    targets = [f"{folder}/eight@{precision}/inference.ncu.roofline.csv" for precision in FORMATS]
    run_snakemake(*targets, "--config", *settings)
    return folder


@pytest.mark.parametrize("precision", FORMATS)
def test_ncu_counts_the_products(counted: Path, precision: str) -> None:
    table = pd.read_csv(counted / f"eight@{precision}" / "inference.ncu.roofline.csv")
    found = estimates.derive_quantities(table)[f"tensor_{precision}_flop"]
    print(pd.concat([table["function"], found], axis=1).to_string())
    assert found.max() == pytest.approx(eight_bit_product.FLOPS, rel=0.02)
