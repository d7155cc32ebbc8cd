"""Complete and check the user's configuration, and list the cells that it selects."""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from profzoo import tools
from profzoo.cell import data_files, registry, schema, secret_detection, settings
from profzoo.cell.config_types import Config
from profzoo.cell.process_count import process_count
from profzoo.config import imported_reports
from profzoo.errors import ConfigError, suggest_nearest
from profzoo.io import strict_yaml
from profzoo.json_types import GivenSettings
from profzoo.range_names import IMPORTED

# Check the text of configuration files for mistakes that a YAML parser does not report.

# Keys whose values map names of models or variants to cell settings.
KEYS_BY_NAME = ("models", "settings", "variants")
# A file with this key is a template from which YAML is generated, and is not checked.
TEMPLATE = "__use_yte__"


def check_files(files: Iterable[Path]) -> None:
    """Check that YAML reads each value in these files as its writer must have meant it.

    Raises:
        ConfigError: a value is read differently; the message names file, line and key, and says what to write.
    """
    rules = schema.load_schema()
    of_cells = {"additionalProperties": {"properties": schema.cell_properties()}}
    named = {key: {**rules["properties"][key], **of_cells} for key in KEYS_BY_NAME}
    meant = strict_yaml.allows_boolean({**rules, "properties": {**rules["properties"], **named}})
    for path in files:
        text = strict_yaml.read_yaml_text(path, _format_path(path))
        if TEMPLATE not in text:
            strict_yaml.check_yaml(text, _format_path(path), meant)


def _format_path(path: Path) -> str:
    """Return a path for messages: relative if it is below the current folder, else as it is."""
    near = os.path.relpath(path)
    return str(path) if near.startswith("..") else near


# Refuse names that differ only in case, because some disks would mix up their results.


def check_collisions(config: Config) -> None:
    """Check that no two models, variants or section sets have names that differ only in case.

    Raises:
        ConfigError: two names would share folders or files on a disk that ignores case.
    """
    _check_names(
        "models",
        "in models/, settings or imported",
        [*registry.shipped_models(), *config["settings"], *config["imported"]],
    )
    _check_names("variants", "in variants", config["variants"])
    for tool in tools.with_setting("sets"):
        _check_names("section sets", f"in {tool}.sets", tools.settings_of(config, tool)["sets"])


def _check_names(kind: str, where: str, names: Iterable[str]) -> None:
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(_fold_name(name), name)
        if other != name:
            raise ConfigError(
                f"{kind} '{other}' and '{name}' differ only in case: on a disk that ignores case their results would "
                f"be mixed up. Rename one of them, {where}"
            )


def _fold_name(name: str) -> str:
    """Return the form of a name that is compared by disks which ignore case and Unicode forms.

    >>> _fold_name("UNet") == _fold_name("unet"), _fold_name("e\\u0301") == _fold_name("\\u00c9")
    (True, True)
    """
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def normalise_config(given: GivenSettings, told: GivenSettings | None = None, planned: bool = False) -> Config:
    """Return the complete and checked configuration.

    Strings become values of the schema's types, shorthands are resolved, and missing settings get their defaults. The
    result is a valid configuration and does not change when it is normalised again; remote jobs rely on that.

    Args:
        given: the user's configuration, from files and the command line together.
        told: the part of it that comes from the command line.
        planned: whether this process runs a job of a plan, for which the configuration was already checked. A model's
            file may have changed since then; only the model's own jobs report that.

    Raises:
        ConfigError: one line about the first mistake.
    """
    rules = schema.load_schema()
    config = schema.coerce_value(given, rules, told)
    if isinstance(config.get("models"), Mapping):
        own = config["models"]
        config |= {"models": list(own), "settings": {**config.get("settings", {}), **own}}
    config = schema.fill_defaults(config, rules)
    schema.check_value(config, rules)
    models, swept = settings.expand_sweep(config["models"], config["sweep"])
    config |= {"models": models, "variants": {**config["variants"], **swept}, "sweep": {}}
    config["settings"] = {name: value or {} for name, value in config["settings"].items()}
    for name, changes in config["settings"].items():
        try:
            model = registry.find_program(name, changes)
        except registry.UnusableError:
            continue  # `select_models` reports it if the model is selected.
        except ConfigError as error:
            if planned:
                continue
            raise ConfigError(_explain_unknown(name, changes) or str(error)) from None
        settings.check_settings(
            {key: value for key, value in changes.items() if key != "module"}, model, f"settings.{name}"
        )
    _check_variants(config)
    if not planned:
        check_collisions(config)
        imported_reports.check_reports(config["imported"], list_models(config))
    config |= {name: command.check_settings(config[name]) for name, command in tools.commands().items()}
    return config | {name: own.resolve_settings(config) for name, own in tools.settings().items()}


def _explain_unknown(name: str, changes: GivenSettings) -> str:
    """Say which key of a name's settings is misspelt, so that it defines neither a model nor a script; else empty."""
    defining = {"module", *schema.script_properties()}
    if {"module", "command"} & changes.keys():
        return ""
    for key, value in changes.items():
        if key not in {*schema.cell_properties(), *defining} and (near := get_close_matches(key, defining, 1)):
            shown = secret_detection.hidden(key, value)
            return f"unknown key 'settings.{name}.{key}' (value {shown!r}): did you mean '{near[0]}'?"
    return ""


def _check_variants(config: Config) -> None:
    """Check the keys of all variants: cell settings, or a shape parameter of any model. Values are checked in use.

    Raises:
        ConfigError: a key is unknown.
    """
    known = {*schema.cell_properties()}.union(
        *(settings.shape_parameters(model) for model in list_models(config).values())
    )
    for variant, changes in config["variants"].items():
        for key, value in changes.items():
            if key not in known:
                shown = secret_detection.hidden(key, value)
                raise ConfigError(
                    f"unknown key 'variants.{variant}.{key}' (value {shown!r}): {suggest_nearest(key, known)}"
                )


def list_models(config: Config) -> dict[str, registry.Model]:
    """Return all usable models by name: the zoo's and the user's own."""
    return _find_models(config)[0]


def explain_unusable_models(config: Config) -> dict[str, str]:
    """Return, by name, the reason in one line for each model whose file cannot be used."""
    return _find_models(config)[1]


def _find_models(config: Config) -> tuple[dict[str, registry.Model], dict[str, str]]:
    usable, wrong = dict(registry.shipped_models()), dict(registry.unusable_models())
    for name, changes in config["settings"].items():
        if not {"module", "command"} & set(changes):
            continue
        for found in (usable, wrong):
            found.pop(name, None)
        try:
            usable[name] = registry.find_program(name, changes)
        except ConfigError as error:
            wrong[name] = str(error)
    for name, model in list(usable.items()):
        try:
            registry.program_sources(model)
        except registry.UnusableError as error:
            # The mistake is in a module that the model imports.
            del usable[name]
            wrong[name] = str(error)
    return usable, wrong


def list_multi_gpu_cells(config: Config, words: Iterable[str] = ()) -> list[str]:
    """Return the names (model or model@variant) of cells that train on several GPUs.

    words: words of the command line. Combinations of variants are taken from them, from `models`, and from the sides of
    comparisons.
    """
    asked = [*words, *config["models"], config["reference"], *config["candidate"]]
    combinations = settings.find_combinations(asked)
    variants = [*config["variants"], *combinations]
    names = [name for model in list_models(config) for name in (model, *(f"{model}@{one}" for one in variants))]
    return [name for name in names if _uses_several_gpus(name, config)]


def _uses_several_gpus(name: str, config: Config) -> bool:
    try:
        return process_count(settings.resolve_cell(name, "train", tools.BASELINE, config)) > 1
    except ConfigError:
        # Not every variant fits every model; a selected cell reports this error elsewhere.
        return False


def select_models(config: Config) -> list[str]:
    """Return the names (model or model@variant) that the key `models` selects, in order, without repeats.

    Raises:
        ConfigError: a model, group or variant does not exist, or the file of a named model cannot be used.
    """
    models, wrong = _find_models(config)
    groups: dict[str, list[str]] = {"all": [*models, *config["imported"]]}
    for name, model in models.items():
        for group in model.groups:
            groups.setdefault(group, []).append(name)
    if config["imported"]:
        groups.setdefault(IMPORTED, []).extend(config["imported"])
    known = groups["all"]
    chosen: list[str] = []
    for word in config["models"]:
        name, variant = settings.split_variant(word)
        if name in wrong:
            raise ConfigError(f"models = '{word}': {wrong[name]}")
        if name not in known and name not in groups:
            raise ConfigError(
                f"models = '{word}': no model or group of that name; {suggest_nearest(name, [*known, *groups])}"
                f"{_explain_results(name, config)}"
            )
        if (unknown := settings.find_unknown(variant, config["variants"])) is not None:
            raise ConfigError(
                f"models = '{word}': no variant '{unknown}'; {suggest_nearest(unknown, config['variants'])}"
            )
        chosen += [f"{one}@{variant}" if variant else one for one in groups.get(name, [name])]
    return list(dict.fromkeys(chosen))


def _explain_results(name: str, config: Config) -> str:
    """Say that there are results of a name that the configuration does not define; empty if there are none."""
    folder = Path(config["pathvars"].get("results", "results"), name)
    there = schema.is_name(name, "model") and folder.is_dir()
    return f"; {folder} holds its results: name the file that defines it by --configfile, too" if there else ""


def select_cells(config: Config, planned: bool = False) -> list[tuple[str, str]]:
    """Return model (or model@variant) and phase of each selected cell; phases that a model does not have are skipped.

    planned: as for `normalise_config`. A named model whose file has become unusable since the plan keeps its cells.

    Raises:
        ConfigError: no cell is selected, or a model that is named by itself has none of the phases.
    """
    chosen: list[tuple[str, str]] = []
    lost = _unknown_selections(config) if planned else []
    chosen += [(name, phase) for name in lost for phase in config["phases"]]
    kept = [name for name in config["models"] if name not in lost]
    for name in select_models({**config, "models": kept}):
        found = _cells_of(name, config)
        if not found and name in config["models"]:
            settings.resolve_cell(name, config["phases"][0], tools.BASELINE, config)
        chosen += found
    if not chosen:
        raise ConfigError(
            f"models = {','.join(config['models'])} with phases = {','.join(config['phases'])} selects no cell"
        )
    return chosen


def _unknown_selections(config: Config) -> list[str]:
    """Return selected names that are neither a usable model nor a group."""
    known, wrong = _find_models(config)
    groups = {"all", IMPORTED}.union(*(model.groups for model in known.values()))
    names = {word: settings.split_variant(word)[0] for word in config["models"]}
    return [word for word, name in names.items() if name in wrong or name not in groups | {*known, *config["imported"]}]


def describe_left_out(config: Config) -> list[str]:
    """Return one line per model that `all` or a group leaves out, with the reason."""
    every = any(settings.split_variant(word)[0] == "all" for word in config["models"])
    lines = [
        f"models = all leaves out {name}: {wrong}" for name, wrong in explain_unusable_models(config).items() if every
    ]
    for name in select_models(config):
        if not _cells_of(name, config):
            lines.append(f"{name} is left out: it declares no {' or '.join(config['phases'])} for its workload")
    return lines


def unusable_cells(config: Config) -> list[dict[str, str]]:
    """Return model, phase and reason (`why`) of cells that are not selected because their model's file is unusable."""
    every = any(settings.split_variant(word)[0] == "all" for word in config["models"])
    broken = explain_unusable_models(config).items() if every else ()
    return [{"model": name, "phase": phase, "why": wrong} for name, wrong in broken for phase in config["phases"]]


def _cells_of(name: str, config: Config) -> list[tuple[str, str]]:
    if name in config["imported"]:
        return [(name, IMPORTED)]
    declared = settings.declared_phases(name, config)
    return [(name, phase) for phase in config["phases"] if phase in declared]


# Explain target files that no rule makes: the wrong part of the name, and the nearest valid one.

# Options of snakemake whose next word is a file or folder.
FILE_OPTIONS = {"--report", "-d", "--directory", "--configfile", "--configfiles", "-s", "--snakefile"}
# Folders under results/ that belong to no single model.
SHARED = {"tables", "figures", "peaks", "logs", "benchmarks"}
# Parts of file names after the phase, besides the parts that tools declare.
FILE_ENDINGS = ("csv", "json", "svg", "png", "pdf")
WEIGHTS = "weights.pt"
# What follows the name of the GPU in the file of the links between several.
LINKS = re.compile(r"\.links\.\d+x\d+$")


def check_targets(words: Sequence[str], results: str, config: Config) -> None:
    """Check that model, phase, tool and section set of each target file under results/ exist.

    words: snakemake's command line. Files that are not targets, such as the file after --report, are skipped.

    Raises:
        ConfigError: a part does not exist; the message names it and the nearest valid one.
    """
    _check_peaks(words, results)
    for target, folder, file in _cell_files(words, results):
        where = f"target '{target}'"
        _check_model(where, folder, config)
        phase, *rest = ["train"] if file.startswith(WEIGHTS) else file.split(".")
        if "@" in phase:
            phase, variant = phase.split("@", 1)
            right = f"{results}/{folder}@{variant}/{'.'.join([phase, *rest])}"
            raise ConfigError(f"{where}: a variant follows the model: {right}")
        made_elsewhere = folder in config["imported"]
        _check_part(f"{where}: unknown phase", phase, [IMPORTED] if made_elsewhere else settings.PHASES)
        if not made_elsewhere:
            # Raises an error if the cell is invalid, for example if the model does not have the phase.
            data_files.data_set_folder(settings.resolve_cell(folder, phase, tools.BASELINE, config))
        known = [
            *FILE_ENDINGS,
            *(part for name, one in tools.files().items() for part in one.name_parts(tools.settings_of(config, name))),
        ]
        for part in rest:
            _check_part(f"{where}: no tool, section set or file", part, known)


def _cell_files(words: Sequence[str], results: str) -> Iterator[tuple[str, str, str]]:
    """Yield each word that is a file of a model under results/, with the names of its folder and file.

    >>> list(_cell_files(["-s", "results/a/b", "all", "./results/lstm/train.nsys/osrt_sum.csv"], "results"))
    [('./results/lstm/train.nsys/osrt_sum.csv', 'lstm', 'train.nsys')]
    """
    for before, word in zip(["", *words], words, strict=False):
        path = word.removeprefix("./")
        parts = path.removeprefix(f"{results}/").split("/")
        if before not in FILE_OPTIONS and path.startswith(f"{results}/") and len(parts) > 1 and parts[0] not in SHARED:
            yield word, parts[0], parts[1]


def _check_peaks(words: Sequence[str], results: str) -> None:
    """Check that targets under results/peaks/ have valid names of GPUs.

    Raises:
        ConfigError: a name is invalid.
    """
    folder = f"{results}/peaks/"
    for before, word in zip(["", *words], words, strict=False):
        path = word.removeprefix("./")
        if before in FILE_OPTIONS or not path.startswith(folder):
            continue
        name = LINKS.sub("", path.removeprefix(folder).removesuffix(".json").removesuffix(".csv"))
        if not schema.is_name(name):
            raise ConfigError(f"target '{word}': {name!r} is not a valid name of a GPU: {schema.describe_form()}")


def _check_model(where: str, folder: str, config: Config) -> None:
    """Check the name of a folder: a model, and variants after an `@` if there are any.

    where: the target, for the message.

    Raises:
        ConfigError: the model is unknown or unusable, or a variant is unknown.
    """
    name, variant = settings.split_variant(folder)
    unusable = explain_unusable_models(config)
    if name in unusable:
        raise ConfigError(f"{where}: {unusable[name]}")
    _check_part(f"{where}: unknown model", name, [*list_models(config), *config["imported"]])
    if (unknown := settings.find_unknown(variant, config["variants"])) is not None:
        _check_part(f"{where}: unknown variant", unknown, config["variants"])


def _check_part(what: str, part: str, known: Sequence[str] | Mapping[str, Any]) -> None:
    if part not in known:
        raise ConfigError(f"{what} '{part}'; {suggest_nearest(part, known)}")
