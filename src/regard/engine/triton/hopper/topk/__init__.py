"""The heaviest keys of each row, on Hopper."""
