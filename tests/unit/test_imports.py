"""What planning, parsing and drawing import: not torch, which takes seconds."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
MODULES = sorted(
    ".".join(path.relative_to(PROJECT).with_suffix("").parts) for path in PROJECT.glob("workflow/scripts/**/*.py")
)


@pytest.mark.parametrize("module", ["models.run", "models.harness.settings", *MODULES])
def test_torch_is_not_imported(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=False).returncode == 0
