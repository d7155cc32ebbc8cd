"""What settings change in a model: its batch size, its layers' precision and its launches."""
