"""Which tests must notice a mistake, by the file it is in: fast ones, of that file's own subject."""

from __future__ import annotations

from fnmatch import fnmatch

from mutating import ROOT

__all__ = ["PACKAGES", "files_of", "suite_of"]

PACKAGES = {
    "masks": ["src/regard/masks/*.py"],
    "stats": ["src/regard/stats/*.py"],
    "engine": [f"src/regard/engine/{part}.py" for part in ("*", "native/*", "*_backend/*")],
    "cost": ["src/regard/cost/*.py"],
    "doctor": ["src/regard/doctor/*.py", "src/regard/doctor/probes/*.py"],
}
# Files that only name things, or whose tests need a GPU or an hour.
LEFT_OUT = ("*/__init__.py", "*/engine/native/library.py", "*/engine/native/availability.py")
# The first pattern that fits decides.
TESTS: list[tuple[str, list[str]]] = [
    ("src/regard/masks/codec.py", ["tests/masks/test_codec.py"]),
    ("src/regard/masks/pairs.py", ["tests/masks/test_pairs.py"]),
    ("src/regard/masks/where.py", ["tests/masks/test_where.py", "tests/masks/test_cover.py"]),
    ("src/regard/masks/within.py", ["tests/masks/test_within.py"]),
    ("src/regard/masks/live.py", ["tests/masks/test_within.py"]),
    ("src/regard/masks/*.py", ["tests/masks"]),
    ("src/regard/stats/*.py", ["tests/stats"]),
    ("src/regard/engine/schedule.py", ["tests/engine/test_schedule.py", "tests/engine/test_masks.py"]),
    (
        "src/regard/engine/native/pairs.py",
        ["tests/stats/test_pair_counts.py", "tests/engine/test_native.py"],
    ),
    (
        "src/regard/engine/native/*.py",
        ["tests/engine/test_native.py", "tests/engine/test_native_attention.py"],
    ),
    ("src/regard/engine/cache.py", ["tests/engine/test_cache.py"]),
    (
        "src/regard/engine/inputs.py",
        ["tests/engine/test_errors.py", "tests/engine/test_option_errors.py", "tests/engine/test_unused.py"],
    ),
    (
        "src/regard/engine/captured.py",
        ["tests/engine/test_captured.py", "tests/engine/test_option_errors.py"],
    ),
    ("src/regard/engine/dropout.py", ["tests/engine/test_dropout.py"]),
    ("src/regard/engine/scoring.py", ["tests/engine/test_scoring.py"]),
    ("src/regard/engine/dispatch.py", ["tests/engine/test_dispatch.py"]),
    ("src/regard/engine/second_order.py", ["tests/engine/test_second_order.py"]),
    (
        "src/regard/engine/second_pass.py",
        [
            "tests/maps/test_observe.py",
            "tests/maps/test_large_scores.py",
            "tests/stats/test_windowed_mass.py",
        ],
    ),
    ("src/regard/engine/transformed.py", ["tests/engine/test_transforms.py"]),
    ("src/regard/engine/outline.py", ["tests/engine/test_meta.py"]),
    ("src/regard/engine/unused.py", ["tests/engine/test_unused.py", "tests/engine/test_garbage.py"]),
    ("src/regard/engine/compat.py", ["tests/engine/test_sdpa_parity.py"]),
    ("src/regard/engine/sums.py", ["tests/engine/test_sums.py"]),
    ("src/regard/engine/few_rows.py", ["tests/engine/test_precise_gradients.py"]),
    (
        "src/regard/engine/large_rows.py",
        ["tests/maps/test_large_scores.py", "tests/engine/test_precise_gradients.py"],
    ),
    (
        "src/regard/engine/*.py",
        ["tests/engine/test_masks.py", "tests/engine/test_scoring.py", "tests/maps/test_observe.py"],
    ),
    ("src/regard/cost/*.py", ["tests/cost"]),
    ("src/regard/doctor/*", ["tests/doctor"]),
]


def files_of(package: str) -> list[str]:
    """The files of a package that are mutated, relative to the root."""
    found = {str(path.relative_to(ROOT)) for pattern in PACKAGES[package] for path in ROOT.glob(pattern)}
    return sorted(path for path in found if not any(fnmatch(path, out) for out in LEFT_OUT))


def suite_of(path: str) -> list[str]:
    """The tests of a file; those of its name alone, where a folder has them."""
    tests = next(tests for pattern, tests in TESTS if fnmatch(path, pattern))
    stem = path.rpartition("/")[2].removesuffix(".py")
    own = [f"{folder}/test_{stem}.py" for folder in tests if (ROOT / folder / f"test_{stem}.py").exists()]
    return own or tests
