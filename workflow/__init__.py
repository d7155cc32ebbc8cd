"""The workflow: rules, scripts, schema."""
