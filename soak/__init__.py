"""Long runs and injected faults: `python -m soak --help`. The tests run each of them at a small size."""
