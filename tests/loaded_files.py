"""The project's files that Python loads for a file, as it really does."""

import ast
import atexit
import functools
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from profzoo.records.import_graph import PROJECT

# Runs import statements in processes of their own, forked from one that has the large libraries.
SEEN = """
import importlib, json, os, sys
for name in ("jinja2", "jsonschema", "matplotlib.pyplot", "pandas", "seaborn", "yaml"):
    importlib.import_module(name)
for line in sys.stdin:
    if not os.fork():
        exec(json.loads(line))
        names = [name for name in sys.modules if name.partition(".")[0] in ("models", "profzoo")]
        print(json.dumps([sys.modules[name].__file__ for name in names]), flush=True)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(line)
"""


@functools.cache
def importer() -> subprocess.Popen[str]:
    """What runs import statements; it ends with this process."""
    process = subprocess.Popen(
        [sys.executable, "-c", SEEN], cwd=PROJECT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    atexit.register(process.communicate)
    return process


def loaded(path: Path, besides: Iterable[Path]) -> set[Path]:
    """The project's files that Python has imported once it has run the import statements of a file, and these modules."""
    nodes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [".".join(one.relative_to(PROJECT).with_suffix("").parts) for one in besides]
    lines = [*map(ast.unparse, nodes), *(f"import {name}" for name in names)]
    process = importer()
    assert process.stdin and process.stdout
    process.stdin.write(f"{json.dumps(chr(10).join(lines))}\n")
    process.stdin.flush()
    return set(map(Path, json.loads(process.stdout.readline())))
