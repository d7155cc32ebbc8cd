"""What the page and Perfetto draw of a trace."""
