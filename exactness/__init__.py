"""How exact every backend, dtype and statistic is: `python -m exactness` measures and writes the page."""
