"""Rules of verdicts: their form, what they read, and which of them hold in a cell."""
