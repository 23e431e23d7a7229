"""Statistics that need the final log-sum-exp: columns, diagonals, block sums and histograms of the map."""
