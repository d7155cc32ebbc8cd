"""Another package."""
