"""Declares which kernels exchange data with other GPUs and wait for them, for tables and for ncu."""

import re
from functools import cache

from profzoo.tools.kernel_signature import MANGLED, function_path

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
