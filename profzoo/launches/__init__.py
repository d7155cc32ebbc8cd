"""Aligns the launches of one step as several tools recorded them."""
