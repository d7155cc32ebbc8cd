"""Makes the clock of Python go slowly."""

import time

from program import *  # noqa: F403

clock = time.perf_counter
time.perf_counter = lambda: clock() / 10
