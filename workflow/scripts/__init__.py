"""One small module a rule; lib/ holds what several share."""
