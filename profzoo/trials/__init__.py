"""Trials of settings: which ones to try, their expected gains, and their measured gains."""
