"""A program without torch."""

print(sum(range(10)))
