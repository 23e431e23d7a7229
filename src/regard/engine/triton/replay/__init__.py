"""Calls that repeat: recorded twice, then replayed without the Python in between."""
