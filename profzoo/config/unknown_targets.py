"""Explain target files that no rule makes: the wrong part of the name, and the nearest valid one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from profzoo import schema, tools
from profzoo.cell import data_files, settings, variant_settings
from profzoo.cell.config_types import Config
from profzoo.config import configuration
from profzoo.errors import ConfigError, suggest_nearest

# Options of snakemake that a file follows.
FILE_OPTIONS = {"--report", "-d", "--directory", "--configfile", "--configfiles", "-s", "--snakefile"}
# Folders under results/ that are of no single model.
SHARED = {"tables", "figures", "peaks", "logs", "benchmarks"}
# What names of files hold after model and phase, besides what each tool has in them.
FILE_ENDINGS = ("csv", "json")
WEIGHTS = "weights.pt"


def check_targets(words: Sequence[str], results: str, config: Config) -> None:
    """Explain a target file under results/ whose model, phase, tool or set does not exist.

    words: snakemake's command line; files that are no targets, such as that of --report, are passed over.

    Raises:
        ConfigError: naming the part that is wrong and the nearest valid one.
    """
    _check_peaks(words, results)
    for target, folder, file in _cell_files(words, results):
        where = f"target '{target}'"
        _check_model(where, folder, config)
        phase, *rest = ["train"] if file.startswith(WEIGHTS) else file.split(".")
        _check_part(f"{where}: unknown phase", phase, settings.PHASES)
        # Raises what is wrong with the cell, such as a phase that the model does not have.
        data_files.data_set_folder(settings.resolve_cell(folder, phase, tools.BASELINE, config))
        known = [
            *FILE_ENDINGS,
            *(part for name, one in tools.files().items() for part in one.name_parts(tools.settings_of(config, name))),
        ]
        for part in rest:
            _check_part(f"{where}: no tool, section set or file", part, known)


def _cell_files(words: Sequence[str], results: str) -> Iterator[tuple[str, str, str]]:
    """Yield the words that are files of a model under results/: the word, and the names of folder and file.

    >>> list(_cell_files(["-s", "results/a/b", "all", "./results/lstm/train.nsys/osrt_sum.csv"], "results"))
    [('./results/lstm/train.nsys/osrt_sum.csv', 'lstm', 'train.nsys')]
    """
    for before, word in zip(["", *words], words, strict=False):
        path = word.removeprefix("./")
        parts = path.removeprefix(f"{results}/").split("/")
        if before not in FILE_OPTIONS and path.startswith(f"{results}/") and len(parts) > 1 and parts[0] not in SHARED:
            yield word, parts[0], parts[1]


def _check_peaks(words: Sequence[str], results: str) -> None:
    """Check that the file of a GPU's peaks has a valid name."""
    folder = f"{results}/peaks/"
    for before, word in zip(["", *words], words, strict=False):
        path = word.removeprefix("./")
        if before in FILE_OPTIONS or not path.startswith(folder):
            continue
        name = path.removeprefix(folder).removesuffix(".json").removesuffix(".csv")
        if not schema.is_name(name):
            raise ConfigError(f"target '{word}': the gpu {name!r} bears no name: {schema.describe_form()}")


def _check_model(where: str, folder: str, config: Config) -> None:
    """Check that a folder is named after a model and, after an `@`, variants; where: the target, for the message."""
    name, variant = settings.split_variant(folder)
    unusable = configuration.explain_unusable_models(config)
    if name in unusable:
        raise ConfigError(f"{where}: {unusable[name]}")
    _check_part(f"{where}: unknown model", name, configuration.list_models(config))
    if (unknown := variant_settings.find_unknown(variant, config["variants"])) is not None:
        _check_part(f"{where}: unknown variant", unknown, config["variants"])


def _check_part(what: str, part: str, known: Sequence[str] | Mapping[str, Any]) -> None:
    if part not in known:
        raise ConfigError(f"{what} '{part}'; {suggest_nearest(part, known)}")
