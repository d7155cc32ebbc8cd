"""The configuration: its schema, its checked form, and what targets it knows."""
