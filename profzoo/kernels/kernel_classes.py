"""Puts GPU kernels into classes (gemm, convolution, ...) by operator and name, by rules of kernel_classes.yaml."""

import ctypes
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from profzoo.errors import ConfigError, suggest_nearest
from profzoo.io import strict_yaml
from profzoo.json_types import JsonObject
from profzoo.tools.kernel_signature import communicates, function_path, template_arguments

# Demangles kernel names with the C++ library, as torch.profiler does.

LIBRARY = "libstdc++.so.6"


@cache
def _library() -> tuple[ctypes.CDLL, ctypes.CDLL] | None:
    """Load the C++ library and the C library; None if one is missing."""
    try:
        own, c = ctypes.CDLL(LIBRARY), ctypes.CDLL(None)
        own.__cxa_demangle.restype = ctypes.c_void_p
        c.free.argtypes = [ctypes.c_void_p]
    except (OSError, AttributeError):
        return None
    return own, c


def can_demangle() -> bool:
    """Return whether this machine has the C++ library that demangles names."""
    return _library() is not None


def demangle(name: str) -> str:
    """Return the name as in the source; a name that is not mangled stays as it is.

    >>> demangle("_ZN2at6native4copyIfEEvPT_"), demangle("sm80_xmma_gemm")
    ('void at::native::copy<float>(float*)', 'sm80_xmma_gemm')
    """
    libraries = _library()
    # The library takes any other name for a type: "i" becomes "int".
    if libraries is None or not name.startswith("_Z"):
        return name
    own, c = libraries
    status = ctypes.c_int()
    text = own.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not text:
        return name
    try:
        return ctypes.string_at(text).decode()
    finally:
        c.free(text)


FILES = ("kernel_classes.yaml",)
RULES_FILE = Path(__file__).with_name(FILES[0])
OTHER, COMMUNICATION = "other", "communication"
# Keys that a rule may have; the last one only where it is about operators.
KEYS = {"class", "match", "why", "arguments", "instead_of"}


@dataclass(frozen=True)
class Rule:
    """A class for functions whose path matches an expression, and rules for their template arguments.

    A rule about operators matches their names, and counts where the class by the kernel's name is in `instead_of`.
    """

    name: str
    expression: re.Pattern[str]
    arguments: tuple["Rule", ...] = ()
    instead_of: tuple[str, ...] = ()

    def decides(self, path: str, arguments: str) -> str | None:
        """Return the class of a function with these template arguments; None if the rule does not apply."""
        if not self.expression.search(path):
            return None
        return next((rule.name for rule in self.arguments if rule.expression.search(arguments)), self.name)


def parse_rules(content: JsonObject, about: str = "rules") -> tuple[Rule, ...]:
    """Return the rules about names, or about `operators`, of a parsed kernel_classes.yaml, in order.

    Raises:
        ConfigError: a rule names a class that is not listed, gives no reason, or is not a regular expression.
    """
    return _parsed(content[about], content["classes"])


def _parsed(rules: Sequence[JsonObject], classes: Mapping[str, str]) -> tuple[Rule, ...]:
    found = []
    for rule in rules:
        name, match, instead_of = rule["class"], rule["match"], tuple(rule.get("instead_of", ()))
        for known in (name, *instead_of):
            if known not in classes:
                raise ConfigError(f"kernel class '{known}' of rule {match!r}: {suggest_nearest(known, classes)}")
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
                f"the rule {match!r} of kernel class '{name}' is not a regular expression: {error}"
            ) from error
        found.append(Rule(name, expression, _parsed(rule.get("arguments", ()), classes), instead_of))
    return tuple(found)


@cache
def read_rules_file() -> dict[str, Any]:
    """Return the file of rules: `classes`, each with a description, `operators` and `rules`."""
    return strict_yaml.load_yaml(RULES_FILE)


@cache
def _rules(about: str) -> tuple[Rule, ...]:
    return parse_rules(read_rules_file(), about)


@cache
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
    return next((found for rule in _rules("rules") if (found := rule.decides(path, arguments))), OTHER)


@cache
def classify_launched(kernel: str, operator: str) -> str:
    """Return the class of a kernel by the operator that launched it (empty if unknown), and then by its name.

    >>> product = "sm80_xmma_gemm_f16f16_f16f32_f32_nt_n"
    >>> classify_launched(product, "aten::cudnn_convolution"), classify_launched(product, "")
    ('convolution', 'gemm')
    """
    known = classify(kernel)
    rules = _rules("operators") if operator else ()
    return next((rule.name for rule in rules if known in rule.instead_of and rule.expression.search(operator)), known)


def classify_all(kernels: Iterable[str], operators: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the class of each kernel by its name; operators: of kernels whose operator is known, that operator."""
    known = operators or {}
    return {kernel: classify_launched(kernel, known.get(kernel, "")) for kernel in kernels}
