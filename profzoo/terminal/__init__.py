"""Prints a run's plan, one line per measurement and a summary, in place of Snakemake's own messages."""
