"""Twenty planted steps that no rule was fitted to, and whose results are looked at once, at the end."""
