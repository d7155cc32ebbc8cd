"""Formats command lines that run a cell again, or run trials on it: its name, and its settings besides the defaults."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from profzoo.cell import schema, settings
from profzoo.cell.cell_types import CellSettings
from profzoo.cell.process_count import process_count
from profzoo.errors import ConfigError

# Settings of the run's length are left out: a user who tries a setting by hand does not need them.
LENGTH = ("window", "warmup", "samples", "epochs")
# Variable by which `profzoo advise` passes on the words behind it, and its option that tries changes, with a time.
ADVISED, TRY = "PROFZOO_ADVISE", "--try"


def run_arguments(cell_model: str, cell: Mapping[str, Any]) -> str:
    """Shell-quoted arguments of `python -m models.run`; cell: resolved settings, as in a sidecar.

    The arguments are the cell's name and phase, and all settings that name and phase alone do not imply. Examples:
    a module, a script's command, shapes, and settings from a configuration or from a user's own variant.
    """
    known = schema.fill_defaults({}, schema.load_schema())["variants"]
    name = cell["model"] if settings.find_unknown(settings.split_variant(cell_model)[1], known) else cell_model
    implied = _implied(name, cell)
    given = [
        word for word in settings.setting_words(cast(CellSettings, {**cell, "fit": False}))[2:] if word not in implied
    ]
    kept = [word for word in given if word.partition("=")[0] not in LENGTH and not word.startswith("profiler.")]
    return shlex.join([name, cell["phase"], *kept])


def _implied(name: str, cell: Mapping[str, Any]) -> set[str]:
    """Setting words that a name and phase alone imply, except the module and the command."""
    config = schema.fill_defaults({}, schema.load_schema())
    plain, _ = settings.split_variant(name)
    module = {"module": cell["module"]} if cell["module"] != f"models.{plain}" else {}
    config["settings"] = {plain: {key: cell[key] for key in ("command", "phase")} if "command" in cell else module}
    try:
        resolved = settings.resolve_cell(name, cell["phase"], schema.BASELINE, config)
    except ConfigError:
        # The module cannot be found from here, its file has changed, or its settings depend on other settings.
        defaults = {key: config[key] for key in schema.cell_properties()}
        return {f"{key}={settings.setting_word(value)}" for key, value in settings.flatten(defaults).items()}
    return {word for word in settings.setting_words(resolved)[2:] if not word.startswith(("module=", "command="))}


def format_run(words: str, changes: str = "") -> str:
    """Command line that runs a cell by hand, with changed settings.

    words: arguments as `run_arguments` returns them; changes: further settings as key=value words.

    >>> format_run("lstm train batch=8", "graph=true batch=16")
    'python -m models.run lstm train batch=16 graph=true'
    >>> format_run("mine train module=mine gpus=2")
    'torchrun --standalone --nproc-per-node=2 -m models.run mine train module=mine gpus=2'
    """
    name, phase, *given = shlex.split(words)
    found = merge_words(given, changes.split())
    gpus = next((word.partition("=")[2] for word in found if word.startswith("gpus=")), "1")
    launcher = "python" if gpus == "1" else f"torchrun --standalone --nproc-per-node={gpus}"
    # A script's folder may contain another package named `models`.
    program = "profzoo.run" if any(word.startswith("command=") for word in found) else "models.run"
    return f"{launcher} -m {program} {shlex.join([name, phase, *found])}"


def trials_command(words: str, chosen: Sequence[str] = ()) -> str:
    """Command line that runs trials of settings on a cell; chosen: the tools that the cell was measured with.

    >>> trials_command("lstm train"), trials_command("mine train size=8", ["torch"])
    ('snakemake trials --config models=lstm', "snakemake trials --config models='{mine: {size: 8}}' tool=torch")
    """
    named = name_tools(chosen)
    return f"snakemake trials --config models={_models_option(words)}{named and f' {named}'}"


def name_tools(chosen: Sequence[str]) -> str:
    """Word of a command line that selects these tools; empty if there are none, or if they are the default.

    >>> name_tools(["torch"]), name_tools([])
    ('tool=torch', '')
    """
    default: list[str] = schema.load_schema()["properties"]["tool"]["default"]
    return f"tool={','.join(chosen)}" if chosen and list(chosen) != default else ""


def comparison_command(words: str, changes: str) -> str:
    """Command line that compares a cell with itself under changed settings.

    Both sides are only timed. The candidate is named by variants that every configuration has. Settings that no such
    variant sets become a variant on the command line.

    words: arguments as `run_arguments` returns them; changes: the settings as key=value words.

    >>> comparison_command("lstm train", "graph=true precision=bf16")
    'snakemake compare --config models=lstm phases=train tool=time candidate=graph+bf16'
    >>> comparison_command("lstm train", "batch=16")
    "snakemake compare --config models=lstm phases=train tool=time variants='{changed: {batch: 16}}' candidate=changed"
    """
    phase = shlex.split(words)[1]
    start = f"snakemake compare --config models={_models_option(words)} phases={phase} tool={schema.BASELINE}"
    if named := _name_settings(_nested(changes.split())):
        return f"{start} candidate={named}"
    own = _yaml({"changed": _nested(changes.split())})
    return f"{start} variants={shlex.quote(own)} candidate=changed"


def runs_script(command: str) -> bool:
    """Whether what `format_run` or `comparison_command` returned runs a script.

    >>> words = "mine train 'command=python train.py'"
    >>> runs_script(comparison_command(words, "workers=2")), runs_script(format_run(words)), runs_script("lstm train")
    (True, True, False)
    """
    return re.search(r"[{ ']command[:=]", command) is not None


def _name_settings(given: Mapping[str, Any]) -> str | None:
    """Combined name of the default variants that together set exactly these settings; None if there are none.

    >>> _name_settings({"graph": "true", "precision": "bf16"}), _name_settings({"batch": 16})
    ('graph+bf16', None)
    """
    left = _as_texts(given)
    names = []
    known: Mapping[str, Mapping[str, Any]] = schema.load_schema()["properties"]["variants"]["default"]
    # A variant that sets more comes first, so that `workers` names both of its settings.
    for name, own in sorted(known.items(), key=lambda one: -len(one[1])):
        texts = _as_texts(own)
        if texts.items() <= left.items():
            names.append((min(list(given).index(key) for key in texts), name))
            left = {key: value for key, value in left.items() if key not in texts}
    return None if left else settings.BETWEEN.join(name for _, name in sorted(names))


def _as_texts(given: Mapping[str, Any]) -> dict[str, str]:
    """Settings as texts, because words of a command line and YAML have different types."""
    return {key: str(value).lower() for key, value in given.items()}


def _models_option(words: str) -> str:
    """Value of `models` on the command line that selects a cell with its settings; words: as run_arguments returns."""
    name, _, *given = shlex.split(words)
    if not given:
        return name
    name, variant = settings.split_variant(name)
    if variant:
        # Several settings do not fit into one word.
        known = schema.load_schema()["properties"]["variants"]["default"]
        own = settings.combine_changes(settings.split_names(variant), known)
        given = merge_words(
            [f"{key}={settings.setting_word(value)}" for key, value in settings.flatten(own).items()], given
        )
    inner = ", ".join(f"{key}: {_yaml(value)}" for key, value in _nested(given).items())
    return shlex.quote(f"{{{name}: {{{inner}}}}}")


def merge_words(given: Iterable[str], changes: Iterable[str]) -> list[str]:
    """Merge words of settings; the last word of each key wins.

    >>> merge_words(["batch=8", "seed=0"], ["batch=16"])
    ['batch=16', 'seed=0']
    """
    return list({word.partition("=")[0]: word for word in (*given, *changes)}.values())


def can_be_typed(cell: Mapping[str, Any]) -> bool:
    """Whether a sidecar describes the cell completely; older versions wrote less."""
    return {"model", "module", "phase", "shape", "gpus", "nodes"} <= set(cell) and process_count(
        cast(CellSettings, cell)
    ) >= 1


def _nested(given: Iterable[str]) -> dict[str, Any]:
    return settings.parse_words(list(given))


def _yaml(value: Any) -> str:
    """Format a value as one line of YAML; plain words stay unquoted."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_yaml(inner)}" for key, inner in value.items()) + "}"
    plain = value and all(letter.isalnum() or letter in "_.-/" for letter in value)
    return value if plain else json.dumps(value)
