"""Starting kernels: with little overhead, and several compiled at once."""
