"""The key of each row's largest score, on Hopper."""
