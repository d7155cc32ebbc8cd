"""Finds the zoo's models and reads what their files declare, without importing torch."""

import ast
import functools
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflow.scripts.lib.schema import ConfigError, suggest

ZOO = Path(__file__).parents[1]
NOT_MODELS = {"__init__", "run"}
DECLARED = ("GROUPS", "SOURCE", "PARAMETERS", "SHAPE", "WORKLOADS")


@dataclass(frozen=True)
class Model:
    """What a model's file declares in top-level literals.

    groups: what kind of model it is, such as ("classification",), the first one naming its task.
    source: paper and table that define the architecture.
    parameters: published parameter count, at the shapes of the trimmed workload.
    shape: shape parameters of every workload; workloads: those, and the batch, by workload and phase.
    """

    name: str
    module: str
    path: Path
    groups: tuple[str, ...]
    source: str
    parameters: int
    shape: Mapping[str, Any]
    workloads: Mapping[str, Mapping[str, Mapping[str, Any]]]


def read(path: Path, name: str, module: str) -> Model:
    """The declarations of a model's file; ConfigError where it is no Python, or one is missing or no literal."""
    found: dict[str, Any] = {}
    try:
        tree = ast.parse(path.read_text(), str(path))
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{path}: model '{name}' is no Python: {error}") from error
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            target, value = node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            target, value = node.target.id, node.value
        else:
            continue
        if target in DECLARED:
            try:
                found[target] = ast.literal_eval(value)
            except ValueError:
                raise ConfigError(f"{path}: {target} must be a literal, so that it can be read without torch") from None
    missing = [target for target in DECLARED if target not in found]
    if missing:
        raise ConfigError(f"{path}: model '{name}' does not declare {', '.join(missing)}; see config/README.md")
    return Model(name, module, path, *(found[target] for target in DECLARED))


@functools.cache
def zoo() -> dict[str, Model]:
    """The models of models/, by name: every file there but run.py."""
    paths = sorted(path for path in ZOO.glob("*.py") if path.stem not in NOT_MODELS)
    return {path.stem: read(path, path.stem, f"models.{path.stem}") for path in paths}


def find(name: str, module: str | None = None) -> Model:
    """The model of that name: of the zoo, or of an importable module of the user's own."""
    if module is None:
        if name not in zoo():
            raise ConfigError(f"unknown model '{name}': {suggest(name, zoo())}")
        return zoo()[name]
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, AttributeError, TypeError, ValueError):
        spec = None
    if spec is None or not spec.origin:
        raise ConfigError(
            f"settings.{name}.module = {module!r} cannot be found: it must be importable from the folder "
            "that snakemake runs in, or from PYTHONPATH"
        )
    return read(Path(spec.origin), name, module)
