"""Runs a collecting command and writes its sidecar."""
