"""What a run says in the terminal in place of Snakemake's own messages: its plan, a line a measurement, its end."""
