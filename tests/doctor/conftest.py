"""The zoo is data for the tests, not tests; and transformers may warn about itself."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()

collect_ignore_glob = ["zoo/*"]
