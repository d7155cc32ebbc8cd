"""Puts GPU kernels into classes (gemm, convolution, ...) by the readable rules of kernel_classes.yaml."""

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from profzoo.errors import ConfigError, suggest

FILES = ("kernel_classes.yaml",)
RULES_FILE = Path(__file__).with_name(FILES[0])
OTHER = "other"
Rules = tuple[tuple[str, re.Pattern[str]], ...]


def parsed(content: Mapping[str, Any]) -> Rules:
    """Class and expression of each rule, in order.

    Raises:
        ConfigError: a rule names a class that is not listed, gives no reason, or is no regular expression.
    """
    rules = []
    for rule in content["rules"]:
        name, match = rule["class"], rule["match"]
        if name not in content["classes"]:
            raise ConfigError(f"kernel class '{name}' of rule {match!r}: {suggest(name, content['classes'])}")
        if not rule.get("why"):
            raise ConfigError(f"the rule {match!r} of kernel class '{name}' does not say why")
        try:
            rules.append((name, re.compile(match)))
        except re.error as error:
            raise ConfigError(
                f"the rule {match!r} of kernel class '{name}' is no regular expression: {error}"
            ) from error
    return tuple(rules)


@functools.cache
def content() -> dict[str, Any]:
    """The file of the rules: `classes`, each with what it holds, and `rules`."""
    return yaml.safe_load(RULES_FILE.read_text(encoding="utf-8"))


@functools.cache
def _rules() -> Rules:
    return parsed(content())


@functools.cache
def classify(kernel: str) -> str:
    """The class of a kernel by its name, as nsys, ncu or torch.profiler gives it.

    >>> classify("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(T1::Params)")
    'gemm'
    """
    return next((name for name, expression in _rules() if expression.search(kernel)), OTHER)


def classify_all(kernels: Iterable[str]) -> dict[str, str]:
    """The class of each kernel by its name."""
    return {kernel: classify(kernel) for kernel in kernels}
