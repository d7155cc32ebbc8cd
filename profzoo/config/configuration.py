"""Complete and check the user's configuration, and list the cells that it selects."""

from collections.abc import Iterable, Mapping

from profzoo import schema, secret_detection, tools
from profzoo.cell import programs, registry, settings, variant_settings
from profzoo.cell.config_types import Config
from profzoo.cell.process_count import process_count
from profzoo.config import name_collisions, renamed_settings
from profzoo.errors import ConfigError, suggest_nearest
from profzoo.json_types import GivenSettings


def normalise_config(given: GivenSettings, told: GivenSettings | None = None, planned: bool = False) -> Config:
    """Return the complete configuration: strings coerced, shorthands resolved, defaults filled, everything checked.

    Idempotent, so that a remote job which gets the result as its configuration arrives at the same.

    Args:
        given: what the user wrote, in files and on the command line.
        told: what of that the command line gave.
        planned: whether it was checked before, for the plan that this process runs a job of. What has become of a
            model's file since then concerns the model's own jobs.

    Raises:
        ConfigError: in one line, the first thing that is wrong.
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
            continue  # Said where the model is asked for.
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
    config |= {name: command.check_settings(config[name]) for name, command in tools.commands().items()}
    return config | {name: own.resolve_settings(config) for name, own in tools.settings().items()}


def _check_variants(config: Config) -> None:
    """A variant may be of any model, so its keys are held against the shapes of all; values are checked in use."""
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
    """Return, by name, one line on what is wrong with each model whose file cannot be used."""
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
            # In a module that it imports.
            del usable[name]
            wrong[name] = str(error)
    return usable, wrong


def list_multi_gpu_cells(config: Config, words: Iterable[str] = ()) -> list[str]:
    """Return the names (model or model@variant) of cells that train on several GPUs.

    words: of the command line; the combinations of variants that are known are those in them, `models` and sides of
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
        # Said where the cell is asked for: not every variant fits every model.
        return False


def select_models(config: Config) -> list[str]:
    """Return the names (model or model@variant) that the key `models` selects, in order, without repeats.

    Raises:
        ConfigError: there is no such model, group or variant, or the file of a model that is named cannot be used.
    """
    known, wrong = _find_models(config)
    groups: dict[str, list[str]] = {"all": list(known)}
    for name, model in known.items():
        for group in model.groups:
            groups.setdefault(group, []).append(name)
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
    """Return the selected cells: model (or model@variant) and phase, as far as models declare the phase.

    planned: as for `normalise_config`; a model that is named and cannot be used any more keeps its cells, which were
    looked at when they were planned.

    Raises:
        ConfigError: there is none, or none of a model that is named by itself.
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
            f"models = {','.join(config['models'])} with phases = {','.join(config['phases'])} is no cell"
        )
    return chosen


def _unknown_selections(config: Config) -> list[str]:
    """Return selected names that are neither a usable model nor a group."""
    known, wrong = _find_models(config)
    groups = {"all"}.union(*(model.groups for model in known.values()))
    names = {word: settings.split_variant(word)[0] for word in config["models"]}
    return [word for word, name in names.items() if name in wrong or name not in groups | set(known)]


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
    declared = settings.declared_phases(name, config)
    return [(name, phase) for phase in config["phases"] if phase in declared]
