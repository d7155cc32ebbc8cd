"""Runs a job's command, and repeats it once if its tool lost a part of the recording."""

import sys
from collections.abc import Callable
from typing import Any

from profzoo import tools
from profzoo.collect.command_line import Command

FILES = ("../tools/*/losses.py",)
EXTENDED = ("tools/*/losses.py",)


def run_with_retry(asked: Command, once: Callable[[], str]) -> tuple[str, dict[str, Any]]:
    """What the command printed in the end, and what the sidecar is to say: why it ran twice, and what is lost even so.

    once: runs it, and raises where that fails. Twice at most: what is lost in each of two processes is lost in a third.
    """
    printed, own = once(), tools.losses(asked.tool)
    why, facts = own.explain_losses(asked.made) if own else ("", {})
    if not own or not why:
        return printed, {}
    print(f"profzoo: {asked.tool} lost a part of {asked.sidecar.stem} and is run again: {why}", file=sys.stderr)
    printed = once()
    left, facts = own.explain_losses(asked.made)
    return printed, {"repeated": why, **facts, **({"lost": left} if left else {})}
