"""Statistics of the sum of all heads: the shared keys of `HeadSum`, and the sums and gradients of `KL`."""
