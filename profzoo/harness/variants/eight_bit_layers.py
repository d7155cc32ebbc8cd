"""Replaces the linear layers of a network by ones that multiply in 8 bits, fp8 (e4m3) or int8.

In inference, weights are rounded once, inputs in every call, each row by its own largest number (dynamic symmetric
quantisation, one scale per row of the inputs and per output). torch's own operators multiply: `torch._scaled_mm` and
`torch._int_mm`. Training is in fp8, by the layers of torchao: weights, inputs and gradients (e5m2) are rounded in every
step, each tensor by its own largest number.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from profzoo.errors import ConfigError
from profzoo.harness import interface

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings

DTYPES = {"fp8": torch.float8_e4m3fn, "int8": torch.int8}
# Largest numbers of the formats; int8 without -128, so that both signs have the same steps.
LARGEST = {"fp8": torch.finfo(torch.float8_e4m3fn).max, "int8": 127.0}
# Largest relative rounding error of a number in the upper half of a format's range: 4 and 7 significant bits.
UNITS = {"fp8": 2.0**-4, "int8": 2.0**-7}
# Least compute capabilities whose tensor cores multiply in these formats.
CAPABILITIES = {"fp8": (8, 9), "int8": (8, 0)}
# What a layer's sizes must be multiples of, and how many rows a product in int8 needs on a GPU, by torch's checks.
MULTIPLE, LEAST_ROWS = 16, 32
# Scales are above 0, also of rows of zeros.
LEAST_SCALE = 1e-12
# Rows of random numbers with which each new layer is checked.
CHECKED_ROWS = 64
# Attribute of a layer that was made: its `Conversion`.
MADE = "eight_bit"


class Conversion(NamedTuple):
    """How a layer that was made multiplies.

    by_row: whether each row has a scale. error: largest relative error of a product, as `check` measures it.
    """

    precision: str
    by_row: bool
    error: float


class EightBitLinear(nn.Module):
    """A linear layer that multiplies in 8 bits and returns bfloat16, for inference.

    Inputs: (..., in_features), outputs: (..., out_features). `weight` has the shape (out_features, in_features) and the
    format's type. On a CPU, torch multiplies in fp8 with one scale for all rows only.
    """

    scale: Tensor

    def __init__(self, linear: nn.Linear, precision: str) -> None:
        """linear: the layer to replace, on its device; precision: `fp8` or `int8`."""
        super().__init__()
        self.in_features, self.out_features, self.precision = linear.in_features, linear.out_features, precision
        self.by_row = precision == "int8" or linear.weight.device.type == "cuda"
        weight, scale = quantise(linear.weight.detach(), precision, self.by_row)
        self.weight = nn.Parameter(weight, requires_grad=False)
        # Computed from the weights, and so no part of what the network is saved as.
        self.register_buffer("scale", scale.T.contiguous() if self.by_row else scale, persistent=False)
        bias = None if linear.bias is None else linear.bias.detach().to(torch.bfloat16)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs of the layer."""
        rows = inputs.reshape(-1, self.in_features)
        multiply = multiply_in_fp8 if self.precision == "fp8" else multiply_in_int8
        outputs = multiply(rows, self.weight, self.scale, self.bias, self.by_row)
        return outputs.reshape(*inputs.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """Sizes and format."""
        return f"in_features={self.in_features}, out_features={self.out_features}, precision={self.precision}"


def quantise(values: Tensor, precision: str, by_row: bool) -> tuple[Tensor, Tensor]:
    """Round to a format: returns the rounded numbers, and the scales that they are to be multiplied by, in float32.

    The scales have the shape (rows, 1), or () if all rows have one.
    """
    largest = values.abs().amax(dim=-1, keepdim=True) if by_row else values.abs().amax()
    scale = (largest.float() / LARGEST[precision]).clamp(min=LEAST_SCALE)
    scaled = values.float() / scale
    if precision == "int8":
        scaled = scaled.round()
    return scaled.clamp(-LARGEST[precision], LARGEST[precision]).to(DTYPES[precision]), scale


def multiply_in_fp8(rows: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None, by_row: bool) -> Tensor:
    """Product of the rows with the transposed weight, in fp8, as bfloat16.

    On a GPU, tensor cores add up with fewer bits between their full sums (`use_fast_accum`), as inference usually does.
    """
    rounded, own = quantise(rows, "fp8", by_row)
    return torch._scaled_mm(
        rounded, weight.t(), own, scale, bias=bias, out_dtype=torch.bfloat16, use_fast_accum=rows.device.type == "cuda"
    )


def multiply_in_int8(rows: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None, by_row: bool) -> Tensor:
    """Product of the rows with the transposed weight, in int8, as bfloat16; sums are exact, in int32."""
    rounded, own = quantise(rows, "int8", by_row)
    count = len(rounded)
    if rounded.device.type == "cuda" and count < LEAST_ROWS:
        rounded = nn.functional.pad(rounded, (0, 0, 0, LEAST_ROWS - count))
    product = torch._int_mm(rounded, weight.t())[:count] * own * scale
    return (product if bias is None else product + bias).to(torch.bfloat16)


def convert_linear_layers(network: nn.Module, cell: "CellSettings", device: torch.device) -> nn.Module:
    """Replace linear layers of a network on its device; returns the network, which is another one if it is a layer.

    A layer stays as it is if its sizes are not multiples of MULTIPLE, if it shares its weight with another module, or
    if it is of a class of its own, such as the projections of torch's attention, whose weights are read from outside.

    Raises:
        ConfigError: the GPU cannot multiply in this format, no layer can be replaced, or the products are wrong.
    """
    precision = cell["precision"]
    asked = f"{cell['model']} {cell['phase']}: precision = '{precision}'"
    if device.type == "cuda" and (has := torch.cuda.get_device_capability(device)) < CAPABILITIES[precision]:
        name, (major, minor) = torch.cuda.get_device_name(device), CAPABILITIES[precision]
        raise ConfigError(
            f"{asked} needs a GPU of compute capability {major}.{minor} or more, and {name} has {has[0]}.{has[1]}: "
            "use bf16"
        )
    chosen = list(_find_layers(network))
    if not chosen:
        raise ConfigError(
            f"{asked} is for linear layers whose sizes are multiples of {MULTIPLE}, and the network has none that can "
            "be replaced: use bf16"
        )
    # Torch's fused path of a Transformer's layer would read the weights from outside.
    torch.backends.mha.set_fastpath_enabled(False)
    trains = cell["phase"] == "train"
    torchao = interface.import_extra("torchao.float8", f"{asked} in training") if trains else None
    network = _replace(network, chosen, precision, torchao, asked)
    if device.type == "cuda":
        # What conversion takes is not memory of the steps.
        del chosen
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    return network


def _convert(layer: nn.Linear, precision: str, torchao: Any | None) -> tuple[nn.Module, bool]:
    """Return what replaces a layer, and whether each row has a scale; torchao's layer shares its weight and bias."""
    if torchao is None:
        made = EightBitLinear(layer, precision)
        return made, made.by_row
    # A gradient of weights is a sum over rows, which are filled up to a multiple of 16. On a CPU, products in fp8 are
    # slower than those of the rounded numbers in fp32.
    config = torchao.Float8LinearConfig(pad_inner_dim=True, emulate=layer.weight.device.type != "cuda")
    return torchao.convert_to_float8_training(layer, config=config), False


def _replace(
    network: nn.Module, chosen: Sequence[nn.Linear], precision: str, torchao: Any | None, asked: str
) -> nn.Module:
    """Replace these layers; asked: beginning of a message about the first one that multiplies wrongly."""
    made: dict[int, nn.Module] = {}
    generator = torch.Generator().manual_seed(0)
    for layer in chosen:
        one, by_row = _convert(layer, precision, torchao)
        error = check(one, layer, precision, by_row, asked, generator)
        setattr(one, MADE, Conversion(precision, by_row, error))
        made[id(layer)] = one
    for parent in list(network.modules()):
        # All names of a layer, of which `named_children` yields the first.
        for name, child in list(parent._modules.items()):
            if id(child) in made:
                setattr(parent, name, made[id(child)])
    return made.get(id(network), network)


def _find_layers(network: nn.Module) -> Iterator[nn.Linear]:
    """Yield the layers that can be replaced, each once."""
    uses: dict[int, int] = {}
    for module in network.modules():
        for weight in module.parameters(recurse=False):
            uses[id(weight)] = uses.get(id(weight), 0) + 1
    for module in network.modules():
        # Subclasses are called by code that knows them.
        if not isinstance(module, nn.Linear) or type(module) is not nn.Linear or uses[id(module.weight)] > 1:
            continue
        if module.in_features % MULTIPLE == module.out_features % MULTIPLE == 0:
            yield module


def check(
    made: nn.Module, linear: nn.Linear, precision: str, by_row: bool, asked: str, generator: torch.Generator
) -> float:
    """Compare a new layer with the one that it replaces, in fp32 on random inputs; returns its largest error.

    Of a layer that trains, gradients are compared, too. The error may be that of rounding both factors, which is
    measured, and one more unit of the format.

    Raises:
        ConfigError: it is larger, so that this GPU or version of torch does not multiply as it should.
    """
    inputs = torch.randn(CHECKED_ROWS, linear.in_features, generator=generator).to(linear.weight.device)
    rounded = [_rounding_error(one.detach(), precision, by_row) for one in (inputs, linear.weight)]
    allowed = float(torch.tensor(rounded).norm()) + UNITS[precision]
    error = max(
        float((found.float() - right).norm() / right.norm().clamp(min=LEAST_SCALE))
        for found, right in _products(made, linear.weight.detach().float(), inputs, generator)
    )
    if not error <= allowed:
        raise ConfigError(
            f"{asked}: a product of {linear.in_features} x {linear.out_features} is off by {error:.1%} on this "
            f"device, of at most {allowed:.1%} by rounding: use bf16"
        )
    return error


def _products(made: Any, weight: Tensor, inputs: Tensor, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the products of a layer, its outputs without bias and its gradients, each with the right one.

    weight: of the layer that it replaces, in fp32.
    """
    # Layers that train are torch's, of a class of their own.
    trains, given = isinstance(made, nn.Linear), inputs.clone().requires_grad_()
    with torch.set_grad_enabled(trains), torch.autocast(inputs.device.type, torch.bfloat16):
        outputs = made(given)
    bias = 0 if made.bias is None else made.bias.detach().float()
    yield outputs.detach().float() - bias, inputs @ weight.T
    if trains:
        gradient = torch.randn(outputs.shape, generator=generator).to(outputs)
        wanted = [one for one in (given, made.weight) if one.requires_grad]
        right = [gradient.float() @ weight, gradient.float().T @ inputs]
        yield from zip(torch.autograd.grad(outputs, wanted, gradient), right, strict=False)


def _rounding_error(values: Tensor, precision: str, by_row: bool) -> float:
    """Relative error of rounding a matrix to a format."""
    rounded, scale = quantise(values, precision, by_row)
    wide = values.float()
    return float((rounded.float() * scale - wide).norm() / wide.norm().clamp(min=LEAST_SCALE))


def describe_eight_bit_layers(network: nn.Module) -> dict[str, Any]:
    """Facts about a converted network for its sidecar: format, layers that multiply in it, and their largest error.

    Empty for a network that was not converted.
    """
    made: list[Conversion] = [getattr(module, MADE) for module in network.modules() if hasattr(module, MADE)]
    if not made:
        return {}
    others = sum(isinstance(module, nn.Linear) and not hasattr(module, MADE) for module in network.modules())
    return {
        "eight_bit": {
            "format": made[0].precision,
            "scales": "row" if made[0].by_row else "tensor",
            "layers": len(made),
            "other_linear_layers": others,
            "largest_error": max(one.error for one in made),
        }
    }
