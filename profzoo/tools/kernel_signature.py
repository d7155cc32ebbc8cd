"""Splits a kernel's name into the function with its namespaces and its template arguments, without parameters."""

import re
from functools import cache

# Parts of a path that say nothing: how tools and compilers write the namespace without a name.
UNNAMED = re.compile(r"\(anonymous namespace\)|<unnamed>")
HIDDEN = re.compile(r"_GLOBAL__N_|_INTERNAL_")
MANGLED = "_Z"
LENGTH = re.compile(r"\d+")
# Numbers in a mangled name that are not lengths: values, and what stands for a name that was there before.
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


# Declares which kernels exchange data with other GPUs and wait for them, for tables and for ncu.

# A kernel communicates if one of these occurs in its function's path or in its mangled name. Python and ncu both match
# them, so they have no groups, flags, look-behind or colons, which ncu's syntax may not support.
WORDS = {
    "nccl": "NCCL, RCCL and kernels that torch writes with NCCL's device functions",
    "mscclKernel": "MSCCL, within RCCL",
    "mscclpp": "MSCCL++",
    "nvshmem": "NVSHMEM",
    "on_stream_kernel": "NVSHMEM's collectives on a stream",
    "[Aa]ll_?[Rr]educe": "torch's symmetric memory, TensorRT-LLM, FlashInfer, vLLM, SGLang, FBGEMM",
    "[Aa]ll_?[Gg]ather": "the same libraries",
    "[Rr]educe_?[Ss]catter": "the same libraries",
    "[Aa]ll_?[Tt]o_?[Aa]ll": "the same libraries",
    "exchangeSplitAndOffset": "torch's exchange of rows by NVSHMEM, before the rows",
    "_a2a_kernel": "FlashInfer's exchange for attention over several GPUs",
    "A2ADispatch": "TensorRT-LLM's exchange of experts' rows",
    "A2ACombine": "the way back",
    "cross_device_reduce": "vLLM's and SGLang's reduction through peers' memory",
    "multimem": "reductions and stores by the switch",
    "[Ll]amport": "TensorRT-LLM's and FlashInfer's, which poll until the data are there",
    "userbuffers": "TransformerEngine",
    "wait_until_on_stream": "the same, by NVSHMEM",
    "deep_ep": "DeepEP, layouts of what it sends included",
    "hybrid_ep": "DeepEP's other branch",
    "push_pull_halos": "apex, between neighbours of a split image",
    "barrier_kernel": "torch's symmetric memory",
    "put_signal": "the same",
    "wait_signal": "the same",
}
# Functions whose bare names do not show that they communicate; ncu matches these names if it knows no namespace.
FUNCTIONS = (
    "dispatch", "combine", "notify_dispatch", "cached_notify", "cached_notify_dispatch", "cached_notify_combine",
    "barrier", "clean_low_latency_buffer", "dispatch_impl", "combine_impl", "hybrid_dispatch_impl",
    "hybrid_combine_impl", "executionKernel",
)  # fmt: skip
# Kernels that Inductor generates compute, whatever operators they are named after.
GENERATED = re.compile(r"triton_(?:poi|per|red|tem|for|mix)_")
# ncu's expression for kernels that it may replay. A replayed communication kernel would wait forever for its peers,
# which run only once.
REPLAYED = "^" + "".join(f"(?!.*{word})" for word in WORDS) + "".join(f"(?!{name}$)" for name in FUNCTIONS)
_AND, _END = "(?=.*(", "))"
_ANY = re.compile("|".join(WORDS))


@cache
def communicates(kernel: str) -> bool:
    """Return whether a kernel exchanges data with other GPUs; kernel: its name from nsys, ncu or torch.profiler.

    >>> communicates("void deep_ep::intranode::combine<__nv_bfloat16, (int)8>(T1 *)"), communicates("reduce_kernel")
    (True, False)
    """
    if GENERATED.match(kernel):
        return False
    return _ANY.search(kernel if kernel.startswith(MANGLED) else function_path(kernel)) is not None


def exclusion_expression(own: str | None) -> str:
    """Return the regular expression for ncu that matches kernels that do not communicate and that `own` matches.

    >>> pairs = (("gemm", "sgemm_nn"), (None, "ncclDevKernel_AllReduce"))
    >>> tuple(bool(re.search(exclusion_expression(own), name)) for own, name in pairs)
    (True, False)
    """
    return f"{REPLAYED}{_AND}{own}{_END}" if own else REPLAYED


def user_expression(expression: str) -> str | None:
    """Return the user's part of an expression of `exclusion_expression`, or all of any other; None without one.

    >>> tuple(map(user_expression, (exclusion_expression("gemm"), "gemm", exclusion_expression(None))))
    ('gemm', 'gemm', None)
    """
    return expression.removeprefix(REPLAYED).removeprefix(_AND).removesuffix(_END) or None
