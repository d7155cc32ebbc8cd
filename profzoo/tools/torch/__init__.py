"""torch.profiler."""

# The name of the tool, for code that is about this tool alone.
TOOL = "torch"
