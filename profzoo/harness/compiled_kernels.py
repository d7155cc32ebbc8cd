"""Notes what torch.compile makes each kernel of: operators, modules and source lines, for a trace to name them.

Inductor tells which nodes of a graph each of its kernels computes, if it is asked to (`provenance_tracking_level`). The
generated code is the same but for comments. A compiled graph from Inductor's cache tells nothing, so that graphs are
compiled anew; kernels still come from their cache.
"""

import functools
import importlib.util
import json
import math
import operator
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from profzoo.range_names import COMPILED_KERNELS, DOMAIN

COMPILER, DEBUG = "torch._inductor.compile_fx", "torch._inductor.debug"
REPLICATED = (DataParallel, DistributedDataParallel)
# Attributes in which wrapper modules hold the wrapped module.
WRAPPED = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module")
OPTIMIZED = "_orig_mod"
# How Dynamo writes where a module was found: in a variable of the compiled function, by attributes.
SOURCE = re.compile(r"(\w+\['[^']+'\])\.?(.*)")
ITEM = re.compile(r"\._modules\['([^']+)'\]|\[(\d+)\]")
FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in ')
PACKAGE = str(Path(torch.__file__).parent)
# Operators whose kernels are libraries' or templates of Inductor, and take nearly all of the time of what is fused.
PRODUCT = re.compile(r"mm$|conv|attention|linear|lstm|gru")
TEMPLATE, EXTERN = "triton_tem_", ("extern_kernels.", "torch.ops.", "aten.")
# A number behind the name tells calls of one kernel apart.
CALL = re.compile(r":\d+$")


class Place(NamedTuple):
    """A module as Dynamo names it: the variable through which it was found, and the path from there.

    The variable is empty for the compiled function itself.
    """

    variable: str
    path: str


FUNCTION = Place("", "")


@dataclass(frozen=True)
class Part:
    """What a kernel computes of one operator; elements: the most that one of its tensors has, as its share of work."""

    operator: str
    place: Place
    line: str
    elements: int


@dataclass
class Graph:
    """What a compiled graph consists of.

    Attributes:
        kernels: its calls of kernels in their order, by name, each with what it computes.
        types: class of each module in it.
        calls: how often the graph calls each module in a forward pass.
        seen: of each module, its identity, by which its path in the network is found.
        is_backward: whether it is of a backward pass.
    """

    kernels: list[tuple[str, list[Part]]]
    types: dict[Place, str] = field(default_factory=dict)
    calls: dict[Place, int] = field(default_factory=dict)
    seen: dict[Place, int] = field(default_factory=dict)
    is_backward: bool = False


# Of this process: compiled graphs by the name by which a trace calls them, and modules by identity.
_graphs: dict[str, Graph] = {}
_modules: dict[int, tuple[str, str]] = {}


def watch() -> None:
    """Note what is compiled from now on; older releases of Inductor do not tell, and nothing is noted."""
    if COMPILER in sys.modules:
        _attach(sys.modules[COMPILER])
    elif not any(isinstance(finder, _CompilerFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _CompilerFinder())


def note_network(network: nn.Module, prefix: str = "") -> None:
    """Note the paths of a network's modules, as their ranges have them; prefix: text before the paths."""
    _modules.update((id(module), (path, type(module).__name__)) for module, path in _paths(network, prefix))


def trace_metadata() -> tuple[str, str]:
    """Return the key and the JSON text by which a trace holds the noted graphs; empty if nothing was compiled."""
    return COMPILED_KERNELS, _written(len(_graphs), len(_modules))


@functools.lru_cache(maxsize=1)
def _written(graphs: int, modules: int) -> str:
    return json.dumps({name: _described(graph) for name, graph in _graphs.items()})


class _CompilerFinder(MetaPathFinder):
    """Finds Inductor as Python would, and attaches to it when its import has ended."""

    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        if fullname != COMPILER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(COMPILER)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_attach(module: ModuleType) -> None:
                load(module)
                with suppress(Exception):
                    _attach(module)

            spec.loader.exec_module = load_and_attach
        return spec


def _attach(compiler: Any) -> None:
    """Have Inductor tell of its kernels, and take no graph from its caches."""
    scheme = getattr(compiler, "_InProcessFxCompile", None)
    known = hasattr(compiler.config.trace, "provenance_tracking_level")
    if scheme is None or not known or getattr(scheme.codegen_and_compile, DOMAIN, False):
        return
    compiler.config.trace.provenance_tracking_level = 1
    compiler.config.fx_graph_cache = False
    setattr(importlib.import_module("torch._functorch.config"), "enable_autograd_cache", False)  # noqa: B010
    scheme.codegen_and_compile = _noting(scheme.codegen_and_compile)


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Inductor's compilation of a graph so that its kernels are noted."""

    @functools.wraps(original)
    def compile_graph(scheme: Any, graph: fx.GraphModule, *given: Any, **named: Any) -> Any:
        before, products = set(_kernel_nodes()), dict[tuple[str, ...], fx.Node]()
        # What is not known is left out: an error would end what the program does.
        with suppress(Exception):
            products = _products(graph)
        compiled = original(scheme, graph, *given, **named)
        with suppress(Exception):
            found = {name: nodes for name, nodes in _kernel_nodes().items() if name not in before}
            if compiled._fx_graph_cache_key is None and all(map(CALL.search, found)):
                name = f"{DOMAIN}_{len(_graphs)}"
                _graphs[name] = _read(graph, found, products)
                # By this a trace names the graph when it is called.
                compiled._fx_graph_cache_key = name
        return compiled

    setattr(compile_graph, DOMAIN, True)
    return compile_graph


def _kernel_nodes() -> Mapping[str, Sequence[str]]:
    """Return the names of the nodes of each kernel that Inductor has told of, in the order of the kernels' calls."""
    return sys.modules[DEBUG]._inductor_triton_kernel_to_post_grad_node_info


# Reads the nodes of a graph.


def _read(
    graph: fx.GraphModule, kernels: Mapping[str, Sequence[str]], products: Mapping[tuple[str, ...], fx.Node]
) -> Graph:
    """Return what a graph consists of; products: those of the graph before Inductor's own changes, by their factors."""
    found = Graph([])
    repeats = set[str]()
    places: dict[fx.Node, Place] = {}
    for node in graph.graph.nodes:
        stack = _stack(node) or _stack(products.get(_factors(node)))
        for key, (written, kind) in stack.items():
            place = _place(written)
            found.types[place] = getattr(kind, "__name__", str(kind).rpartition(".")[2])
            number, _, _ = str(key).partition("@")
            if number.isdigit():
                found.seen.setdefault(place, int(number))
            if "fwd_nn_module_stack" in node.meta:
                found.is_backward = True
            elif key not in repeats:
                repeats.add(key)
                found.calls[place] = found.calls.get(place, 0) + 1
        if stack:
            places[node] = _place([*stack.values()][-1][0])
        elif not {"source_fn_stack", "fwd_source_fn_stack"} & set(node.meta):
            # Autograd or Inductor has added it, such as the sum of two gradients.
            places[node] = _common([places[given] for given in node.all_input_nodes if given in places])
        else:
            places[node] = FUNCTION
    nodes = {node.name: node for node in graph.graph.nodes if node.op == "call_function"}
    for name, names in kernels.items():
        own = [nodes[one] for one in names if one in nodes]
        parts = [Part(_operator(one), places[one], _line(one), _elements(one)) for one in own]
        found.kernels.append((_event(name), _merged(_computed(name, parts))))
    return found


def _stack(node: fx.Node | None) -> Mapping[Any, tuple[str, Any]]:
    """Return the modules around a node, the outermost one first; those of its forward node for a backward node."""
    meta = node.meta if node is not None else {}
    return meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}


def _products(graph: fx.GraphModule) -> dict[tuple[str, ...], fx.Node]:
    """Return the matrix products of a graph by the names of their factors.

    Inductor merges a product with the sum behind it into a new node that tells nothing of its module.
    """
    return {key: node for node in graph.graph.nodes if (key := _factors(node)) and _stack(node)}


def _factors(node: fx.Node) -> tuple[str, ...]:
    if node.op != "call_function" or not re.search(r"mm$", _operator(node)):
        return ()
    return tuple(given.name for given in node.args[-2:] if isinstance(given, fx.Node))


def _place(written: str) -> Place:
    """Return a module by how Dynamo writes where it was found.

    >>> _place("L['self'].blocks.0.norm"), _place("L['model']._modules['a']._modules['0']")
    (Place(variable="L['self']", path='blocks.0.norm'), Place(variable="L['model']", path='a.0'))
    """
    plain = ITEM.sub(lambda found: f".{found[1] or found[2]}", written)
    match = SOURCE.fullmatch(plain)
    if not match:
        return Place(plain, "")
    return Place(match[1], ".".join(part for part in match[2].split(".") if part not in (OPTIMIZED, *WRAPPED)))


def _common(places: Sequence[Place]) -> Place:
    """Return what holds all of some modules; the function if they have nothing in common."""
    if not places or len({place.variable for place in places}) > 1:
        return FUNCTION
    paths = [place.path.split(".") for place in places]
    shared = next((n for n, parts in enumerate(zip(*paths, strict=False)) if len(set(parts)) > 1), min(map(len, paths)))
    return Place(places[0].variable, ".".join(paths[0][:shared]))


def _operator(node: fx.Node) -> str:
    """Return the name of a node's operator as a trace has it, such as `aten::mm`."""
    schema = getattr(node.target, "_schema", None)
    return str(schema.name) if schema is not None else getattr(node.target, "__name__", str(node.target))


def _line(node: fx.Node) -> str:
    """Return the innermost line of a node's source that is not torch's own, as `file:line`; empty if unknown."""
    frames = FRAME.findall(node.meta.get("stack_trace") or "")
    file, line = next(((file, line) for file, line in reversed(frames) if not file.startswith(PACKAGE)), ("", ""))
    return f"{short_path(file)}:{line}" if file else ""


def _elements(node: fx.Node) -> int:
    """Return the most elements that a tensor has which a node reads or makes; 0 for a view and for a constant."""
    given = [value for one in node.all_input_nodes for value in _tensors(one)]
    if not given or node.target is operator.getitem or getattr(node.target, "is_view", False):
        return 0
    if _operator(node) in ("aten::reshape", "aten::_unsafe_view", "aten::view"):
        return 0
    return max((_size(value) for value in (*given, *_tensors(node))), default=0)


def _tensors(node: fx.Node) -> Iterator[Tensor]:
    value = node.meta.get("val")
    yield from (one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, Tensor))


def _size(value: Tensor) -> int:
    """Return a tensor's number of elements; where its shape changes, that of the batch which it was compiled for."""
    sizes = (getattr(getattr(size, "node", None), "hint", None) or size for size in value.shape)
    return math.prod(int(size) for size in sizes)


def _event(name: str) -> str:
    """Return the name by which a trace has a call of a kernel, or of an operator that Inductor calls.

    >>> [_event(name) for name in ("triton_poi_fused_add_0:3", "extern_kernels.bias_addmm:1")]
    ['triton_poi_fused_add_0', 'aten::addmm']
    >>> _event("torch.ops.aten.convolution_backward.default:7")
    'aten::convolution_backward'
    """
    plain = CALL.sub("", name)
    if plain.startswith("extern_kernels."):
        return f"aten::{plain.rpartition('.')[2].removeprefix('bias_')}"
    if plain.startswith(EXTERN):
        space, called, *_ = [*plain.removeprefix("torch.ops.").split("."), ""]
        return f"{space}::{called}"
    return plain


def _computed(name: str, parts: list[Part]) -> list[Part]:
    """Return those parts of a kernel that it computes: Inductor also names what its inputs and results are part of."""
    if name.startswith(EXTERN):
        return [one for one in parts if one.operator == _event(name)] or parts
    products = [one for one in parts if PRODUCT.search(one.operator)]
    if name.startswith(TEMPLATE):
        return products or parts
    return [one for one in parts if one.elements and one not in products] or parts


def _merged(parts: Iterable[Part]) -> list[Part]:
    """Return the parts with those of one operator, module and line added up, in the order of their names."""
    sums = Counter[tuple[str, Place, str]]()
    for one in parts:
        sums[one.operator, one.place, one.line] += one.elements
    return [Part(*key, elements) for key, elements in sorted(sums.items())]


# Describes graphs for a trace.


def _described(graph: Graph) -> dict[str, Any]:
    """Return a graph as a trace holds it: kernels with their parts, modules by number, and roots by number."""
    places = [*dict.fromkeys([*graph.types, *(part.place for _, parts in graph.kernels for part in parts)])]
    variables = [*dict.fromkeys(place.variable for place in places if place.variable)]
    roots = [_root(graph, variable) for variable in variables]
    # A method's own module is not told, but it holds all that is found through it.
    itself = 0 if len(variables) == 1 and Place(variables[0], "") not in graph.types else -1
    modules = []
    for place in places:
        root = variables.index(place.variable) if place.variable else itself
        kind = graph.types.get(place) or ("" if place.path or root < 0 else roots[root][1])
        modules.append([root, place.path, kind, 0 if graph.is_backward else graph.calls.get(place, 0)])
    kernels = [
        [name, [[part.operator, places.index(part.place), part.line, part.elements] for part in parts]]
        for name, parts in graph.kernels
    ]
    return {"roots": roots, "modules": modules, "kernels": kernels}


def _root(graph: Graph, variable: str) -> tuple[str | None, str, bool]:
    """Return path and class of the module in a variable of the compiled function, and whether it is alone of its class.

    The path is None if it is unknown.
    """
    votes = Counter[str]()
    for place, number in graph.seen.items():
        if place.variable == variable and number in _modules:
            above = _above(_modules[number][0], place.path)
            if above is not None:
                votes[above] += 1
    if not votes:
        return None, "", False
    path = votes.most_common(1)[0][0]
    kinds = Counter(kind for _, kind in _modules.values())
    kind = next(kind for known, kind in _modules.values() if known == path)
    return path, kind, kinds[kind] == 1


def _above(path: str, inner: str) -> str | None:
    """Return the path of the module that holds a module of this path at an inner path; None if the paths do not fit.

    >>> _above("blocks.0.fc", "fc"), _above("fc", "fc"), _above("fc", "module.fc"), _above("a", "b")
    ('blocks.0', '', '', None)
    """
    for end in (inner, inner.removeprefix("module").removeprefix(".")):
        if not end or path == end or path.endswith(f".{end}"):
            return path[: len(path) - len(end)].rstrip(".")
    return None


def _paths(module: nn.Module, path: str) -> Iterator[tuple[nn.Module, str]]:
    """Yield the modules of a network with their paths, without those of wrappers."""
    inner = unwrap_module(module) or module._modules.get(OPTIMIZED)
    if inner is not None:
        yield from _paths(inner, path)
        return
    yield module, path
    for name, child in module.named_children():
        yield from _paths(child, f"{path}.{name}" if path else name)


def unwrap_module(module: nn.Module) -> nn.Module | None:
    """Return the module that another one wraps for parallel training or checkpoints; None if it wraps none."""
    if isinstance(module, REPLICATED):
        return module.module
    return next(filter(None, map(module._modules.get, WRAPPED)), None)


def short_path(path: str) -> str:
    """Return a path relative to the folder that Python imported it from, as other machines have other folders."""
    file = Path(path)
    above = [Path(entry or ".").absolute() for entry in sys.path]
    inside = [folder for folder in above if file.is_relative_to(folder)]
    return str(file.relative_to(max(inside, key=lambda folder: len(folder.parts)))) if inside else file.name
