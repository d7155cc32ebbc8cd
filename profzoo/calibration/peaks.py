"""Measures the peak rates of the device, which are the roofs of a roofline.

Run as `python -m profzoo.calibration.peaks --out peaks.csv`.

Rates are measured with torch's own kernels (copies, reductions, matrix products). They are what a program in torch can
reach, and not the values of the data sheet. Each is the best of several timings after a warm-up.
"""

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from profzoo.errors import ConfigError
from profzoo.harness import devices
from profzoo.harness.variants import eight_bit_layers
from profzoo.machine import job_child

COLUMNS = ("peak", "rate", "unit", "how")
REPEATS = 5
# Long enough for clocks to rise and for the timer's grain not to matter.
LEAST_S = 0.05
ROWS = 256
# Products in 8 bits, of rows that are scaled each by itself.
EIGHT_BITS = ("int8", "fp8")
ARITHMETIC = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@dataclass(frozen=True)
class Sizes:
    """Sizes of what is measured: bytes copied through DRAM, bytes that fit into L2, order of the matrices."""

    dram_bytes: int
    l2_bytes: int
    order: int


def choose_sizes(device: torch.device) -> Sizes:
    """Choose sizes: large for a GPU, small for a CPU, where this is only a functional check."""
    if device.type != "cuda":
        return Sizes(1 << 26, 1 << 20, 512)
    # Half of L2 is left to what else is in it; each half of some GPUs holds a copy of its own.
    return Sizes(1 << 30, torch.cuda.get_device_properties(device).L2_cache_size // 4, 8192)


def time_call(work: Callable[[], object], device: torch.device) -> float:
    """Seconds per call of the work: best of several series, each long enough to time."""
    work()
    count = max(1, round(LEAST_S / max(_series(work, 1, device), 1e-6)))
    return min(_series(work, count, device) for _ in range(REPEATS)) / count


def _series(work: Callable[[], object], count: int, device: torch.device) -> float:
    if device.type != "cuda":
        began = time.perf_counter()
        for _ in range(count):
            work()
        return time.perf_counter() - began
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        work()
    end.record()
    torch.cuda.synchronize(device)
    return begin.elapsed_time(end) / 1e3


def measure_peaks(device: torch.device, chosen: Sizes) -> Iterator[tuple[str, float, str, str]]:
    """Yield name, rate, unit and method of each peak."""
    copied, again = chosen.dram_bytes, chosen.l2_bytes
    yield "dram", 2 * copied / _copy(copied, device), "byte/s", f"copy of {copied >> 20} MiB, read and written"
    how = f"{ROWS} sums of the same {again >> 20} MiB"
    yield "l2", ROWS * again / _sums(again, device), "byte/s", how
    for name, dtype in ARITHMETIC.items():
        if device.type == "cuda" or name not in ("tf32", "fp16"):  # These are not arithmetic of a CPU's own.
            order = chosen.order // 2 if name == "fp64" else chosen.order
            torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
            took = _product(order, dtype, device)
            yield name, 2 * order**3 / took, "flop/s", f"product of two matrices of order {order}"
    for name in (one for one in EIGHT_BITS if _multiplies_in(one, device)):
        took = _eight_bit_product(chosen.order, name, device)
        yield name, 2 * chosen.order**3 / took, "flop/s", f"product of two {name} matrices of order {chosen.order}"


def _copy(size: int, device: torch.device) -> float:
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return time_call(lambda: target.copy_(source), device)


def _sums(size: int, device: torch.device) -> float:
    # Each sum reads the same elements from L2 again, as L1 is too small to hold them.
    rows = torch.zeros(size // 4, device=device).expand(ROWS, -1)
    return time_call(lambda: rows.sum(dim=1), device)


def _product(order: int, dtype: torch.dtype, device: torch.device) -> float:
    # Zeros would take less power, and let clocks rise higher than numbers do.
    left, right = (torch.rand(order, order, device=device).sub_(0.5).to(dtype) for _ in range(2))
    result = torch.empty_like(left)
    return time_call(lambda: torch.mm(left, right, out=result), device)


def _multiplies_in(precision: str, device: torch.device) -> bool:
    # fp8 is not arithmetic of a CPU's own either.
    if device.type != "cuda":
        return precision == "int8"
    return torch.cuda.get_device_capability(device) >= eight_bit_layers.CAPABILITIES[precision]


def _eight_bit_product(order: int, precision: str, device: torch.device) -> float:
    # As above, of random numbers; without rounding to the format, which is work of its own.
    by_row = precision == "int8" or device.type == "cuda"
    left, right = (torch.rand(order, order, device=device).sub_(0.5) for _ in range(2))
    (left, own), (right, scale) = (eight_bit_layers.quantise(one, precision, by_row) for one in (left, right))
    if precision == "int8":
        return time_call(lambda: torch._int_mm(left, right.t()), device)
    scales, fast = (own, scale.T.contiguous() if by_row else scale), device.type == "cuda"
    return time_call(
        lambda: torch._scaled_mm(left, right.t(), *scales, out_dtype=torch.bfloat16, use_fast_accum=fast), device
    )


def describe_run(asked: str, device: torch.device) -> dict[str, str | None]:
    """Facts about the run: device and versions; asked: the requested device."""
    cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if cuda else f"CPU, {torch.get_num_threads()} threads",
        "device_type": device.type,
        "device_uuid": devices.read_uuid(device),
        "device_why": devices.explain_cpu(asked, device),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if cuda else None,
    }


def parse_with_device(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> tuple[argparse.Namespace, torch.device]:
    """Parse a command line that may name a device by `--device`; return the options and the device.

    Raises:
        ConfigError: the device is not there.
    """
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    options = parser.parse_args(arguments)
    return options, devices.choose_device(options.device)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    job_child.enter_job()
    parser = argparse.ArgumentParser(prog="python -m profzoo.calibration.peaks", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="CSV: peak, rate, unit, how")
    parser.add_argument("--facts", type=Path, metavar="FILE", help="JSON on the run: device, versions")
    try:
        options, device = parse_with_device(parser, arguments)
    except ConfigError as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 2
    rows = list(measure_peaks(device, choose_sizes(device)))
    with options.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    said = describe_run(options.device, device)
    if options.facts:
        options.facts.write_text(json.dumps(said, indent=1) + "\n")
    print(f"on {said['device']}{f' ({why})' if (why := said['device_why']) else ''}:")
    for peak, rate, unit, _ in rows:
        print(f"{peak:5} {rate / 1e12:9.3f} T{unit}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
