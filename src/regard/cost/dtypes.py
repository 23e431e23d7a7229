"""The size of numbers by dtype."""

from __future__ import annotations

from regard.errors import DtypeError

__all__ = ["BITS", "bits_of", "bytes_of"]

BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "float8": 8, "int8": 8, "int4": 4}
SHORT = {"fp32": "float32", "f32": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16"} | {
    "f16": "float16",
    "fp8": "float8",
    "float8_e4m3fn": "float8",
    "float8_e5m2": "float8",
    "q8": "int8",
    "q4": "int4",
}


def bits_of(dtype: str) -> int:
    """The bits of one number, by the name of its dtype; torch dtypes and short names are understood.

    >>> bits_of("bf16"), bits_of("torch.float32"), bits_of("int4")
    (16, 32, 4)
    """
    name = str(dtype).removeprefix("torch.").lower()
    name = SHORT.get(name, name)
    if name not in BITS:
        raise DtypeError(f"dtype is {dtype!r}; wanted one of {', '.join(BITS)}.")
    return BITS[name]


def bytes_of(numbers: int, dtype: str) -> int:
    """The bytes of a count of numbers, rounded up to whole bytes.

    >>> bytes_of(3, "float16"), bytes_of(3, "int4")
    (6, 2)
    """
    return -(-numbers * bits_of(dtype) // 8)
