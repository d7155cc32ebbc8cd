"""What settings are worth, measured: which to try, what was expected of them, and what came of it."""
