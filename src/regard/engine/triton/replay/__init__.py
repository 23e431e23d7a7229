"""Repeated calls: recorded twice, then replayed without the Python between launches."""
