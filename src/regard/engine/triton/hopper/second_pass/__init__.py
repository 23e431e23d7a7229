"""The second pass for Hopper."""
