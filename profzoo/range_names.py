"""Names of the NVTX domain, the window and the ranges, shared by writers and readers of reports.

A program that is profiled may open ranges `step` or `backward` of its own, and a report does not always tell domains
apart: nsys names a domain only where it was created after the trace began. So ranges go by names of their own in what
profilers write, and by the plain ones here and in every table.
"""

import itertools
import re
from collections.abc import Sequence
from urllib.parse import quote, unquote

DOMAIN = "profzoo"
# What NVTX names begin with: letters that every option of ncu and nsys takes as they are.
PREFIX = f"{DOMAIN}_"
WINDOW = "window"
STEP = "step"
# The phase of what was made elsewhere.
IMPORTED = "imported"
PARTS = ("data", "transfer", "forward", "loss", "backward", "optimizer")
# Of a training step that was captured in a CUDA graph, what replays it: all parts but data and transfer. In inference
# the forward pass is all of it, and keeps its range.
GRAPH = "graph"
# Within the forward pass of a network that generates tokens: up to the first token, and from there on.
GENERATING = PREFILL, DECODE = "prefill", "decode"
# Names of the forward pass in tables by range or direction.
FORWARD = ("forward", *GENERATING)
# What of a step is in none of its parts, as tables and figures call it.
REST = "other"
# The ranges that launches are in; they follow one another, but for those of generating. These are within `forward`,
# which launches nothing behind them: whoever takes the range that was opened last is right.
LAUNCHING = (*PARTS, GRAPH, *GENERATING)
# Ranges of modules are called `module:PATH:TYPE`, which no part of a step is.
MODULE = "module"
# Key by which a trace of torch.profiler holds the lines of each class's `forward`.
SOURCES = f"{DOMAIN}_sources"
# And that by which it holds what torch.compile made kernels of; and what a trace calls the run of a compiled graph.
COMPILED_KERNELS, GRAPH_CALL = f"{DOMAIN}_compiled", "## Call CompiledFxGraph "
# Paths of what has none of its own: the network, those that training alone needs, and what torch.compile made of one.
ROOT, OTHERS, COMPILED = "(root)", "(others)", "(compiled)"
# The root of all paths. Below it are the network, other networks, and work outside of networks.
WHOLE_STEP = "(step)"
# What torch.profiler would change, or leave such that its trace is not JSON; and what stands for it.
CHANGED = re.compile(r'[^ -~]|["\\%]')


def sanitised_name(name: str) -> str:
    """Encode a name as torch.profiler writes it, which replaces backslashes and non-ASCII names.

    >>> sanitised_name("module:layer3.0:Conv2d"), sanitised_name('a"b'), sanitised_name("Größe")
    ('module:layer3.0:Conv2d', 'a%22b', 'Gr%C3%B6%C3%9Fe')
    """
    return CHANGED.sub(lambda found: quote(found[0], safe=""), name)


def original_name(name: str) -> str:
    """Decode a name that `sanitised_name` encoded.

    >>> original_name(sanitised_name("100 %: Größe"))
    '100 %: Größe'
    """
    return unquote(name)


def make_nvtx_name(name: str) -> str:
    """Name of a range in NVTX.

    >>> make_nvtx_name("step")
    'profzoo_step'
    """
    return f"{PREFIX}{name}"


def make_torch_name(name: str) -> str:
    """Name of a range in torch.profiler.

    >>> make_torch_name("step")
    'profzoo:step'
    """
    return f"{DOMAIN}:{name}"


def module_range_name(path: str, kind: str) -> str:
    """Name of a module's range.

    >>> module_range_name("layer3.0.conv2", "Conv2d")
    'module:layer3.0.conv2:Conv2d'
    """
    return f"{MODULE}:{path}:{kind}"


def parse_module_range(name: str) -> tuple[str, str]:
    """Parse path and type of a module from the name of its range.

    >>> parse_module_range("module:layer3.0.conv2:Conv2d")
    ('layer3.0.conv2', 'Conv2d')
    """
    path, _, kind = name.removeprefix(f"{MODULE}:").rpartition(":")
    return path, kind


def common_path(modules: Sequence[str]) -> str:
    """Return the path of the innermost module that holds all of some modules of one network.

    >>> common_path(["blocks.0.fc", "blocks.0.norm"]), common_path(["head", "blocks.0"])
    ('blocks.0', '(root)')
    """
    parts = zip(*(name.split(".") for name in modules), strict=False)
    return ".".join(same[0] for same in itertools.takewhile(lambda part: len(set(part)) == 1, parts)) or ROOT


def parent_module(module: str) -> str:
    """Return the module that holds a module; empty for the root.

    >>> [parent_module(one) for one in ("layer1.0.conv2", "layer1", "(root)", "(loss)", "(compiled)", "(step)")]
    ['layer1.0', '(root)', '(step)', '(step)', '(root)', '']
    """
    if module == WHOLE_STEP:
        return ""
    before, point, _ = module.rpartition(".")
    if point:
        return before
    return WHOLE_STEP if module.startswith("(") and module != COMPILED else ROOT


def path_to(module: str) -> list[str]:
    """Return all modules that hold a module, from the root on, and itself.

    >>> path_to("layer1.0")
    ['(step)', '(root)', 'layer1', 'layer1.0']
    """
    return [*(path_to(parent_module(module)) if parent_module(module) else []), module]
