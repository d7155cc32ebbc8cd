"""How often verdicts on numbers are wrong, by simulation: of rounding alone, and of errors of a known size.

python -m tests.benchmarks.numeric_alarms [--pairs 20000]

Rounding errors are drawn from distributions that the tests do not assume: normal, heavy-tailed (Student's t of three
degrees of freedom), and log-normal growth over steps. Each pair draws the errors of both sides anew.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

import numpy as np

from profzoo.compare import numerics
from profzoo.compare.numeric_checks import NumericSide
from profzoo.harness.step import double_precision

LOSS, NORM, VALUES, STEPS = 2.3, 1.7, 64, 16
# Sizes of errors: as autocast computes sums and losses in fp32, errors in bf16 are smaller for its unit of rounding.
UNITS = {"fp32": 2.0**-24, "bf16": 2.0**-8 / 4}
RESULTS = (numerics.SAME, numerics.WITHIN, numerics.UNDECIDED, numerics.DIFFERENT)
Draw = Callable[[np.random.Generator, int], np.ndarray]
DRAWS: dict[str, Draw] = {
    "normal": lambda random, count: random.normal(size=count),
    "heavy-tailed": lambda random, count: random.standard_t(3, size=count),
}


def make_side(
    random: np.random.Generator,
    draw: Draw,
    precision: str,
    growth: float,
    shift: float,
    phase: str,
    rounded: bool = False,
) -> NumericSide:
    """A side whose errors are drawn; growth: of errors per step. shift: relative error of the computation itself.

    rounded: the side is the unchanged one, which was rounded several times too.
    """
    unit = UNITS[precision]
    errors = draw(random, STEPS) * unit * 2 * growth ** np.arange(STEPS) + shift
    exact = LOSS * 0.98 ** np.arange(STEPS)
    norms = NORM * (1 + draw(random, 2) * unit * 10 + shift)
    # Errors of one output share a part, as they go through the same layers.
    values = np.linspace(-1, 1, VALUES)
    shared = draw(random, 1) * unit
    outputs = [values * (1 + shift) + (draw(random, VALUES) + shared) * unit * 2 for _ in range(2)]
    train = phase == "train"

    def numbers(losses: np.ndarray, gradients: Sequence[float] | np.ndarray, samples: Sequence[np.ndarray]) -> dict:
        rms = float(np.sqrt(np.mean(values**2)))
        told = [[{"values": list(map(float, one)), "rms": rms}] for one in samples]
        return {
            "losses": list(map(float, losses)) if train else [],
            "gradient_norms": [[float(one)] for one in gradients] if train else [],
            "used_parameters": 10, "weight_norm": 1.0, "data_sums": [1.0, 2.0], "buffer_norms": [0.0, 0.0, 0.0],
            "outputs": [] if train else told, "last_outputs": [] if train else told[-1],
        }  # fmt: skip

    own = numbers(exact * (1 + errors), norms, outputs)
    right = numbers(exact, [NORM, NORM], [values, values])
    double = {"steps": right, "random": False, "operations": 1, "operators": 1}
    if rounded:
        double["roundings"] = {
            one: [make_side(random, draw, one, growth, 0.0, phase).own for _ in range(count)]
            for one, count in double_precision.ROUNDINGS.items()
        }
    return NumericSide(own, double, precision, 4, 10, STEPS, [own["losses"][0]] if train else [])  # type: ignore[arg-type]


def count_results(
    pairs: int, seed: int, draw: Draw, precision: str, growth: float = 1.0, shift: float = 0.0, phase: str = "train"
) -> dict[str, float]:
    """Share of each verdict over so many pairs of a side in fp32 and a candidate."""
    random = np.random.default_rng(seed)
    found = [
        numerics.compare_numbers(
            make_side(random, draw, "fp32", growth, 0.0, phase, rounded=True),
            make_side(random, draw, precision, growth, shift, phase),
        ).result
        for _ in range(pairs)
    ]
    return {result: found.count(result) / pairs for result in RESULTS}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.numeric_alarms", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20_000)
    options = parser.parse_args(arguments)
    names = ("errors", "phase", "candidate", "growth per step", "error of the computation", *RESULTS)
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for name, draw in DRAWS.items():
        for phase in ("train", "inference"):
            for precision, growth, shift in (
                ("fp32", 1.0, 0.0), ("fp32", 2.0, 0.0), ("bf16", 1.0, 0.0), ("bf16", 1.2, 0.0),
                ("fp32", 1.0, 1e-5), ("fp32", 1.0, 1e-4), ("bf16", 1.0, 0.03), ("bf16", 1.0, 0.1), ("bf16", 1.0, 0.3),
            ):  # fmt: skip
                if phase == "inference" and growth > 1:
                    continue
                shares = count_results(options.pairs, 0, draw, precision, growth, shift, phase)
                told = " | ".join(f"{100 * share:.2f} %" for share in shares.values())
                print(f"| {name} | {phase} | {precision} | {growth:g} | {shift:g} | {told} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
