"""Reads files of tools and of this workflow: what each holds is declared, and what is damaged is named in one line."""
