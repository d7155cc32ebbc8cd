"""Runs a job's command, and repeats it once if its tool lost a part of the recording."""

import sys
from collections.abc import Callable
from typing import Any

from profzoo import tools
from profzoo.collect.command_line import Command

FILES = ("../tools/*/losses.py",)
EXTENDED = ("tools/*/losses.py",)


def run_with_retry(asked: Command, once: Callable[[], str]) -> tuple[str, dict[str, Any]]:
    """Run a command; returns its last output, and facts for the sidecar: the reason of a second run, and losses.

    once: function that runs the command once, and raises on failure. The command runs at most twice: a loss in each of
    two processes would occur in a third.
    """
    printed, own = once(), tools.losses(asked.tool)
    why, facts = own.explain_losses(asked.made) if own else ("", {})
    if not own or not why:
        return printed, {}
    print(f"profzoo: {asked.tool} lost a part of {asked.sidecar.stem} and is run again: {why}", file=sys.stderr)
    printed = once()
    left, facts = own.explain_losses(asked.made)
    return printed, {"repeated": why, **facts, **({"lost": left} if left else {})}
