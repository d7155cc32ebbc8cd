"""The zoo: one file a model; run.py runs one cell."""
