"""Runs before the script, in a process of its own, and leaves a file for it."""

from pathlib import Path

Path("own/prepared.txt").write_text("1\n")
