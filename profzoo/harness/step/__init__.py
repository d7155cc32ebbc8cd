"""The loop of steps: batches, one step, all steps, and runs of more steps for memory and precision."""
