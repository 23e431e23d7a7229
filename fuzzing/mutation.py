"""Damage at random: to bytes, to JSON values, to the header of a safetensors file."""

from __future__ import annotations

import copy
import json
import struct
from typing import Any

from choice import Choice

__all__ = ["damaged_bytes", "damaged_header", "damaged_json"]

WEIRD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 7, 2**31, 2**63, -(2**63), 10**30, 1e308, -0.5, 1e-300),
    *("", "x", "../../x", "/", "\0", "tensor", "F32", "TopKeys", "Statistic", "é" * 300),
    *(
        [],
        {},
        [[]],
        [0],
        [-1, 5],
        [2**40, 2**40],
        {"type": "Causal"},
        {"type": "Not", "parts": []},
        [None] * 3,
    ),
)
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF)


def damaged_bytes(choice: Choice, data: bytes) -> bytes:
    """A few bytes changed, cut, repeated or put in."""
    found = bytearray(data)
    for _ in range(choice.integer(1, 4)):
        at = choice.integer(0, max(0, len(found) - 1))
        kind = choice.integer(0, 5)
        if not found or kind == 0:
            found[at:at] = bytes(choice.integer(0, 255) for _ in range(choice.integer(1, 9)))
        elif kind == 1:
            found[at] ^= 1 << choice.integer(0, 7)
        elif kind == 2:
            found[at] = choice.pick(NUMBERS)
        elif kind == 3:
            del found[at : at + choice.pick((1, 3, 64, len(found)))]
        elif kind == 4:
            found[at:at] = found[at : at + choice.integer(1, 64)]
        else:
            # A length or a count as it is written in most formats.
            width, number = choice.pick(
                (("<I", 2**32 - 1), ("<Q", 2**63), ("<Q", 2**40), ("<Q", 0), ("<I", 1000))
            )
            found[at : at + struct.calcsize(width)] = struct.pack(width, number)
    return bytes(found)


def damaged_json(choice: Choice, value: Any) -> Any:
    """A copy with one or two of its values replaced, removed, repeated or swapped."""
    found = copy.deepcopy(value)
    for _ in range(choice.integer(1, 2)):
        found = _damaged_once(choice, found)
    return found


def _damaged_once(choice: Choice, root: Any) -> Any:
    places = _places(root)
    if not places:
        return choice.pick(WEIRD)
    holder, key = choice.pick(places)
    kind = choice.integer(0, 5)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif kind == 2:
        other, there = choice.pick(places)
        holder[key] = copy.deepcopy(other[there])
    elif kind == 3 and isinstance(holder[key], int) and not isinstance(holder[key], bool):
        holder[key] += choice.pick((-1, 1, 64, -holder[key], 10**6))
    else:
        holder[key] = copy.deepcopy(choice.pick(WEIRD))
    return root


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in nested lists and dicts, as its holder and its key."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = (
            list(holder)
            if isinstance(holder, dict)
            else range(len(holder))
            if isinstance(holder, list)
            else ()
        )
        for key in keys:
            found.append((holder, key))
            waiting.append(holder[key])
    return found


def damaged_header(choice: Choice, data: bytes) -> bytes:
    """A safetensors file whose header says something else; what follows it stays."""
    (size,) = struct.unpack("<Q", data[:8])
    header, rest = json.loads(data[8 : 8 + size]), data[8 + size :]
    metadata = header.get("__metadata__", {})
    if "regard" in metadata and choice.flag():
        metadata["regard"] = json.dumps(damaged_json(choice, json.loads(metadata["regard"])))
    else:
        header = damaged_json(choice, header)
    text = json.dumps(header).encode()
    claimed = choice.pick((len(text), len(text), len(text), 0, 2**63, len(text) + 10**6))
    return struct.pack("<Q", claimed) + text + rest
