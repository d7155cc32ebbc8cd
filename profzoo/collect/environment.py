"""The environment of a profiled process: an exact list of variables, as reports embed what it holds."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

# The list, with the page that describes each group of variables.
FILES = ("environment.yaml",)
OF_SEVERAL_NODES = "slurm"


@functools.cache
def names(nodes: int = 1) -> frozenset[str]:
    """The variables that a process of a job on so many nodes may see.

    >>> [one in names(2) for one in ("PATH", "SLURM_JOB_ID", "SLURM_JWT")], "SLURM_JOB_ID" in names()
    ([True, True, False], False)
    """
    groups = yaml.safe_load(Path(__file__).with_name(FILES[0]).read_text())
    known = [group["names"].split() for name, group in groups.items() if nodes > 1 or name != OF_SEVERAL_NODES]
    return frozenset(one for group in known for one in group)


def environment(given: Mapping[str, str], extra: Sequence[str], nodes: int = 1) -> dict[str, str]:
    """The part of an environment that a profiled process may see; extra: more variables, by their names."""
    return {key: value for key, value in given.items() if key in names(nodes) or key in extra}
