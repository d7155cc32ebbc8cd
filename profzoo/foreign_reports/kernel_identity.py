"""Matches names of kernels of several tools: mangled, demangled by NVIDIA or by libstdc++, or the function alone."""

import re
from collections.abc import Iterable, Mapping

from profzoo.kernels.demangle import demangle
from profzoo.tools.kernel_signature import function_path, template_arguments
from profzoo.tools.ncu.raw_page import function_name

# Casts that NVIDIA's demangler writes before numbers, and suffixes of libstdc++'s.
CASTS = re.compile(r"\((?:bool|(?:signed |unsigned )?(?:char|short|int|long))\)(?=-?\d)")
SUFFIXES = re.compile(r"(?<=\d)(?:ul|u|l)\b")


def match_names(printed: Iterable[str], traced: Mapping[str, str]) -> dict[str, str]:
    """Return, by name as printed, the name that a trace knows the kernel by; names without a match are left out.

    traced: by the trace's own identity of a kernel (its mangled name, where it has one), its demangled name.
    """
    exact = {shown: own for own, shown in traced.items()} | {own: own for own in traced}
    plain: dict[str, set[str]] = {}
    functions: dict[str, set[str]] = {}
    for own, shown in traced.items():
        plain.setdefault(plain_name(shown), set()).add(own)
        functions.setdefault(function_name(shown), set()).add(own)
    found = {}
    for name in dict.fromkeys(printed):
        alike = plain.get(plain_name(name)) or (functions.get(name) if function_name(name) == name else None) or set()
        if name in exact:
            found[name] = exact[name]
        elif len(alike) == 1:
            found[name] = next(iter(alike))
    return found


def plain_name(name: str) -> str:
    """Return the function and template arguments of a kernel, without what demanglers write differently.

    NVIDIA's writes types of numbers, ncu leaves out namespaces, and parameters stand as types or as `T1`.

    >>> plain_name("void at::native::<unnamed>::f<(int)4, (bool)0, c10::Half>(T1 *)")
    'f<4,0,Half>'
    >>> plain_name("void at::f<4, false, c10::Half>(c10::Half*)")
    'f<4,0,Half>'
    """
    text = SUFFIXES.sub("", CASTS.sub("", demangle(name)))
    text = re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", text))
    arguments = re.sub(r"(?:\w+|<unnamed>|\(anonymous namespace\))::", "", template_arguments(text))
    plain = "".join(arguments.split())
    return f"{function_path(text).rpartition('::')[2]}<{plain}>"
