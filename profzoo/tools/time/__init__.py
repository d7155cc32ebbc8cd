"""The unprofiled baseline: steps timed by events, without a profiler."""
