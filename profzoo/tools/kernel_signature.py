"""Splits a kernel's name into the function with its namespaces and its template arguments, without parameters."""

import re
from functools import cache

# Parts of a path that say nothing: how tools and compilers write the namespace without a name.
UNNAMED = re.compile(r"\(anonymous namespace\)|<unnamed>")
HIDDEN = re.compile(r"_GLOBAL__N_|_INTERNAL_")
MANGLED = "_Z"
LENGTH = re.compile(r"\d+")
# Numbers in a mangled name that are no lengths: values, and what stands for a name that was there before.
NO_LENGTH = r"L[a-z]n?\d+E|[ST][0-9A-Z]*_"
LENGTHS = re.compile(rf"{NO_LENGTH}|(\d+)")
# Copies and fills, as the tools name them.
NO_FUNCTION = re.compile(r"\[|Mem(?:cpy|set)\b")
# What of nested names a mangled one may begin with, before the first length.
BEGINNING = re.compile(r"_ZL?N?K?(?:St|S[abs])?L?")
PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}


def function_path(kernel: str) -> str:
    """Return the function with its namespaces: no return type, template arguments or parameters.

    The name may be mangled, and a mangled name may be cut off.

    >>> function_path("void at::native::<unnamed>::softmax_warp_forward<float, (int)5>(T1 *)")
    'at::native::softmax_warp_forward'
    >>> function_path("_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalINS_1")
    'cutlass::device_kernel'
    """
    return _parts(kernel)[0]


def template_arguments(kernel: str) -> str:
    """Return the text between the angle brackets after the function, without parts in parentheses.

    For a mangled name, it is the names in everything after the function.

    >>> template_arguments("void at::add<4, at::copy(at::Tensor &)::[lambda() (instance 1)]>(int, T2)")
    '4, at::copy::lambda'
    """
    return _parts(kernel)[1]


@cache
def _parts(kernel: str) -> tuple[str, str]:
    if kernel.startswith(MANGLED):
        return _of_mangled(kernel)
    if NO_FUNCTION.match(kernel):
        return kernel, ""
    text = UNNAMED.sub("", kernel).replace("::::", "::")
    path, arguments, opened = "", "", -1
    closing: list[str] = []
    for place, character in enumerate(text):
        if closing and character == closing[-1]:
            closing.pop()
            if not closing and character == ">" and opened >= 0:
                arguments, opened = text[opened + 1 : place], -1
        elif character in PAIRS and not (closing and character == "<" and closing[-1] in ")]}"):
            if not closing and character == "(" and path.strip():
                break
            if not closing and character == "<":
                opened = place
            closing.append(PAIRS[character])
        elif not closing:
            # A return type ends here, with its own arguments.
            arguments = "" if character.isspace() else arguments
            path += character
    if opened >= 0:
        arguments = text[opened + 1 :]
    words = path.split()
    return (words[-1].strip(":") if words else "") or kernel, _without_parameters(arguments)


def _without_parameters(arguments: str) -> str:
    """Return template arguments without the parameters of functions that contain a lambda."""
    text = re.sub(r"[\[{]lambda.*?[\]}](?=::|,|>|\s|$)", "lambda", arguments)
    previous = ""
    while text != previous:
        previous, text = text, re.sub(r"\([^()]*\)", "", text)
    return text.split("(")[0] if text.count("(") else text


def _of_mangled(kernel: str) -> tuple[str, str]:
    """Return the function and all further names of a mangled name, found by the length before each name.

    This needs neither a demangler nor the end of the name.
    """
    begun = BEGINNING.match(kernel)
    place = begun.end() if begun else len(MANGLED)
    path, rest = [], []
    while (length := LENGTH.match(kernel, place)) is not None:
        place = length.end() + int(length[0])
        name = kernel[length.end() : place]
        path += [] if HIDDEN.match(name) else [name]
    while (found := LENGTHS.search(kernel, place)) is not None:
        place = found.end() + int(found[1] or 0)
        name = kernel[found.end() : place]
        rest += [name] if name and not HIDDEN.match(name) else []
    return "::".join(path) or kernel, "::".join(rest)
