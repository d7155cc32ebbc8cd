"""What is recorded beside the steps: places of source, memory, files, samples and costs."""
