"""Runs networks with planted errors, rewritten networks and settings, and prints what the verdict on their numbers is.

python -m tests.benchmarks.numeric_errors [--compile] [--graph] [--groups GROUP ...]

It runs on the GPU if there is one. `--compile` and `--graph` also try these settings; a graph needs a GPU. `programs` and
`harmless programs` are those of tests/planted_programs.py, by which nothing was chosen.
"""

import argparse
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from profzoo.compare import numerics
from tests import planted_numerics as planted
from tests import planted_programs
from tests.numeric_runs import MODULE, side

GROUPS = {
    "development": planted.DEVELOPMENT,
    "held out": planted.HELD_OUT,
    "fresh": planted.FRESH,
    "last": planted.LAST,
    "harmless": planted.HARMLESS,
}
PROGRAMS = {"programs": planted_programs.ERRORS, "harmless programs": planted_programs.HARMLESS}
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


def list_cases(tried: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, planted_programs.Case]]:
    """Yield groups, modules and cases; tried: settings that every network of planted_numerics has to stand."""
    for group, changes in GROUPS.items():
        yield from ((group, MODULE, (*change, {})) for change in changes)
    yield from (("settings", MODULE, (*one, "none", more)) for one in NETWORKS for more in tried)
    for group, cases in PROGRAMS.items():
        yield from ((group, planted_programs.__name__, case) for case in cases)


def compare(module: str, case: planted_programs.Case, device: str = "auto") -> numerics.Numerics:
    """Compare the changed side of a case with the unchanged one."""
    network, phase, changed, more = case
    both, own = dict(more.get("both", {})), {name: value for name, value in more.items() if name != "both"}
    run = functools.partial(side, network, phase, module=module, device=device)
    return numerics.compare_numbers(run(**both), run(changed=changed, **own))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.numeric_errors", description=__doc__)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--groups", nargs="+", default=[*GROUPS, "settings", *PROGRAMS])
    options = parser.parse_args(arguments)
    tried = [
        *SETTINGS,
        *([{"compile": True}] if options.compile else []),
        *([{"graph": True}] if options.graph else []),
    ]
    print("| group | cell | change | verdict | by | difference / tolerance |\n|---|---|---|---|---|---|")
    told = []
    for group, module, case in list_cases(tried):
        if group in options.groups:
            network, phase, changed, more = case
            name = ", ".join([changed, *(f"{key}={value}" for key, value in more.items())])
            found = compare(module, case)
            print(format_row(group, network, phase, name, found), flush=True)
            told.append((group, found.result))
    print("\n".join(["", *count(told)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
