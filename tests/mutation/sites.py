"""Finds the places in a module where one small mistake can be planted, and writes the module with that mistake.

No mutation tester in the registries fits: mutmut leaves constants of a module alone, on which intervals rest, and
cosmic-ray starts the tests' libraries again for each mistake, at ten seconds a time.
"""

import ast
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def _both_ways(pairs: Mapping[Any, Any]) -> dict[Any, Any]:
    return {**pairs, **{other: one for one, other in pairs.items()}}


# What one name may be mistaken for, as a function or a method.
MISTAKEN: dict[str, str] = _both_ways({
    "max": "min", "maximum": "minimum", "mean": "median", "any": "all", "first": "last", "idxmax": "idxmin",
    "argmax": "argmin", "ceil": "floor",
}) | {"sum": "max", "nansum": "nanmax", "cumsum": "cummax"}  # fmt: skip
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = _both_ways(
    {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
)
CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    **_both_ways({ast.Add: ast.Sub, ast.Mult: ast.Div}),
    **dict.fromkeys((ast.FloorDiv, ast.Mod, ast.Pow), ast.Mult),
}
SIDES = {"left": "right", "right": "left", "lower": "higher", "higher": "lower"}
# Calls in whose arguments no number is derived.
WITHOUT_NUMBERS = {"lru_cache", "field", "TypeVar", "isinstance", "add_argument", "print"}
# What scripts call: it reads and writes files, and workflow tests run it in processes of their own.
ENTRY = "main"
MODULE = "(module)"


@dataclass(frozen=True)
class Mistake:
    """One mistake in one module: what stands where, and what would stand there instead."""

    path: str
    line: int
    # Qualified name of the function, or MODULE.
    function: str
    before: str
    after: str
    # Bytes of the module that are replaced.
    start: int
    end: int

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is known by while lines move."""
        return self.path, self.function, self.before, self.after

    def plant(self, source: bytes) -> bytes:
        """The module with the mistake."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def find(path: Path, name: str) -> list[Mistake]:
    """All mistakes that can be planted in the module at `path`, in the order of its text; name: its path in results."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for top, node, function in _placed(ast.parse(source)):
        begin, end = starts[top.lineno - 1], starts[top.end_lineno or top.lineno]
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[operator]
        before = source[first:last].decode()
        for changed in _changed(node):
            after = ast.unparse(changed)
            if isinstance(node, ast.expr) and not isinstance(node, ast.Constant | ast.Name | ast.Attribute | ast.Call):
                after = f"({after})"
            elif isinstance(node, ast.stmt):
                after = after.replace("\n", "\n" + " " * node.col_offset)
            mistake = Mistake(name, node.lineno, function, before, after, first, last)
            if _parses(source[begin:first] + mistake.after.encode() + source[last:end]):
                found.append(mistake)
    return sorted(found, key=lambda mistake: (mistake.start, mistake.end, mistake.after))


def _placed(tree: ast.Module) -> Iterator[tuple[ast.stmt, ast.expr | ast.stmt, str]]:
    """Nodes as of _nodes, each with the statement of the module that it is in: parsing that is enough, and quick."""
    for top in tree.body:
        for node, function in _nodes(ast.Module([top], [])):
            yield top, node, function


def _parses(source: bytes) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Expressions and statements that compute, each with the function it is in."""
    waiting: list[tuple[ast.AST, str]] = [(tree, MODULE)]
    while waiting:
        node, function = waiting.pop()
        if isinstance(node, ast.expr | ast.stmt):
            yield node, function
        inside = function
        if isinstance(node, ast.FunctionDef) and node.name == ENTRY:
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = node.name if function == MODULE else f"{function}.{node.name}"
        waiting += [(child, inside) for child in _children(node)]


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Those within a node in which a mistake would change a number: not annotations, docstrings or messages."""
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Import | ast.ImportFrom | ast.Assert):
        return
    if isinstance(node, ast.Call) and _called(node) in WITHOUT_NUMBERS:
        return
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list", "type_comment", "bases"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if not text and not _for_types(child):
                yield child


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _changed(node: ast.expr | ast.stmt) -> Iterator[ast.AST]:
    """The node with each mistake that it can have."""
    if isinstance(node, ast.Constant):
        yield from _other_constant(node)
    elif isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[at] = COMPARED[type(operator)]()
            yield changed
    elif isinstance(node, ast.BinOp):
        yield from _other_operation(node)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse
    elif isinstance(node, ast.Call):
        yield from _other_call(node)
    elif isinstance(node, ast.Attribute) and node.attr in MISTAKEN:
        yield ast.Attribute(node.value, MISTAKEN[node.attr], node.ctx)
    elif isinstance(node, ast.If) and not node.orelse:
        yield ast.Pass()


def _other_constant(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
    elif isinstance(value, float):
        yield ast.Constant(value * 1.5 if value else 1.0)
    elif isinstance(value, str) and value in SIDES:
        yield ast.Constant(SIDES[value])


def _other_operation(node: ast.BinOp) -> Iterator[ast.AST]:
    if isinstance(node.op, ast.BitAnd | ast.BitOr):
        # Of conditions on rows; a union of types or sets loses a member too.
        yield node.left
        yield node.right
    elif type(node.op) in CALCULATED and not isinstance(node.left, ast.Constant | ast.List):
        yield ast.BinOp(node.left, CALCULATED[type(node.op)](), node.right)


def _other_call(node: ast.Call) -> Iterator[ast.AST]:
    if isinstance(node.func, ast.Name) and node.func.id in MISTAKEN:
        yield ast.Call(ast.Name(MISTAKEN[node.func.id], ast.Load()), node.args, node.keywords)
    plain = [isinstance(argument, ast.Name) for argument in node.args]
    if len(plain) >= 2 and plain[0] and plain[1]:
        swapped = [node.args[1], node.args[0], *node.args[2:]]
        if ast.dump(swapped[0]) != ast.dump(swapped[1]):
            yield ast.Call(node.func, swapped, node.keywords)
