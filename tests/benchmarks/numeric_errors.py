"""Runs networks with planted errors, rewritten networks and settings, and prints what the verdict on their numbers is.

python -m tests.benchmarks.numeric_errors [--compile] [--graph]

It runs on the GPU if there is one. `--compile` and `--graph` also try these settings; a graph needs a GPU.
"""

import argparse
import functools
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from profzoo.compare import numerics
from tests import planted_numerics as planted
from tests.numeric_runs import side

GROUPS = {
    "development": planted.DEVELOPMENT,
    "held out": planted.HELD_OUT,
    "fresh": planted.FRESH,
    "last": planted.LAST,
    "harmless": planted.HARMLESS,
}
SETTINGS: Sequence[dict[str, Any]] = (
    {"window": 4},
    {"channels_last": True},
    {"threads": 2},
    {"precision": "tf32"},
    {"precision": "bf16"},
    {"optimizer": "foreach"},
    {"optimizer": "for_loop"},
)
NETWORKS = (
    ("transformer", "train"), ("transformer", "inference"), ("convolutional", "train"), ("convolutional", "inference"),
    ("recurrent", "train"), ("recurrent", "inference"), ("generating", "inference"),
)  # fmt: skip


def format_row(group: str, network: str, phase: str, name: str, found: numerics.Numerics) -> str:
    numbers = f"{found.difference:.2g} / {found.tolerance:.2g}" if found.difference == found.difference else ""
    cells = (group, f"{network} {phase}", name, found.result, found.quantity, numbers)
    return f"| {' | '.join(cells)} |"


def count(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Lines that say how often each verdict is in each group; rows: group and verdict."""
    rows = list(rows)
    groups = dict.fromkeys(group for group, _ in rows)
    results = (numerics.SAME, numerics.WITHIN, numerics.DIFFERENT, numerics.UNDECIDED)
    return [
        f"{group}: " + ", ".join(f"{sum(row == (group, one) for row in rows)} {one}" for one in results)
        for group in groups
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.numeric_errors", description=__doc__)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--graph", action="store_true")
    options = parser.parse_args(arguments)
    tried = [
        *SETTINGS,
        *([{"compile": True}] if options.compile else []),
        *([{"graph": True}] if options.graph else []),
    ]
    print("| group | cell | change | verdict | by | difference / tolerance |\n|---|---|---|---|---|---|")
    told, on = [], functools.partial(side, device="auto")
    for group, changes in GROUPS.items():
        for network, phase, changed in changes:
            found = numerics.compare_numbers(on(network, phase), on(network, phase, changed))
            print(format_row(group, network, phase, changed, found), flush=True)
            told.append((group, found.result))
    for network, phase in NETWORKS:
        for more in tried:
            name = ", ".join(f"{key}={value}" for key, value in more.items())
            found = numerics.compare_numbers(on(network, phase), on(network, phase, **more))
            print(format_row("settings", network, phase, name, found), flush=True)
            told.append(("settings", found.result))
    print("\n".join(["", *count(told)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
