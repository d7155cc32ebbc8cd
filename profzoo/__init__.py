"""Profiles a zoo of PyTorch models: what the workflow's rules and scripts call."""
