"""Programs that know nothing of profzoo, for tests to profile as they are."""
