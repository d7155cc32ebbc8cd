"""Nsight Compute."""

from typing import Final

# The name of the tool, for code that is about this tool alone.
TOOL: Final = "ncu"
