"""Kernel launches with little overhead, and parallel compilation."""
