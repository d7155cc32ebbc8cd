"""The tools, a package each."""
