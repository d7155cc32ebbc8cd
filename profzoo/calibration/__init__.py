"""Measures the GPU itself: its peak rates, and what a launch costs under a profiler."""
