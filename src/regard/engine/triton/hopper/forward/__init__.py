"""The fused forward for Hopper."""
