"""What the GPU's memory and units did over time."""
