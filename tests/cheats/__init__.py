"""Programs that win by measuring wrongly, and honest ones beside them: candidates for `program.py`, the reference."""
