"""Writes into the package of the referee."""

from pathlib import Path

from profzoo.referee import exchange
from program import *  # noqa: F403

with Path(exchange.__file__).open("a") as file:
    file.write("\n# Always faster.\n")
