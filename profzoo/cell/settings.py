"""Resolves a cell's settings from schema defaults, the model's workload, the configuration and the variant."""

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from profzoo.cell import schema
from profzoo.cell.cell_types import CellSettings
from profzoo.cell.process_count import batch_count, process_count
from profzoo.cell.registry import PHASES, Model, find_program
from profzoo.cell.secret_detection import hidden
from profzoo.errors import ConfigError, suggest_nearest
from profzoo.json_types import GivenSettings

if TYPE_CHECKING:
    from profzoo.cell.config_types import Config


# Lists the settings that a script takes: settings applied to it from outside, and settings that describe it.

# Settings that can be applied to a script from outside; all other settings belong to the zoo's own step loop.
APPLICABLE = (
    "device", "warmup", "window", "precision", "compile", "optimizer", "checkpoint", "channels_last",
    "cudnn_benchmark", "deterministic", "seed", "threads", "workers", "pin_memory", "prefetch_factor",
    "persistent_workers",
)  # fmt: skip


def general_settings(is_script: bool, config: GivenSettings) -> dict[str, Any]:
    """Return the top level of the configuration for a program.

    A script takes the defaults of all settings that cannot be applied from outside.
    """
    return {
        key: part["default"] if is_script and key not in (*APPLICABLE, "data") else config[key]
        for key, part in schema.cell_properties().items()
    }


# Left out at its default, so that results from before this setting existed stay valid.
FOLDER = "folder"


def own_settings(changes: GivenSettings) -> dict[str, Any]:
    """Return the settings that describe a script, without its phase; changes: the script's configured settings."""
    known = schema.script_properties()
    own = {key: changes.get(key, part["default"]) for key, part in known.items() if key != "phase"}
    return {key: value for key, value in own.items() if key != FOLDER or value != known[key]["default"]}


# Combines variants (`lstm@bf16+graph`), and rejects contradictory settings of a cell with the reason.

BETWEEN = "+"
# Pattern of variant names, single or joined, in files, targets and `models`.
JOINED = re.compile(rf"(?:^|(?<=@)){schema.PATTERN}(?:\+{schema.PATTERN})+")
# Steps before the window of a captured step. They run first uncaptured, to set up libraries and optimizer state. The
# last of them is a replay, so that the set-up of the first replay is not in the window.
STEPS_BEFORE_GRAPH = 3
# Precisions in which linear layers multiply in 8 bits.
EIGHT_BITS = ("fp8", "int8")
# Settings of worker processes that load batches.
OF_WORKERS = ("prefetch_factor", "persistent_workers")
# Settings of how a training step updates weights.
UPDATES = ("accumulate", "clip", "ema")


def split_names(variant: str | None) -> list[str]:
    """Split a combined variant's name into the names of its variants.

    >>> split_names("bf16+graph"), split_names("bf16"), split_names(None)
    (['bf16', 'graph'], ['bf16'], [])
    """
    return [] if variant is None else variant.split(BETWEEN)


def find_unknown(variant: str | None, variants: Iterable[str]) -> str | None:
    """First unknown variant within a combined name; None if all are known.

    >>> find_unknown("bf16+graf", ["bf16", "graph"]), find_unknown("bf16+graph", ["bf16", "graph"])
    ('graf', None)
    """
    known = set(variants)
    return next((one for one in split_names(variant) if one not in known), None)


def find_combinations(words: Iterable[str]) -> list[str]:
    """Combinations of variants that appear in words such as targets.

    >>> find_combinations(["results/lstm@bf16+graph/train.time.csv", "lstm@bf16", "fused+graph", "-j4"])
    ['bf16+graph', 'fused+graph']
    """
    return list(dict.fromkeys(found for word in words for found in JOINED.findall(word)))


def combine_changes(names: Sequence[str], variants: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the changes of several variants.

    >>> combine_changes(["bf16", "graph"], {"bf16": {"precision": "bf16"}, "graph": {"graph": True}})
    {'precision': 'bf16', 'graph': True}

    Raises:
        ConfigError: a variant is named twice, or two variants set one key to different values.
    """
    found: dict[str, Any] = {}
    setter: dict[str, str] = {}
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ConfigError(f"variant '{BETWEEN.join(names)}' names {name} twice")
        for key, value in variants[name].items():
            for where, item in flatten({key: value}).items():
                other = setter.setdefault(where, name)
                if (before := flatten(variants[other])[where]) != item:
                    raise ConfigError(
                        f"variants {other} and {name} cannot be combined: {where} is {schema.format_choice(before)} in "
                        f"the one and {schema.format_choice(item)} in the other"
                    )
            found[key] = {**found.get(key, {}), **value} if isinstance(value, Mapping) else value
    return found


def check_combination(cell: Mapping[str, Any]) -> None:
    """Check that a cell's settings are compatible, as far as this is known before the cell runs.

    Raises:
        ConfigError: they are not; the message gives the reason.
    """
    if why := explain_conflict(cell):
        raise ConfigError(f"{cell['model']} {cell['phase']}: {why}")


def explain_conflict(cell: Mapping[str, Any]) -> str | None:
    """Return why a cell's settings cannot be combined; None if nothing is known against it. cell: with all settings."""
    why = _against_eight_bits(cell) if cell["precision"] in EIGHT_BITS else None
    why = why or _against_updates(cell) or _against_loading(cell)
    why = _against_eight_bit_states(cell) if cell["optimizer"] == "8bit" and not why else why
    why = _against_checkpoints(cell) if cell["checkpoint"] and not why else why
    why = _against_graph(cell) if cell["graph"] and not why else why
    return _against_splitting(cell) if cell["parallel"] != "ddp" and not why else why


def fill_in_defaults(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cell's settings with those that it leaves out, because they have their defaults."""
    return {key: part.get("default") for key, part in schema.cell_properties().items()} | {**cell}


def name_remedies(cell: CellSettings) -> dict[str, dict[str, Any]]:
    """Return the settings that go with a cell's and may need less memory, by the names of their variants."""
    whole = fill_in_defaults(cell)
    found: dict[str, dict[str, Any]] = {} if whole["checkpoint"] else {"checkpoint": {"checkpoint": True}}
    if whole["precision"] in ("fp32", "tf32"):
        found["bf16"] = {"precision": "bf16"}
    if whole["optimizer"] not in ("fused", "8bit"):
        found["fused"] = {"optimizer": "fused"}
    if batch := whole["batch"] // 2:
        found[f"batch{batch}"] = {"batch": batch}
    if whole["optimizer"] != "8bit":
        found["optimizer8bit"] = {"optimizer": "8bit"}
    return {name: change for name, change in found.items() if not explain_conflict({**whole, **change})}


def _against_eight_bits(cell: Mapping[str, Any]) -> str | None:
    """Why a cell cannot multiply in 8 bits; None if it can."""
    precision = cell["precision"]
    if cell.get("command"):
        return f"precision: {precision} replaces layers of a network, which cannot be done to a script: use bf16"
    if cell["phase"] == "inference":
        return None
    if precision == "int8":
        return "precision: int8 is for inference, as its layers have no backward pass: train in fp8 or bf16"
    if cell["parallel"] == "tensor":
        return "precision: fp8 and parallel: tensor cannot be combined: layers in fp8 take whole weights"
    return None


def _against_eight_bit_states(cell: Mapping[str, Any]) -> str | None:
    """Why an optimizer cannot keep its states in 8 bits; None if it may be able to."""
    if cell.get("command"):
        return "optimizer: 8bit makes another optimizer, which cannot be done to a script: make it in the script"
    if cell["phase"] == "inference":
        return None
    if cell["graph"]:
        return "optimizer: 8bit and graph: true cannot be combined: the update waits for the GPU after each weight"
    if cell["parallel"] != "ddp":
        return f"optimizer: 8bit and parallel: {cell['parallel']} cannot be combined: the update takes whole weights"
    if cell["channels_last"]:
        return "optimizer: 8bit and channels_last: true cannot be combined: the update would lay weights out anew"
    return None


def _against_updates(cell: Mapping[str, Any]) -> str | None:
    """Why a cell cannot update weights as it is told to; None if it can."""
    known = schema.cell_properties()
    asked = next((key for key in UPDATES if cell[key] != known[key]["default"]), None)
    if asked and cell["phase"] == "inference":
        return f"{asked}: {cell[asked]} is for training, inference updates no weights: set phases to train"
    if cell["accumulate"] > 1 and cell["compile"] == "reduce-overhead":
        return (
            "accumulate: 2 or more and compile: reduce-overhead cannot be combined: each pass would overwrite what the "
            "CUDA graphs of the one before returned"
        )
    return None


def _against_loading(cell: Mapping[str, Any]) -> str | None:
    """Why a cell's batches cannot be loaded as it asks; None if they can."""
    asked = next((key for key in OF_WORKERS if cell[key] is not None), None)
    # A script may start workers of its own.
    if asked and not cell["workers"] and not cell.get("command"):
        told = schema.format_choice(cell[asked])
        return f"{asked}: {told} is for worker processes, and workers: 0 starts none: set workers to 1 or more"
    return None


def _against_checkpoints(cell: Mapping[str, Any]) -> str | None:
    """Why a cell's activations cannot be checkpointed; None if they can."""
    if cell["phase"] == "inference":
        return "checkpoint: true is for training, inference keeps no activations: set phases to train"
    if cell["graph"]:
        return (
            "checkpoint: true and graph: true cannot be combined: checkpoints save the state of random numbers, which "
            "cannot be read while a graph is captured"
        )
    return None


def _against_splitting(cell: Mapping[str, Any]) -> str | None:
    """Why a cell's weights cannot be split over processes; None if they may be."""
    asked = f"parallel: {cell['parallel']}"
    if process_count(cast(CellSettings, cell)) == 1:
        return f"{asked} splits the network over several GPUs: set gpus to 2 or more, or parallel to ddp"
    if cell["precision"] == "fp16":
        return f"{asked} and precision: fp16 cannot be combined: gradients would be scaled in each process by itself"
    if cell["channels_last"]:
        return f"{asked} and channels_last: true cannot be combined: weights in this layout cannot be split"
    if cell["parallel"] == "pipeline" and cell["accumulate"] < (stages := process_count(cast(CellSettings, cell))):
        return f"{asked} fills {stages} stages with as many batches: set accumulate to {stages} or more"
    return None


def _against_graph(cell: Mapping[str, Any]) -> str | None:
    """Why a cell's step cannot be captured in a CUDA graph; None if it may be."""
    if cell["device"] == "cpu":
        return "graph: true captures CUDA graphs, which a CPU has none of: set device to cuda, or graph to false"
    if (several := process_count(cast(CellSettings, cell))) > 1:
        return f"graph: true is for one GPU, not {several}: set gpus and nodes to 1, or graph to false"
    if cell["compile"] == "reduce-overhead":
        return "graph: true and compile: reduce-overhead cannot be combined: both make CUDA graphs, leave one out"
    if cell["precision"] == "fp16" and cell["phase"] == "train" and cell["optimizer"] != "fused":
        return (
            "graph: true and precision: fp16 train with optimizer: fused only, as others wait for the GPU to say "
            "whether gradients overflowed"
        )
    if cell["warmup"] < STEPS_BEFORE_GRAPH:
        return f"graph: true takes {STEPS_BEFORE_GRAPH} steps of warm-up or more, not {cell['warmup']}: raise warmup"
    return None


# A cell contains these settings only if they differ from their defaults. Results from before these settings existed
# thereby stay valid.
LATER = (
    "context", "graph", "optimizer", "checkpoint", "parallel", "weights", "clip", "accumulate", "ema",
    "prefetch_factor", "persistent_workers",
)  # fmt: skip
LATER_DATA = ("test", "vocabulary")
# Largest value of a shape parameter, unless the model itself declares a larger one; longest text.
LARGEST_SHAPE, LONGEST_TEXT = 10_000_000, 1000


def split_variant(cell_model: str) -> tuple[str, str | None]:
    """Split a name into the model and its variant (or variants joined by `+`; None without).

    >>> split_variant("lstm@compile"), split_variant("lstm@bf16+graph")
    (('lstm', 'compile'), ('lstm', 'bf16+graph'))
    """
    name, _, variant = cell_model.partition("@")
    return name, variant or None


def _choose_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what changes nothing, so that results from before these settings existed stay valid."""
    used = bool(data["test"]), data["source"] == "text"
    unused = [key for key, one in zip(LATER_DATA, used, strict=True) if not one]
    return {key: value for key, value in data.items() if key not in unused}


def resolve_cell(cell_model: str, phase: str, tool: str, config: "Config") -> CellSettings:
    """Resolve all settings of a cell under a tool, as plain values sorted by key.

    Precedence, lowest first: the schema's defaults, the model's workload, the configuration's top level, its
    `settings` of the model, the variant. A `window` of null becomes the tool's window. A `batch` of auto becomes the
    model's own batch, and `fit` becomes true.

    Args:
        cell_model: model or model@variant.
        phase: train or inference.
        tool: name of the tool.
        config: filled and checked configuration.

    Raises:
        ConfigError: unknown model, phase, variant or setting, a phase or workload that the model does not have,
            settings or variants that cannot be combined, or fewer steps than the window needs.
    """
    name, _ = split_variant(cell_model)
    if phase not in PHASES:
        raise ConfigError(f"unknown phase '{phase}': {suggest_nearest(phase, PHASES)}")
    model, changes = _changed(cell_model, config)
    known = schema.cell_properties()
    given: Mapping[str, Any] = config
    general = general_settings(bool(model.command), given)
    workload = changes.get("workload", general["workload"])
    declared = {**model.shape, **_declared(model, workload, phase)}
    cell = {**general, **{key: value for key, value in changes.items() if key in known}}
    cell["data"] = _choose_data({**general["data"], **changes.get("data", {})})
    own_batch = declared.pop("batch")
    cell["fit"] = cell["batch"] == "auto"
    cell["batch"] = own_batch if cell["batch"] in (None, "auto") else cell["batch"]
    cell["shape"] = _choose_shape(declared, changes, cell["context"] if phase == "inference" else None, name)
    cell |= {"model": name, "module": model.module, "phase": phase, "workload": workload}
    cell |= own_settings(changes) if model.command else {}
    without = ["gpus", "nodes", "parallel"] if phase == "inference" else ["context"]
    without += ["weights"] if phase == "train" or "train" not in model.workloads[workload] else []
    cell |= {key: known[key]["default"] for key in without}
    # `true` and `default` are synonyms.
    cell["compile"] = True if cell["compile"] == "default" else cell["compile"]
    check_combination(cell)
    cell = {key: value for key, value in cell.items() if key not in LATER or value != known[key]["default"]}
    if cell["fit"] and (several := process_count(cast(CellSettings, cell))) > 1:
        raise ConfigError(f"{name}: batch = 'auto' is for one GPU, not {several}: set batch, that of one GPU")
    cell["window"] = cell["window"] or given[tool]["window"]
    declared_by_tool = schema.tool_schemas().get(tool, {})
    if inside := declared_by_tool.get("inside"):
        # Without a value the key is left out, so that results from before this setting existed stay valid.
        later = [key for key in declared_by_tool.get("inside_if_set", ()) if given[tool][key]]
        cell["profiler"] = {key: given[tool][key] for key in sorted((*inside, *later))}
    return cast(CellSettings, dict(sorted(_with_steps(cell).items())))


def _choose_shape(
    declared: Mapping[str, Any], changes: Mapping[str, Any], context: int | str | None, name: str
) -> dict[str, Any]:
    """Return shape parameters, as `tokens` the context (`8k` is 8192); ConfigError for a model that takes none."""
    shape = {key: changes.get(key, value) for key, value in sorted(declared.items())}
    if context is None:
        return shape
    if "tokens" not in shape:
        raise ConfigError(f"{name}: context is the length of a prompt, and {name} reads no tokens: leave it out")
    return {**shape, "tokens": int(context.removesuffix("k")) * 1024 if isinstance(context, str) else context}


def expand_sweep(models: Sequence[str], sweep: Mapping[str, Sequence[Any]]) -> tuple[list[str], dict[str, Any]]:
    """Return the models with each combination of the swept values, and the variants that these are.

    >>> expand_sweep(["gpt@bf16"], {"batch": [1, 8]})
    (['gpt@bf16+batch1', 'gpt@bf16+batch8'], {'batch1': {'batch': 1}, 'batch8': {'batch': 8}})

    Raises:
        ConfigError: a value cannot be part of a variant's name.
    """
    named = {key: {f"{key}{setting_word(value)}": {key: value} for value in values} for key, values in sweep.items()}
    variants = {name: changes for each in named.values() for name, changes in each.items()}
    if wrong := [name for name in variants if not schema.is_name(name)]:
        raise ConfigError(f"sweep: '{wrong[0]}' cannot be the name of a variant: declare it under variants instead")
    joined = [BETWEEN.join(each) for each in itertools.product(*named.values())] if sweep else []
    swept = [f"{one}{BETWEEN if '@' in one else '@'}{each}" for one in models for each in joined]
    return swept or list(models), variants


def declared_phases(cell_model: str, config: "Config") -> list[str]:
    """Phases that the model declares for its configured workload; empty if it lacks that workload.

    Raises:
        ConfigError: unknown model, variant or setting.
    """
    model, changes = _changed(cell_model, config)
    declared = model.workloads.get(changes.get("workload", config["workload"]), {})
    return [phase for phase in PHASES if phase in declared]


def weights_source(cell_model: str, phase: str, config: "Config") -> str | None:
    """Model (or variant) whose trained weights the cell loads; None for a cell that starts with initial ones.

    Inference under a variant loads the weights of the plain model, unless the variant changes the network. One
    training then serves all variants, including variants that cannot train.

    Raises:
        ConfigError: as for `resolve_cell`.

    >>> from profzoo.config import configuration
    >>> config = configuration.normalise_config({"weights": "trained", "variants": {"wide": {"hidden": 128}}})
    >>> [weights_source(one, "inference", config) for one in ("lstm@fp16+graph", "lstm@wide", "lstm")]
    ['lstm', 'lstm@wide', 'lstm']
    """
    if phase != "inference":
        return None
    name, variant = split_variant(cell_model)
    own = resolve_cell(cell_model, phase, schema.BASELINE, config)
    if own.get("weights") != "trained":
        return None
    if variant is None:
        return name
    plain = resolve_cell(name, phase, schema.BASELINE, config)
    return name if all(plain[key] == own[key] for key in ("module", "shape", "seed")) else cell_model


def _changed(cell_model: str, config: "Config") -> tuple[Model, dict[str, Any]]:
    """Model of a cell, and the changes made by its settings and variant."""
    name, variant = split_variant(cell_model)
    own = dict(config["settings"].get(name) or {})
    model = find_program(name, own)
    own.pop("module", None)
    if (unknown := find_unknown(variant, config["variants"])) is not None:
        raise ConfigError(
            f"unknown variant '{unknown}' of '{cell_model}': {suggest_nearest(unknown, config['variants'])}"
        )
    of_model = check_settings(own, model, f"settings.{name}")
    each = {one: config["variants"][one] for one in split_names(variant)}
    each = {one: check_settings(changes, model, f"variants.{one}") for one, changes in each.items()}
    of_variant = combine_changes(split_names(variant), each)
    return model, {**of_model, **of_variant, "data": {**of_model.get("data", {}), **of_variant.get("data", {})}}


def check_settings(changes: Mapping[str, Any], model: Model, where: str) -> dict[str, Any]:
    """Convert the settings under `where` to their types; ConfigError for an unknown key or invalid value."""
    known, own = known_settings(model), shape_parameters(model)
    result = {}
    for key, value in changes.items():
        if key in known:
            part = known[key]
        elif key in own:
            part = _shape_schema(own[key])
        else:
            if model.command and key in schema.cell_properties():
                raise ConfigError(
                    f"{where}.{key}: cannot be applied to a script from outside: leave it out, or set it in the script"
                )
            raise ConfigError(
                f"unknown key '{where}.{key}' (value {hidden(key, value)!r}): {suggest_nearest(key, [*known, *own])}"
            )
        result[key] = schema.coerce_value(value, part)
        schema.check_value(result[key], part, f"{where}.{key}")
    return result


def known_settings(model: Model) -> dict[str, Any]:
    """Schemas of the settings that a program takes besides its shape parameters, by key."""
    known = schema.cell_properties()
    if not model.command:
        return known
    return {key: known[key] for key in APPLICABLE} | schema.script_properties()


def shape_parameters(model: Model) -> dict[str, Any]:
    """Example values of all the model's shape parameters: those of all workloads, else from any workload and phase."""
    found = dict(model.shape)
    for workload in model.workloads.values():
        for declared in workload.values():
            found |= {key: value for key, value in declared.items() if key != "batch"}
    return found | dict(model.shape)


def parse_words(words: Sequence[str]) -> dict[str, Any]:
    """Parse settings from key=value words; dots separate nested keys.

    >>> parse_words(["batch=8", "data.source=folder"])
    {'batch': '8', 'data': {'source': 'folder'}}
    """
    settings: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"'{word}' is not a setting: give key=value, such as batch=8")
        outer, _, inner = key.partition(".")
        if inner:
            settings.setdefault(outer, {})[inner] = value
        else:
            settings[outer] = value
    return settings


def setting_words(cell: CellSettings) -> list[str]:
    """Words of `python -m models.run` that resolve to this cell again: model, phase, settings."""
    own: Mapping[str, Any] = cell
    known = schema.cell_properties()
    if "command" in cell:
        known = {key: known[key] for key in APPLICABLE} | schema.script_properties() | {"phase": None}
    settings = {key: own[key] for key in (*known, "profiler") if key in cell} | dict(cell["shape"])
    if cell["fit"]:
        settings["batch"] = "auto"
    if cell["module"] not in ("", f"models.{cell['model']}"):
        settings["module"] = cell["module"]
    return [
        cell["model"],
        cell["phase"],
        *(f"{key}={setting_word(value)}" for key, value in sorted(flatten(settings).items())),
    ]


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested settings to one key each, as in words.

    >>> flatten({"batch": 8, "data": {"source": "folder"}})
    {'batch': 8, 'data.source': 'folder'}
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        inner = value if isinstance(value, Mapping) else None
        found |= {key: value} if inner is None else {f"{key}.{name}": item for name, item in inner.items()}
    return found


def setting_word(value: Any) -> str:
    """Format a setting's value as in words.

    >>> setting_word("bf16"), setting_word(True), setting_word(None)
    ('bf16', 'true', 'null')
    """
    return value if isinstance(value, str) else json.dumps(value)


def describe_other_settings(asked: Iterable[str], ran_with: CellSettings) -> str:
    """Describe how the settings that a process ran with differ from those that were asked of it; empty if they do not.

    asked: words as `setting_words` returns. The window is left out: later processes of trials time fewer steps.
    """
    known = schema.cell_properties()
    defaults = {key: setting_word(known[key]["default"]) for key in LATER}
    wanted, ran = (
        defaults | dict(word.partition("=")[::2] for word in words if not word.startswith("window="))
        for words in (asked, setting_words(ran_with))
    )
    keys = [key for key in {**wanted, **ran} if wanted.get(key) != ran.get(key)]
    return ", ".join(f"{key}={hidden(key, ran.get(key))} instead of {hidden(key, wanted.get(key))}" for key in keys)


def _declared(model: Model, workload: str, phase: str) -> Mapping[str, Any]:
    if workload not in model.workloads:
        raise ConfigError(
            f"model '{model.name}' has no workload '{workload}': {suggest_nearest(workload, model.workloads)}"
        )
    if phase not in model.workloads[workload]:
        phases = model.workloads[workload]
        raise ConfigError(
            f"model '{model.name}' has no phase '{phase}' in {workload}: {suggest_nearest(phase, phases)}"
        )
    return model.workloads[workload][phase]


def _shape_schema(default: Any) -> dict[str, Any]:
    names: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    kind = names[type(default)]
    if kind == "integer":
        return {"type": kind, "minimum": min(1, default), "maximum": max(LARGEST_SHAPE, default)}
    return {"type": kind, "maxLength": LONGEST_TEXT} if kind == "string" else {"type": kind}


def _with_steps(cell: dict[str, Any]) -> dict[str, Any]:
    """Cell with `samples`, `window` and `steps` as numbers; ConfigError if there are too few samples."""
    profiler = cell.get("profiler", {"wait": 0, "warmup": 0, "repeat": 1})
    beside, before = profiler["wait"] + profiler["warmup"], cell["warmup"] + profiler.get("baseline", 0)
    where = f"{cell['model']} {cell['phase']}"
    at_once = cell["batch"] * batch_count(cast(CellSettings, cell))
    available = cell["epochs"] * (cell["samples"] // at_once) if cell["samples"] else None
    if cell["window"] == "rest":
        if available is None:
            raise ConfigError(f"{where}: window = 'rest' needs samples, the size of the data set")
        cell["window"] = max((available - before) // profiler["repeat"] - beside, 0)
    cell["steps"] = before + profiler["repeat"] * (beside + cell["window"])
    if available is None:
        cell["samples"] = at_once * -(-cell["steps"] // cell["epochs"])
        if cell["samples"] > (most := schema.largest_value("samples")):
            raise ConfigError(
                f"{where}: {cell['steps']} steps in batches of {at_once} take {cell['samples']} samples, of at most "
                f"{most}: lower batch, warmup or window, or set samples or epochs"
            )
    elif cell["window"] < 1 or cell["steps"] > available:
        needed = max(cell["steps"], before + profiler["repeat"] * (beside + 1))
        raise ConfigError(
            f"{where}: {cell['samples']} samples in batches of {at_once} over {cell['epochs']} epoch(s) make "
            f"{available} steps, warm-up and window need {needed}: set samples to "
            f"{at_once * -(-needed // cell['epochs'])} or more, or lower batch, warmup or window"
        )
    return cell
