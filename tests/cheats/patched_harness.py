"""Replaces a function of the referee."""

import sys

from program import *  # noqa: F403

referee = sys.modules["profzoo.referee.inputs"]
make = referee.Inputs.mix
referee.Inputs.mix = lambda self, step: make(self, step)
