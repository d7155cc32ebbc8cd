"""Names of the NVTX domain, the window and the ranges, for those who open them and those who look for them."""

DOMAIN = "profzoo"
WINDOW = "window"
STEP = "step"
PARTS = ("data", "transfer", "forward", "loss", "backward", "optimizer")
# Of a training step that was captured in a CUDA graph, what replays it: all parts but data and transfer. In inference
# the forward pass is all of it, and keeps its range.
GRAPH = "graph"
# What of a step is in none of its parts, as tables and figures call it.
REST = "other"
# The ranges that launches are in; they follow one another.
LAUNCHING = (*PARTS, GRAPH)
# Ranges of modules are called `module:PATH:TYPE`, which no part of a step is.
MODULE = "module"
# Paths of what has none of its own: the network, those that training alone needs, and what torch.compile made of one.
ROOT, OTHERS, COMPILED = "(root)", "(others)", "(compiled)"


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
