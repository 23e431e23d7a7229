"""How the bundled model is made: `python -m training.prepare`, then `python -m training.train`."""
