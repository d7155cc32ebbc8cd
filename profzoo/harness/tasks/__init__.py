"""What models of the same task share: their samples, losses, and how images on disk become samples."""
