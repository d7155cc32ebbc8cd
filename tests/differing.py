"""Programs whose steps launch differently, with a known answer: what each step launches, and which layer owns it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from profzoo.launches.cross_tool import GRID
from profzoo.launches.joined_step import OWNER

EXPERTS, ALWAYS = 4, 3
# What a layer's launches take in ns, and what each block of a grid adds to those of experts.
NS, NS_PER_BLOCK = 5_000, 100


def routed_step(tokens: Sequence[int]) -> list[dict]:
    """Return launches of a step of a mixture of experts in order; tokens: of each expert, which is left out at 0.

    The kernels of an expert are those of all experts, with a grid by its tokens, as of a loop over experts.
    """
    rows = [_launch("embed", f"embed{index}", 8, "forward") for index in range(ALWAYS)]
    for expert, count in enumerate(tokens):
        if count:
            rows.append(_launch(f"experts.{expert}", "gather", count, "forward"))
            rows += [_launch(f"experts.{expert}", name, count, "forward") for name in ("up", "act", "down")]
            rows.append(_launch(f"experts.{expert}", f"scatter{expert}", count, "forward"))
    rows += [_launch("head", f"head{index}", 16, "forward") for index in range(ALWAYS)]
    return [*rows, _launch("(optimizer)", "adam", 64, "optimizer")]


def _launch(module: str, kernel: str, grid: int, direction: str) -> dict:
    ns = NS + NS_PER_BLOCK * grid
    return {"module": module, "name": kernel, "grid_x": grid, "direction": direction, "ns": ns}


def as_torch(steps: Sequence[Sequence[dict]]) -> pd.DataFrame:
    """Return steps as rows of torch's table of launches, with owners."""
    rows = _frame(steps)
    shapes = rows["grid_x"].astype(str)
    columns = {"kind": "kernel", "operator": rows["name"], "shapes": shapes, "caller": "", "type": "Linear"}
    return rows.assign(**columns)[["step", "order", "kind", "name", "stream", "ns", *GRID, *OWNER]]


def as_nsys(steps: Sequence[Sequence[dict]]) -> pd.DataFrame:
    """Return steps as launches of nsys by step, with the module that is the truth in `true_module`."""
    rows = _frame(steps).rename(columns={"name": "kernel", "direction": "range", "module": "true_module"})
    return rows.assign(
        process=1, mangled=rows["kernel"], function=rows["kernel"], smem_static_bytes=0, smem_dynamic_bytes=0
    )


def _frame(steps: Sequence[Sequence[dict]]) -> pd.DataFrame:
    rows = [{**one, "step": step, "order": order} for step, own in enumerate(steps) for order, one in enumerate(own)]
    ones = dict.fromkeys([name for name in GRID if name != "grid_x"], 1)
    return pd.DataFrame(rows).assign(stream=7, **ones)


def draw_tokens(generator: np.random.Generator, steps: int, most: int = 40, absent: float = 0.3) -> list[list[int]]:
    """Return tokens of each expert in random steps, some of which leave experts out."""
    counts = generator.integers(1, most, (steps, EXPERTS)) * (generator.random((steps, EXPERTS)) >= absent)
    return counts.tolist()
