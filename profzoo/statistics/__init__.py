"""Statistics of step times: steady state, processes of one cell, tests of a ratio."""
