"""All tables of a results folder: what each holds, and its form as JSON, Parquet or Arrow."""
