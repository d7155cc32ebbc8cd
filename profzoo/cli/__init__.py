"""Commands that a user types beside a workflow run: health of the machine, new folders, sharing, serving, cleaning."""
