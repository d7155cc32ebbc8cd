"""Honest: the reference itself."""

from program import *  # noqa: F403
