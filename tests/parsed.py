"""Files of Python, each parsed once for all tests of a process."""

import ast
import gc
from functools import cache
from pathlib import Path


def nodes(path: Path) -> list[ast.AST]:
    """Return the nodes of a file, the module first; a file that was changed is read anew."""
    return _nodes(path, path.stat().st_mtime_ns)


@cache
def _nodes(path: Path, changed_ns: int) -> list[ast.AST]:
    # Python would look at all of so many objects again and again, as long as they are there, and take twice the time.
    gc.disable()
    try:
        found = list(ast.walk(ast.parse(path.read_text())))
        gc.freeze()
        return found
    finally:
        gc.enable()
