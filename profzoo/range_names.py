"""Names of the NVTX domain, the window and the ranges, for those who open them and those who look for them."""

import re
from urllib.parse import quote, unquote

DOMAIN = "profzoo"
WINDOW = "window"
STEP = "step"
PARTS = ("data", "transfer", "forward", "loss", "backward", "optimizer")
# Of a training step that was captured in a CUDA graph, what replays it: all parts but data and transfer. In inference
# the forward pass is all of it, and keeps its range.
GRAPH = "graph"
# The ranges that launches are in; they follow one another.
LAUNCHING = (*PARTS, GRAPH)
# Ranges of modules are called `module:PATH:TYPE`, which no part of a step is.
MODULE = "module"
# Paths of what has none of its own: the network, those that training alone needs, and what torch.compile made of one.
ROOT, OTHERS, COMPILED = "(root)", "(others)", "(compiled)"
# What torch.profiler would change, or leave such that its trace is no JSON; and what stands for it.
CHANGED = re.compile(r'[^ -~]|["\\%]')


def kept(name: str) -> str:
    """A name as torch.profiler leaves it, which replaces backslashes, and all of a name that is no ASCII.

    >>> kept("module:layer3.0:Conv2d"), kept('a"b'), kept("Größe")
    ('module:layer3.0:Conv2d', 'a%22b', 'Gr%C3%B6%C3%9Fe')
    """
    return CHANGED.sub(lambda found: quote(found[0], safe=""), name)


def given(name: str) -> str:
    """What a kept name stands for.

    >>> given(kept("100 %: Größe"))
    '100 %: Größe'
    """
    return unquote(name)


def of_module(path: str, kind: str) -> str:
    """The name of a module's range.

    >>> of_module("layer3.0.conv2", "Conv2d")
    'module:layer3.0.conv2:Conv2d'
    """
    return f"{MODULE}:{path}:{kind}"


def module_of(name: str) -> tuple[str, str]:
    """Path and type of a module by the name of its range.

    >>> module_of("module:layer3.0.conv2:Conv2d")
    ('layer3.0.conv2', 'Conv2d')
    """
    path, _, kind = name.removeprefix(f"{MODULE}:").rpartition(":")
    return path, kind
