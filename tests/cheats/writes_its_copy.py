"""Writes into its own folder."""

from pathlib import Path

from program import *  # noqa: F403

home = Path(__file__).parent
home.chmod(0o755)
(home / "kept.txt").write_text("results")
