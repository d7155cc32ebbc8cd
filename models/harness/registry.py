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
# What a file declares, with what stands in for it; there is no stand-in for the workloads.
DECLARED: dict[str, Any] = {"GROUPS": ("own",), "SOURCE": "", "PARAMETERS": None, "SHAPE": {}, "WORKLOADS": None}
EXAMPLE = '{"trimmed": {"train": {"batch": 8}, "inference": {"batch": 8}}}'
FUNCTIONS = ("build", "sample")
# The parts of the harness that run a step, and so are part of what is measured.
MEASURED = ("models.harness.loop", "models.harness.recorders")


@dataclass(frozen=True)
class Model:
    """What a model's file declares in top-level literals.

    groups: what kind of model it is, such as ("classification",), the first one naming its task.
    source: paper and table that define the architecture.
    parameters: published parameter count, at the shapes of the trimmed workload; None where none is known.
    shape: shape parameters of every workload; workloads: those, and the batch, by workload and phase.
    """

    name: str
    module: str
    path: Path
    groups: tuple[str, ...]
    source: str
    parameters: int | None
    shape: Mapping[str, Any]
    workloads: Mapping[str, Mapping[str, Mapping[str, Any]]]


def read(path: Path, name: str, module: str) -> Model:
    """The declarations of a model's file.

    Raises:
        ConfigError: it is no Python, lacks WORKLOADS or a function that every model needs, or declares no literal.
    """
    found: dict[str, Any] = {}
    defined: set[str] = set()
    try:
        tree = ast.parse(path.read_text(), str(path))
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{path}: model '{name}' is no Python: {error}") from error
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            defined.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            defined |= {alias.asname or alias.name for alias in node.names}
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
    if "WORKLOADS" not in found:
        raise ConfigError(f"{path}: model '{name}' does not declare WORKLOADS, such as {EXAMPLE}")
    if missing := [function for function in FUNCTIONS if function not in defined]:
        raise ConfigError(f"{path}: model '{name}' does not define {' and '.join(missing)}; the README has an example")
    return Model(name, module, path, *({**DECLARED, **found}[target] for target in DECLARED))


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


def sources(model: Model) -> list[Path]:
    """The files that a cell of the model is measured with, sorted.

    They are its own, those of the harness that run a step, and what these import from the same packages, found by
    reading the import statements.
    """
    return list(_sources(model.module, model.path))


@functools.cache
def _sources(module: str, path: Path) -> tuple[Path, ...]:
    waiting = [(module, path), *((part, ZOO.parent / f"{part.replace('.', '/')}.py") for part in MEASURED)]
    found = set()
    while waiting:
        module, path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        root = path.parents[module.count(".") + (path.name == "__init__.py")]
        for name in (module, *_imported(path, module)):
            package = name.partition(".")[0]
            if package in (module.partition(".")[0], ZOO.name):
                waiting += _modules(root if package != ZOO.name else ZOO.parent, name)
    return tuple(sorted(found))


def _modules(root: Path, name: str) -> list[tuple[str, Path]]:
    """The file of that dotted name and those of the packages around it, as far as there are any."""
    parts = name.split(".")
    places = [(".".join(parts[:end]), root.joinpath(*parts[:end])) for end in range(1, len(parts) + 1)]
    files = [(one, file) for one, place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    return [(one, file) for one, file in files if file.is_file()]


@functools.cache
def _imported(path: Path, module: str) -> tuple[str, ...]:
    """Names that a file imports and that may be modules, relative ones made absolute."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(names)
