"""A few queries against many keys: keys are split over the GPU."""
