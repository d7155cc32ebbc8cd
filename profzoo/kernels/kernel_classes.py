"""Puts GPU kernels into classes (gemm, convolution, ...) by the readable rules of kernel_classes.yaml."""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo.errors import ConfigError, suggest_nearest
from profzoo.io import strict_yaml
from profzoo.json_types import JsonObject
from profzoo.kernels.demangle import demangle
from profzoo.tools.communication_kernels import communicates
from profzoo.tools.kernel_signature import function_path, template_arguments

FILES = ("kernel_classes.yaml",)
RULES_FILE = Path(__file__).with_name(FILES[0])
OTHER, COMMUNICATION = "other", "communication"
# Keys that a rule may have.
KEYS = {"class", "match", "why", "arguments"}


@dataclass(frozen=True)
class Rule:
    """A class for functions whose path matches an expression, and rules for their template arguments."""

    name: str
    expression: re.Pattern[str]
    arguments: tuple["Rule", ...] = ()

    def decides(self, path: str, arguments: str) -> str | None:
        """Return the class of a function with these template arguments; None if the rule does not apply."""
        if not self.expression.search(path):
            return None
        return next((rule.name for rule in self.arguments if rule.expression.search(arguments)), self.name)


def parse_rules(content: JsonObject) -> tuple[Rule, ...]:
    """Return the rules of a parsed kernel_classes.yaml, in order.

    Raises:
        ConfigError: a rule names a class that is not listed, gives no reason, or is no regular expression.
    """
    return _parsed(content["rules"], content["classes"])


def _parsed(rules: Sequence[JsonObject], classes: Mapping[str, str]) -> tuple[Rule, ...]:
    found = []
    for rule in rules:
        name, match = rule["class"], rule["match"]
        if name not in classes:
            raise ConfigError(f"kernel class '{name}' of rule {match!r}: {suggest_nearest(name, classes)}")
        if not rule.get("why"):
            raise ConfigError(f"the rule {match!r} of kernel class '{name}' does not say why")
        if unknown := sorted(set(rule) - KEYS):
            raise ConfigError(
                f"the rule {match!r} of kernel class '{name}' holds {unknown[0]}: {suggest_nearest(unknown[0], KEYS)}"
            )
        try:
            expression = re.compile(match)
        except re.error as error:
            raise ConfigError(
                f"the rule {match!r} of kernel class '{name}' is no regular expression: {error}"
            ) from error
        found.append(Rule(name, expression, _parsed(rule.get("arguments", ()), classes)))
    return tuple(found)


@functools.cache
def read_rules_file() -> dict[str, Any]:
    """Return the file of rules: `classes`, each with a description, and `rules`."""
    return strict_yaml.load_yaml(RULES_FILE)


@functools.cache
def _rules() -> tuple[Rule, ...]:
    return parse_rules(read_rules_file())


@functools.cache
def classify(kernel: str) -> str:
    """Return the class of a kernel by its name, as nsys, ncu or torch.profiler gives it, or mangled.

    The function decides. If a template argument determines what the function does, that argument decides. The
    parameters of the function do not count.

    >>> classify("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(T1::Params)")
    'gemm'
    >>> classify("void split_embedding_backward_codegen_kernel<float>(at::PhiloxCudaState)")
    'embedding'
    """
    if communicates(kernel):
        return COMMUNICATION
    plain = demangle(kernel)
    path, arguments = function_path(plain), template_arguments(plain)
    return next((found for rule in _rules() if (found := rule.decides(path, arguments))), OTHER)


def classify_all(kernels: Iterable[str]) -> dict[str, str]:
    """Return the class of each kernel by its name."""
    return {kernel: classify(kernel) for kernel in kernels}
