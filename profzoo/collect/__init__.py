"""Runs a collecting command and leaves a sidecar."""
