"""Twenty planted steps of the same kinds, which nobody may look at while rules are developed."""
