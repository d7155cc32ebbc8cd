"""Complete and check the user's configuration, and list the cells that it selects."""

from collections.abc import Iterable, Mapping

from profzoo import schema, secret_detection, tools
from profzoo.cell import programs, registry, settings, variant_settings
from profzoo.cell.config_types import Config
from profzoo.cell.process_count import process_count
from profzoo.config import imported_reports, name_collisions, renamed_settings
from profzoo.errors import ConfigError, suggest_nearest
from profzoo.json_types import GivenSettings
from profzoo.range_names import IMPORTED


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
    config = schema.coerce_value(
        renamed_settings.rename_settings(given), rules, renamed_settings.rename_settings(told) if told else told
    )
    if isinstance(config.get("models"), Mapping):
        own = config["models"]
        config |= {"models": list(own), "settings": {**config.get("settings", {}), **own}}
    config = schema.fill_defaults(config, rules)
    schema.check_value(config, rules)
    config["settings"] = {name: value or {} for name, value in config["settings"].items()}
    for name, changes in config["settings"].items():
        try:
            model = programs.find_program(name, changes)
        except registry.UnusableError:
            continue  # `select_models` reports it if the model is selected.
        except ConfigError:
            if planned:
                continue
            raise
        settings.check_settings(
            {key: value for key, value in changes.items() if key != "module"}, model, f"settings.{name}"
        )
    _check_variants(config)
    if not planned:
        name_collisions.check_collisions(config)
        imported_reports.check_reports(config["imported"], list_models(config))
    config |= {name: command.check_settings(config[name]) for name, command in tools.commands().items()}
    return config | {name: own.resolve_settings(config) for name, own in tools.settings().items()}


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
            usable[name] = programs.find_program(name, changes)
        except ConfigError as error:
            wrong[name] = str(error)
    for name, model in list(usable.items()):
        try:
            programs.source_files(model)
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
    combinations = variant_settings.find_combinations(asked)
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
            )
        if (unknown := variant_settings.find_unknown(variant, config["variants"])) is not None:
            raise ConfigError(
                f"models = '{word}': no variant '{unknown}'; {suggest_nearest(unknown, config['variants'])}"
            )
        chosen += [f"{one}@{variant}" if variant else one for one in groups.get(name, [name])]
    return list(dict.fromkeys(chosen))


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
