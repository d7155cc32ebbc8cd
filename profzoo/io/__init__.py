"""Reads files of tools and of this workflow: expected contents are declared, and damage is reported in one line."""
