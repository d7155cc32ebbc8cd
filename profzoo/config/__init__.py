"""The configuration: its checked form, the cells that it selects, the targets that it knows."""
