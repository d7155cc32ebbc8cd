"""Explain target files that no rule makes: the wrong part of the name, and the nearest valid one."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from profzoo import schema, tools
from profzoo.cell import data_files, settings, variant_settings
from profzoo.cell.config_types import Config
from profzoo.config import configuration
from profzoo.errors import ConfigError, suggest_nearest
from profzoo.range_names import IMPORTED

# Options of snakemake whose next word is a file or folder.
FILE_OPTIONS = {"--report", "-d", "--directory", "--configfile", "--configfiles", "-s", "--snakefile"}
# Folders under results/ that belong to no single model.
SHARED = {"tables", "figures", "peaks", "logs", "benchmarks"}
# Parts of file names after the phase, besides the parts that tools declare.
FILE_ENDINGS = ("csv", "json", "svg", "png")
WEIGHTS = "weights.pt"
# What follows the name of the GPU in the file of the links between several.
LINKS = re.compile(r"\.links\.\d+x\d+$")


def check_targets(words: Sequence[str], results: str, config: Config) -> None:
    """Check that model, phase, tool and section set of each target file under results/ exist.

    words: snakemake's command line. Files that are no targets, such as the file after --report, are skipped.

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
            raise ConfigError(f"target '{word}': {name!r} is no valid name of a GPU: {schema.describe_form()}")


def _check_model(where: str, folder: str, config: Config) -> None:
    """Check the name of a folder: a model, and variants after an `@` if there are any.

    where: the target, for the message.

    Raises:
        ConfigError: the model is unknown or unusable, or a variant is unknown.
    """
    name, variant = settings.split_variant(folder)
    unusable = configuration.explain_unusable_models(config)
    if name in unusable:
        raise ConfigError(f"{where}: {unusable[name]}")
    _check_part(f"{where}: unknown model", name, [*configuration.list_models(config), *config["imported"]])
    if (unknown := variant_settings.find_unknown(variant, config["variants"])) is not None:
        _check_part(f"{where}: unknown variant", unknown, config["variants"])


def _check_part(what: str, part: str, known: Sequence[str] | Mapping[str, Any]) -> None:
    if part not in known:
        raise ConfigError(f"{what} '{part}'; {suggest_nearest(part, known)}")
