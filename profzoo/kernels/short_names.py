"""Shortens kernel names so that they say what the kernel does, and stay distinct within a table."""

import re
from collections.abc import Collection, Iterable

from profzoo.tools.kernel_signature import UNNAMED
from profzoo.tools.ncu.raw_page import function_name

LONGEST = 48
# Parts of a library's name for a matrix product or convolution, in order of precedence.
OPERATIONS = (
    (r"wgrad", "wgrad"), (r"dgrad", "dgrad"), (r"fprop", "fprop"), (r"[shi]\d+gemm|[sdhc]?gemm", r"\g<0>"),
    (r"gemv", "gemv"), (r"conv\w*?(?=_)", "conv"), (r"nvjet", "gemm"),
)  # fmt: skip
TYPES = re.compile(r"(?<![a-z0-9])(c?(?:f16|f32|f64|tf32|bf16|s8|e4m3|e5m2))(?=(?:c?f16|c?f32|c?f64|tf32|bf16|_|\b))")
LAYOUT = re.compile(r"_(nn|nt|tn|tt|nhwc|nchw)(?=_|\b)")
TILE = re.compile(r"(?:tilesize|_)(\d+x\d+)(?=x\d+|_)")
SPLIT = re.compile(r"split_?k", re.IGNORECASE)
LIBRARY = re.compile(r"^(?:sm\d+_|cutlass|ampere_|volta_|turing_|hopper_|maxwell_|nvjet)")
KERNEL_OF_CUTLASS = re.compile(r"Kernel2?<\s*(cutlass_\w+)")
FOREACH = {
    ("PointwiseOp", "multiplies"): "addcmul", ("PointwiseOp", "divides"): "addcdiv", ("BinaryOp", "multiplies"): "mul",
    ("BinaryOp", "divides"): "div", ("BinaryOp", "plus"): "add", ("BinaryOp", "minus"): "sub",
}  # fmt: skip
# Kernels that many operators share; then names that do not say what a kernel does.
SHARED = {"vectorized_elementwise_kernel": "elementwise", "unrolled_elementwise_kernel": "elementwise unrolled",
          "elementwise_kernel": "elementwise strided", "reduce_kernel": "reduce", "index_elementwise_kernel": "index",
          "elementwise_kernel_with_index": "elementwise", "CatArrayBatchedCopy_vectorized": "cat",
          "CatArrayBatchedCopy": "cat", "distribution_elementwise_grid_stride_kernel": "random"}  # fmt: skip
NOTHING = {"BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor", "UnaryFunctor", "ReduceOp", "func_wrapper_t",
           "gpu_kernel_impl_nocast", "gpu_kernel_impl", "TensorIteratorBase", "TensorIterator", "Tensor", "array",
           "OffsetCalculator", "TrivialOffsetCalculator", "LoadWithCast", "StoreWithCast", "LoadWithoutCast",
           "StoreWithoutCast", "function_traits", "Scalar", "lambda", "instance", "operator", "const",
           "void"}  # fmt: skip
# Casts in template arguments, as nsys prints them.
CASTS = re.compile(r"\([\w ]+\)(?=-?\d)")
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
CPP_TYPES = {"float": "f32", "double": "f64", "Half": "f16", "BFloat16": "bf16", "long": "i64", "int": "i32",
             "bool": "bool", "unsigned char": "u8"}  # fmt: skip
ENDINGS = re.compile(
    r"(?:_kernel_impl|_kernel_cuda|CUDAKernelImpl|_cuda_out|_kernel|_functor|Functor|KernelImpl|Impl|Ops)$"
)


def shorten_names(kernels: Collection[str]) -> dict[str, str]:
    """Return the short name of each kernel by its demangled name; short names are distinct.

    They have at most LONGEST characters.

    >>> shorten_names(["void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(T1::Params)"]).values()
    dict_values(['cutlass sgemm 128x32 nn'])
    """
    found: dict[str, list[str]] = {}
    for kernel in dict.fromkeys(kernels):
        found.setdefault(_short(kernel)[:LONGEST].rstrip(), []).append(kernel)
    names: dict[str, str] = {}
    for short, alike in found.items():
        told = [short] if len(alike) == 1 else _told_apart(short, alike)
        names |= dict(zip(alike, told, strict=True))
    return {kernel: names[kernel] for kernel in dict.fromkeys(kernels)}


def _short(kernel: str) -> str:
    """Return a name that says what the kernel does, which other kernels may have too."""
    kernel = CASTS.sub("", kernel)
    if "::" in kernel and not re.search(r"[<(]", kernel):
        # The name of an operator.
        return kernel
    inner = KERNEL_OF_CUTLASS.search(kernel)
    name = inner[1] if inner else function_name(kernel)
    if LIBRARY.match(name):
        return _of_library(name)
    if name == "multi_tensor_apply_kernel":
        return f"foreach {_foreach(kernel)}"
    if name in SHARED:
        return f"{SHARED[name]} {_functor(kernel, name)}".strip()
    return re.sub(r"_kernel$", "", name)


def _of_library(name: str) -> str:
    """Return library or generation, operation, types, tile and layout, as far as the name holds them."""
    first = "cutlass" if name.startswith("cutlass") else ""
    operation = next((found.expand(put) for form, put in OPERATIONS if (found := re.search(form, name))), "")
    # Results and accumulators are nearly always f32, so any other type is the type of the factors.
    types = list(dict.fromkeys(TYPES.findall(name)))
    narrow = [kind for kind in types if kind not in ("f32", "f64")] or types[:1]
    tile, layout = TILE.search(name), LAYOUT.search(name)
    parts = [first, operation, *narrow[:1], tile[1] if tile else "", layout[1] if layout else ""]
    return " ".join(part for part in [*parts, "split-k" if SPLIT.search(name) else ""] if part) or name


def _foreach(kernel: str) -> str:
    arity = re.search(r"(\w+?Op)(?:List|Scalar|Functor)\w*", kernel)
    done = re.search(r"std::(multiplies|divides|plus|minus)", kernel)
    if arity and done and (arity[1], done[1]) in FOREACH:
        return FOREACH[arity[1], done[1]]
    named = re.findall(r"(?:native|<unnamed>|at)::(\w+?)(?:Functor)?<", kernel)
    last = next((one for one in reversed(named) if not re.search(r"Op|Metadata|multi_tensor", one)), "")
    return last.lower() or (arity[1] if arity else "")


def _functor(kernel: str, function: str) -> str:
    """Return the operation of a generic kernel, with its element type."""
    inside = kernel[kernel.find(function) + len(function) :]
    inside = inside.replace("(anonymous namespace)", "<unnamed>")
    done = ""
    for name in re.findall(r"[A-Za-z_]\w*", inside):
        stem = ENDINGS.sub("", name)
        if (ENDINGS.search(name) and name not in NOTHING) or name.startswith(("CUDAFunctor", "launch_")):
            done = re.sub(r"^(?:CUDAFunctor(?:OnSelf|OnOther)?_|launch_|direct_)", "", stem or name)
            if name not in NOTHING and done not in ("binary_internal", ""):
                break
    kinds = [CPP_TYPES[one] for one in re.findall(r"unsigned char|[A-Za-z]\w*", inside) if one in CPP_TYPES]
    # A floating-point type is the type of the elements; integers are often indices, and bool a mask.
    kind = next((one for one in kinds if "f" in one), next(iter(kinds), ""))
    return f"{CAMEL.sub('_', done).lower()} {kind}".strip()


def _told_apart(short: str, alike: list[str]) -> list[str]:
    """Return distinct names for kernels whose short names are equal, from words that differ in their full names."""
    # A namespace without a name tells nobody anything.
    words = [re.findall(r"[A-Za-z0-9]+", CASTS.sub("", UNNAMED.sub("", kernel))) for kernel in alike]
    common = set(words[0]).intersection(*words)
    for take in (1, 2, 3):
        own = [" ".join(_first(word for word in one if word not in common)[:take]) for one in words]
        full = [f"{short[: LONGEST - len(detail) - 1].rstrip()} {detail}".strip() for detail in own]
        if len(set(full)) == len(full) and all(len(name) <= LONGEST for name in full):
            return full
    places = {kernel: place for place, kernel in enumerate(sorted(alike), 1)}
    return [f"{short[: LONGEST - 5].rstrip()} #{places[kernel]}" for kernel in alike]


def _first(words: Iterable[str]) -> list[str]:
    """Return each word once, in order."""
    return list(dict.fromkeys(words))
