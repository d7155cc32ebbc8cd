"""Twenty planted steps on which rules may be developed."""
