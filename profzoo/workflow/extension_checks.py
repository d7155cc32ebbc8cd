"""Checks what extensions bring, and edited rules, before a run starts, and names a mistake in one line."""

import importlib

from profzoo import extensions, figures, tools
from profzoo.cell import registry, schema
from profzoo.errors import ConfigError, first_error_line, suggest_nearest
from profzoo.report import glossary
from profzoo.verdicts.rules import rule_types

MODULES = ("command", "files", "activity", "failures", "losses", "doctor", "settings")
RULES = "rules.yaml"
# What figures may need besides what tools are called, do and provide.
NEEDED = {"roofline", "layer_counters", figures.GENERATING, figures.TOKENS, figures.COMPARISON, figures.PARTS}


def check_extensions() -> None:
    """Read what extensions bring, and shipped rules that nobody has checked yet, as the run will read them.

    A broken model file does not end the run; an error names it when the model is selected.

    Raises:
        ConfigError: a name is taken, a file is of another form, or a tool's module cannot be imported.
    """
    if not extensions.folders():
        if not rule_types.is_checked():
            _check_rules()
        return
    schema.load_schema()
    registry.shipped_models()
    for path in extensions.files(*(f"tools/*/{name}.py" for name in MODULES)):
        try:
            importlib.import_module(extensions.module_name(path))
        except Exception as error:
            raise ConfigError(f"{path}: {type(error).__name__}: {first_error_line(error)}") from error
    _check_figures()
    glossary.load_groups()
    if extensions.files(RULES) or not rule_types.is_checked():
        _check_rules()


def _check_figures() -> None:
    own = [figure for figure in figures.all_figures().values() if extensions.find_extension(figure.path)]
    if not own:
        return
    # What tables hold is declared with what reads them, which takes pandas.
    from profzoo.catalog import csv_files

    settings = schema.load_schema()["properties"]["figures"]["properties"]
    needed = {*tools.names(), *tools.DOES, *tools.PROVIDED, *NEEDED}
    choices = {"INPUTS": {*csv_files.TABLES, "peaks"}, "NEEDS": needed, "OPTIONS": set(settings)}
    for figure in own:
        for key, valid in choices.items():
            if wrong := sorted(set(getattr(figure, key.lower())) - valid):
                raise ConfigError(f"{figure.path}: {key} holds '{wrong[0]}': {suggest_nearest(wrong[0], valid)}")


def _check_rules() -> None:
    # Rules name columns of tables, which takes pandas.
    from profzoo.verdicts.rules import rules

    explained, own = glossary.load_meanings(), extensions.files(RULES)
    try:
        found = rules.load_rules()["rules"]
    except ConfigError as error:
        # A mistake in an extension's file begins with its path.
        raise error if own else ConfigError(f"{rule_types.RULES_FILE}: {error}") from None
    for rule in found:
        if rule["verdict"] not in explained:
            paths = ", ".join(map(str, own or [rule_types.RULES_FILE]))
            raise ConfigError(
                f"{paths}: nothing explains the verdict '{rule['verdict']}': add it to words.yaml beside the rules"
            )
