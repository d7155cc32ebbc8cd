"""Selects the environment variables that a profiled process sees; a fixed list, as reports embed their values.

Some of these variables change measurements. Their values are part of the job text, like the user's settings.
"""

import functools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from profzoo.records import digests

# The file of allowed variables; each group names the page that describes it.
FILES = ("environment.yaml",)
OF_SEVERAL_NODES = ("slurm", "kubernetes")
# Key of the variables within a group that do not change measurements.
APART, ALL = "apart", "all"
# Variable that carries the values from the planning process to all processes that run jobs, on any node.
PASSED = "PROFZOO_VARIABLES"


@functools.cache
def allowed_names(nodes: int = 1) -> frozenset[str]:
    """Names of the variables that a process may see; nodes: number of nodes of the job.

    >>> [one in allowed_names(2) for one in ("PATH", "SLURM_JOB_ID", "SLURM_JWT")], "SLURM_JOB_ID" in allowed_names()
    ([True, True, False], False)
    """
    known = [group["names"].split() for name, group in _groups().items() if nodes > 1 or name not in OF_SEVERAL_NODES]
    return frozenset(one for group in known for one in group)


@functools.cache
def measurement_variables() -> frozenset[str]:
    """Names of the visible variables that change what is measured.

    >>> asked = ("CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "PATH", "CUDA_VISIBLE_DEVICES")
    >>> [one in measurement_variables() for one in asked]
    [True, True, False, False]
    """
    found = set()
    for group in _groups().values():
        apart = group.get(APART, "")
        found |= set() if apart == ALL else {*group["names"].split()} - {*apart.split()}
    return frozenset(found)


def select_environment(given: Mapping[str, str], extra: Sequence[str], nodes: int = 1) -> dict[str, str]:
    """Variables that a profiled process may see; extra: names of further variables."""
    return {key: value for key, value in given.items() if key in allowed_names(nodes) or key in extra}


def measured_variables(given: Mapping[str, str], extra: Sequence[str]) -> dict[str, str]:
    """Values of the variables that change what is measured, and digests of the extra variables.

    The user's own variables may hold secrets, and these facts appear in sidecars and command lines.

    >>> measured_variables({"CUDA_LAUNCH_BLOCKING": "1", "HOME": "/home/me"}, [])
    {'CUDA_LAUNCH_BLOCKING': '1'}
    >>> measured_variables({"MODE": "fast"}, ["MODE", "OTHER"])["MODE"][:13]
    'sha256:33e214'
    """
    own = {name: given[name] for name in sorted(measurement_variables()) if name in given}
    return own | {name: digests.text_digest(f"{name}={given[name]}") for name in sorted(extra) if name in given}


def export_environment(extra: Sequence[str]) -> None:
    """Export to all jobs of this run, on any node, the environment that the run was planned in."""
    os.environ[PASSED] = json.dumps(measured_variables(os.environ, extra), sort_keys=True)


def planned_variables(extra: Sequence[str]) -> dict[str, str]:
    """Result of `measured_variables` when the run was planned; outside of a run, for this process."""
    given = os.environ.get(PASSED)
    return json.loads(given) if given else measured_variables(os.environ, extra)


def _groups() -> Mapping[str, Mapping[str, str]]:
    return yaml.safe_load(Path(__file__).with_name(FILES[0]).read_text())
