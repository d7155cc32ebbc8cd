"""Finds the zoo's models and reads the declarations in their files, without importing torch."""

import ast
import functools
import importlib.util
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo import extensions
from profzoo.cell import schema
from profzoo.errors import ConfigError, UnusableError, suggest_nearest
from profzoo.json_types import GivenSettings
from profzoo.range_names import IMPORTED
from profzoo.records import import_graph
from profzoo.records.import_graph import parse_file

ZOO = import_graph.PROJECT / "models"
# Pattern of model files below an extension's folder.
OWN = "models/*.py"
NOT_MODELS = {"__init__", "run"}
# Declarations of a model's file, each with its default; workloads have no default.
DECLARED: dict[str, Any] = {
    "GROUPS": ("own",), "SOURCE": "", "PARAMETERS": None, "DIFFERENCE": "", "SHAPE": {}, "WORKLOADS": None,
    "FILES": (), "REFERENCE": {},
}  # fmt: skip
KINDS: dict[str, tuple[type, ...]] = {
    "GROUPS": (tuple, list), "SOURCE": (str,), "PARAMETERS": (int, type(None)), "DIFFERENCE": (str,), "SHAPE": (dict,),
    "WORKLOADS": (dict,), "FILES": (tuple, list), "REFERENCE": (dict,),
}  # fmt: skip
PHASES = ("train", "inference")
# Imported reports have a phase of their own.
PHASES_OF_FILES = (*PHASES, IMPORTED)
# Types that a shape parameter may have, so that the configuration can set it.
SHAPES = (bool, int, float, str, list)
LARGEST = 2**63
EXAMPLE = '{"trimmed": {"train": {"batch": 8}, "inference": {"batch": 8}}}'
# Functions that a file must define; one of each group suffices.
FUNCTIONS = (("build",), ("sample", "dataset"))
# Module that runs a resolved cell; with all its imports it influences the measurement. The job text holds the settings.
MEASURED = ("profzoo/harness/step/measure.py", "profzoo/collect/environment.py")


@dataclass(frozen=True)
class Model:
    """Declarations of a model's file, all of them top-level literals, in which `**` may name a mapping above.

    groups: kinds of model, such as ("classification",); the first group names the task.
    source: paper and table that define the architecture.
    parameters: published parameter count, at the shapes of the trimmed workload; None if it is unknown.
    difference: reason why the built network has another parameter count; empty if the counts agree.
    shape: shape parameters of all workloads. workloads: further shape parameters and the batch, by workload and phase.
    files: paths or patterns of files that `build` or `dataset` read, relative to the folder of the model's file.
    reference: `parameters` and `operations` of the original in an inference of the workload `reference`, and why the
        network differs from it (`difference`); with a `source`, of a release in one pass of a sample instead.
    command: the command line that runs a script; empty for a model. folder: in which it starts.
    """

    name: str
    module: str
    path: Path
    groups: tuple[str, ...]
    source: str
    parameters: int | None
    difference: str
    shape: Mapping[str, Any]
    workloads: Mapping[str, Mapping[str, Mapping[str, Any]]]
    files: Sequence[str]
    reference: Mapping[str, Any]
    command: str = ""
    folder: str = "."


def read_model(path: Path, name: str, module: str) -> Model:
    """Read the declarations of a model's file.

    Raises:
        UnusableError: the file cannot be read, is not valid Python, lacks WORKLOADS or a required function, or has a
            declaration that is not a literal or has a wrong form.
    """
    found, defined = _declarations(path, name)
    if "WORKLOADS" not in found:
        raise UnusableError(f"{path}: model '{name}' does not declare WORKLOADS, such as {EXAMPLE}")
    if missing := [" or ".join(names) for names in FUNCTIONS if not defined.intersection(names)]:
        raise UnusableError(
            f"{path}: model '{name}' does not define {' and '.join(missing)}; the README has an example"
        )
    if wrong := _misdeclared(found):
        raise UnusableError(f"{path}: model '{name}': {wrong}")
    return Model(name, module, path, *({**DECLARED, **found}[target] for target in DECLARED))


def _declarations(path: Path, name: str) -> tuple[dict[str, Any], set[str]]:
    """Literals that a file declares, and names of functions that it defines or imports."""
    found: dict[str, Any] = {}
    defined: set[str] = set()
    mappings: dict[str, ast.Dict] = {}
    for node in parse_file(path, f"model '{name}'").body:
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
        _insert_mappings(value, mappings)
        if isinstance(value, ast.Dict):
            mappings[target] = value
        if target in DECLARED:
            try:
                found[target] = ast.literal_eval(value)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                message = f"{path}: {target} must be a literal, so that it can be read without torch"
                raise UnusableError(message) from None
    return found, defined


def _insert_mappings(value: ast.expr, mappings: Mapping[str, ast.Dict]) -> None:
    """Put mappings that were declared above, by name, in place of `**name` within an expression."""
    for within in ast.walk(value):
        if isinstance(within, ast.Dict):
            pairs: list[tuple[ast.expr | None, ast.expr]] = []
            for key, item in zip(within.keys, within.values, strict=True):
                above = mappings.get(item.id) if key is None and isinstance(item, ast.Name) else None
                pairs += zip(above.keys, above.values, strict=True) if above else [(key, item)]
            within.keys, within.values = [key for key, _ in pairs], [item for _, item in pairs]


def _misdeclared(found: Mapping[str, Any]) -> str:
    """Describe what is wrong with the form of declarations; empty if nothing is."""
    for target, value in found.items():
        if not isinstance(value, KINDS[target]):
            kinds = " or ".join(kind.__name__ for kind in KINDS[target])
            return f"{target} = {value!r} is not a {kinds}"
    shapes = [("SHAPE", found.get("SHAPE", {}))]
    if not found["WORKLOADS"]:
        return f"WORKLOADS is empty: declare one, such as {EXAMPLE}"
    for name in found.get("FILES", ()):
        if not isinstance(name, str) or not name or name.startswith("/"):
            return f"FILES holds {name!r}, which is not a path from the folder of the model's file"
    for group in found.get("GROUPS", ()):
        if not schema.is_name(group):
            return f"GROUPS holds {group!r}, which is not a name: {schema.describe_form()}"
    for workload, phases in found["WORKLOADS"].items():
        if not isinstance(phases, dict) or not phases:
            return f"WORKLOADS[{workload!r}] = {phases!r} is not a mapping of phases, such as {EXAMPLE}"
        for phase, declared in phases.items():
            where = f"WORKLOADS[{workload!r}][{phase!r}]"
            if phase not in PHASES:
                return f"{where}: unknown phase; {suggest_nearest(phase, PHASES)}"
            batch, most = declared.get("batch") if isinstance(declared, dict) else None, schema.largest_value("batch")
            if not isinstance(batch, int) or isinstance(batch, bool) or not 1 <= batch <= most:
                return f"{where} = {declared!r} holds no batch of 1 to {most}, such as {EXAMPLE}"
            shapes.append((where, declared))
    for where, declared in shapes:
        for key, value in declared.items():
            if not (isinstance(key, str) and key.isidentifier()):
                return f"{where} holds {key!r}, which is not a name of a shape parameter"
            if not _plain(value):
                kinds = ", ".join(kind.__name__ for kind in SHAPES)
                return f"{where}[{key!r}] = {value!r} is none of {kinds}"
    return ""


def _plain(value: Any) -> bool:
    """Whether a shape parameter can be part of a job text and of a command line."""
    if isinstance(value, list):
        return all(map(_plain, value))
    finite = not isinstance(value, int | float) or -LARGEST <= value <= LARGEST
    return isinstance(value, SHAPES) and finite


def shipped_models() -> dict[str, Model]:
    """Models by name, from the files in models/ and in extensions that declare a model."""
    return _scanned(extensions.folders())[0]


def unusable_models() -> dict[str, str]:
    """Errors of unusable model files in models/ and in extensions, one line each, by name."""
    return _scanned(extensions.folders())[1]


@functools.cache
def _scanned(extended: tuple[Path, ...]) -> tuple[dict[str, Model], dict[str, str]]:
    models, wrong = {}, {}
    # Hidden files belong to editors.
    shipped = sorted(path for path in ZOO.glob("*.py") if not path.name.startswith("."))
    own = extensions.files(OWN)
    extensions.refuse_clashes(
        "model", [(path.stem, path) for path in own if path.stem not in NOT_MODELS], [path.stem for path in shipped]
    )
    for path in (*shipped, *own):
        try:
            if model := _of_zoo(path):
                models[path.stem] = model
        except UnusableError as error:
            wrong[ascii(path.stem)[1:-1]] = str(error)
    return models, wrong


@functools.cache
def _of_zoo(path: Path) -> Model | None:
    """Model declared by a file in models/; None for other files, such as helpers."""
    name = path.stem
    if name in NOT_MODELS:
        return None
    found, defined = _declarations(path, name)
    if "WORKLOADS" not in found and not defined & {"build", "sample"}:
        return None
    if not schema.is_name(name, "model"):
        shown = str(path) if str(path).isprintable() else repr(str(path))
        raise UnusableError(
            f"{shown}: {name!a} is not a name of a model, {schema.describe_form('model')}: rename the file"
        )
    return read_model(path, name, extensions.module_name(path) or f"models.{name}")


def forget_models() -> None:
    """Clear the cache, so that models/ is read again."""
    _scanned.cache_clear()
    _of_zoo.cache_clear()


def find_model(name: str, module: str | None = None) -> Model:
    """Find a model by name, in the zoo or in the user's own importable module.

    Raises:
        UnusableError: its file cannot be used.
        ConfigError: there is none.
    """
    if module is None:
        # Read only this file: a job of this model must not depend on other models' files.
        for path in (ZOO / f"{name}.py", *(one for one in extensions.files(OWN) if one.stem == name)):
            if schema.is_name(name, "model") and os.path.lexists(path) and (model := _of_zoo(path)):
                return model
        if name in unusable_models():
            raise UnusableError(unusable_models()[name])
        raise ConfigError(f"unknown model {_quoted(name)}: {suggest_nearest(name, shipped_models())}")
    if not schema.is_name(name, "model"):
        raise ConfigError(f"settings holds {name!r}, which is not a name: {schema.describe_form('model')}")
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, AttributeError, TypeError, ValueError):
        spec = None
    except Exception as error:
        # Finding a module imports its parent packages.
        reason = (str(error).strip() or "no message").splitlines()[0]
        raise UnusableError(f"settings.{name}.module = {module!r}: {type(error).__name__}: {reason}") from error
    if spec is None or not spec.origin:
        raise ConfigError(
            f"settings.{name}.module = {module!r} cannot be found: it must be importable from the folder "
            "that snakemake runs in, or from PYTHONPATH"
        )
    path = ZOO / f"{name}.py"
    if path.resolve() != Path(spec.origin).resolve() and os.path.lexists(path) and _of_zoo(path):
        raise ConfigError(
            f"settings.{name}.module = {module!r}: {spec.origin} would take the name of the zoo's {path}, and results "
            f"of both would lie in one folder: give yours another name, such as my_{name}"
        )
    return read_model(Path(spec.origin), name, module)


def _quoted(name: str) -> str:
    return f"'{name}'" if name.isprintable() and len(name) < 80 else f"{name[:80]!r}"


# The call with which a model says that a token is there.
NOTING = re.compile(r"^ +(?:\w+\.)*note_token\(\) *(?:#|$)", re.MULTILINE)


def generates_tokens(model: Model) -> bool:
    """Return whether the model's file, or what it imports for itself, notes tokens.

    >>> [name for name, model in shipped_models().items() if generates_tokens(model)][:4]
    ['deepseekmoe', 'deepseekv2', 'gnmt', 'gpt']
    """
    if model.command:
        return False
    of_all = set(import_graph.files_of(*MEASURED))
    return any(NOTING.search(path.read_text()) for path in _sources(model.module, model.path) if path not in of_all)


def source_files(model: Model) -> list[Path]:
    """Source files that a measurement of the model depends on, sorted.

    The list contains the model's file, the harness modules that run a step, and all modules of the same packages that
    they import. Import statements are read, not executed.

    >>> [path.name for path in source_files(shipped_models()["vgg19"]) if path.parent == ZOO]
    ['__init__.py', 'srcnn.py', 'vgg16.py', 'vgg19.py']

    Raises:
        UnusableError: a file cannot be read or is not valid Python, or a declared file does not exist.
    """
    own = _sources(model.module, model.path)
    return sorted({*own, *declared_files(model)}) if model.files else list(own)


def declared_files(model: Model) -> list[Path]:
    """Files that the model declares in FILES, sorted.

    Raises:
        UnusableError: no file matches a declared path or pattern.
    """
    found: list[Path] = []
    for name in model.files:
        matching = [path for path in model.path.parent.glob(name) if path.is_file()]
        if not matching:
            raise UnusableError(
                f"{model.path}: model '{model.name}' names '{name}' in FILES, and there is no such file in "
                f"{model.path.parent}: put it there, or correct the name"
            )
        found += [path.resolve() for path in matching]
    return sorted(found)


@functools.cache
def _sources(module: str, path: Path) -> tuple[Path, ...]:
    """Cached source files of a model's module, by dotted name and file."""
    own_package = {module.partition(".")[0]: _root(module, path)}
    of_model = import_graph.import_closure([(module, path)], {**import_graph.PACKAGES, **own_package})
    return tuple(sorted({*of_model, *import_graph.files_of(*MEASURED)}))


def _root(module: str, path: Path) -> Path:
    """Folder from which the module is imported by its dotted name.

    >>> _root("mine.vision.resnet", Path("/home/me/mine/vision/resnet.py")).as_posix()
    '/home/me'
    >>> _root("mine.vision", Path("/home/me/mine/vision/__init__.py")).as_posix()
    '/home/me'
    """
    levels = module.count(".") + (path.name == "__init__.py")
    return path.parents[levels]


# Finds the program that a name stands for: a model of the zoo, the user's own model, or a script by its command.

# Modules that run inside a script's processes. With all their imports they influence the measurement.
MEASURED_FUNCTIONS = (
    "profzoo/script_harness/observers.py",
    "profzoo/script_harness/attach.py",
    "profzoo/script_harness/launcher.py",
    "profzoo/script_harness/startup/sitecustomize.py",
    "profzoo/collect/environment.py",
)
# Groups by which `models` selects scripts.
GROUPS = ("scripts", "own")
# The group of all models.
EVERY = "all"


def find_program(name: str, changes: GivenSettings) -> Model:
    """Find the program of a name; changes: its configured settings, or the settings of a resolved cell.

    Raises:
        UnusableError: the program's file cannot be used.
        ConfigError: no program has this name.
    """
    if "command" in changes:
        return describe_script(name, changes)
    module = changes.get("module")
    return find_model(name, None if module == f"models.{name}" else module)


def describe_script(name: str, changes: GivenSettings) -> Model:
    """Describe a script with the fields of a model; its batch size is not known before it runs.

    Raises:
        ConfigError: the name is invalid or belongs to a model of the zoo, or a setting has a wrong type.
    """
    if not schema.is_name(name, "model"):
        raise ConfigError(f"settings holds {name!r}, which is not a name: {schema.describe_form('model')}")
    if is_taken(name):
        raise ConfigError(
            f"settings.{name}.command: the zoo has a model {name}, or a group of this name, and results of both would "
            f"lie in one folder: give the script another name, such as my_{name}"
        )
    if changes.get("module"):
        raise ConfigError(f"settings.{name} has both command and module: leave one out")
    known = schema.script_properties()
    given = {key: schema.coerce_value(changes[key], known[key]) for key in known if key in changes}
    for key, value in given.items():
        schema.check_value(value, known[key], f"settings.{name}.{key}")
    phase: Any = given.get("phase", known["phase"]["default"])
    phases = {phase: {"batch": 1}}
    folder = str(given.get("folder", known["folder"]["default"]))
    files = tuple(dict.fromkeys([*scripts_of(given["command"], folder), *given.get("inputs", ())]))
    return Model(
        name, "", Path(files[0]) if files else Path(name), GROUPS, given["command"], None, "", {},
        {"trimmed": phases, "reference": phases}, files, {}, given["command"], folder,
    )  # fmt: skip


def is_taken(name: str) -> bool:
    """Whether the zoo has a model or a group of models of this name, so that a script cannot bear it.

    >>> [is_taken(name) for name in ("lstm", "generation", "scripts", "all", "train-gpt")]
    [True, True, True, True, False]
    """
    groups = {*GROUPS, EVERY, IMPORTED}.union(*(model.groups for model in shipped_models().values()))
    return name in groups or (ZOO / f"{name}.py").exists()


def scripts_of(command: str, folder: str = ".") -> list[str]:
    """Return the existing `.py` files that a command names; folder: in which it starts.

    >>> scripts_of("python no_such_script.py --epochs 1")
    []
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    return [word for word in words if word.endswith(".py") and Path(folder, word).is_file()]


def named_files(command: str, folder: str = ".") -> list[Path]:
    """Return the existing files that the words of a command name, also behind an equals sign.

    Of the program itself, only one below the folder in which it starts counts, such as a script of the shell.

    >>> named_files("python train.py --config=no_such_file.yaml")
    []
    """
    try:
        first, *words = shlex.split(command)
    except ValueError:
        return []
    own = [first] if Path(folder, first).resolve().is_relative_to(Path(folder).resolve()) else []
    given = [one for word in (*own, *words) for one in (word, word.partition("=")[2])]
    return [path for one in dict.fromkeys(given) if one and (path := Path(folder, one)).is_file()]


def find_missing_script(command: str, folder: str = ".") -> str:
    """Return the program's `.py` file that a command names and that does not exist; empty if it does.

    folder: in which the command starts.

    >>> find_missing_script("python no_such_script.py --also another.py"), find_missing_script("python -m module")
    ('no_such_script.py', '')
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    # Later ones may be files that the program writes.
    first = next((word for word in words if word.endswith(".py")), "")
    return "" if not first or Path(folder, first).is_file() else first


def program_sources(program: Model) -> list[Path]:
    """Files that a measurement of the program depends on, sorted.

    Raises:
        UnusableError: a file does not exist, cannot be read or is not valid Python.
    """
    if not program.command:
        return source_files(program)
    return sorted({*_script_files(program), *import_graph.files_of(*MEASURED_FUNCTIONS)})


def entry_files(program: Model) -> list[Path]:
    """The source files of a program that follow from none of the others by their imports of the project, sorted.

    Raises:
        UnusableError: as for `source_files`.
    """
    measured = MEASURED_FUNCTIONS if program.command else MEASURED
    own = {*program_sources(program)} - {*import_graph.files_of(*measured)}
    return sorted({*own, *map(import_graph.PROJECT.joinpath, measured)})


def program_files(program: Model) -> list[Path]:
    """Files that a program declares: FILES of a model; for a script, its `inputs` and the `.py` files in its command.

    Raises:
        UnusableError: a declared file does not exist.
    """
    return sorted({*_script_files(program)}) if program.command else declared_files(program)


def _script_files(program: Model) -> Iterator[Path]:
    folder = Path(program.folder).resolve()
    if not folder.is_dir():
        raise UnusableError(
            f"settings.{program.name}.folder = '{program.folder}' is not a folder: name the one in which the command "
            "starts"
        )
    if missing := find_missing_script(program.command, program.folder):
        raise UnusableError(
            f"settings.{program.name}.command names '{missing}', and there is no such file in {folder}: put it "
            "there, or correct the command"
        )
    for name in program.files:
        path = Path(program.folder, name)
        if path.is_dir():
            yield from (one.resolve() for one in path.rglob("*") if one.is_file() and "__pycache__" not in one.parts)
        elif path.is_file():
            yield path.resolve()
        else:
            raise UnusableError(
                f"settings.{program.name}.inputs names '{name}', and there is no such file or folder in {folder}: "
                "put it there, or correct the name"
            )
