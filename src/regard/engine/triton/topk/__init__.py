"""The k heaviest keys of each row."""
