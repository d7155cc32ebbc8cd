"""Writes into the package of the referee."""

from pathlib import Path

from program import *  # noqa: F403

from profzoo.referee import exchange

with Path(exchange.__file__).open("a") as file:
    file.write("\n# Always faster.\n")
