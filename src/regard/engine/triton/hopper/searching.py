"""The search for top keys in the second pass, in PTX: Gluon has no branch that only some threads take."""

from __future__ import annotations

from triton.experimental.gluon import language as gl

__all__ = ["LAST", "LAST_OPERANDS", "PLACES", "SEARCH", "SEARCH_OPERANDS"]

# How many candidates for its top keys a query has room for, each four keys of a thread.
PLACES = gl.constexpr(32)


def _search() -> str:
    """PTX: which queries of a thread have a key above their threshold; those keys go into the query's list.

    A thread has sixteen queries, two neighbours of every eight, and four keys of each. It tests them
    together, and most threads are done. The others go through the queries with a hit and ask for a place for
    each. What they found goes there, but for the last: that is a result, so that nobody waits for its place.
    Results: place, query, first key and four scores. Operands: results, the largest score of each query,
    thresholds, four scores, first keys, where lengths are, and where lists are: of scores, and of keys.
    """
    operands = [[f"${16 * number + i}" for i in range(16)] for number in range(11)]
    results, largest, threshold, *scores, key, lengths, lists, keys = operands
    lines = ["{ .reg .pred p, e<4>; .reg .u32 place, query, key, lane, hits, which, bit; .reg .u64 length;"]
    lines += [".reg .b32 " + ", ".join(f"x{i}" for i in range(4)) + ";", "mov.u32 place, 0xffffffff;"]
    lines += [f"setp.ge.f32 p, {largest[0]}, {threshold[0]};"]
    lines += [f"setp.ge.or.f32 p, {largest[i]}, {threshold[i]}, p;" for i in range(1, 16)]
    lines += ["@!p bra NONE;", "mov.u32 lane, %laneid; and.b32 lane, lane, 3; shl.b32 lane, lane, 1;"]
    lines += [f"mov.u32 key, {key[0]}; mov.u32 hits, 0;"]
    for i in range(16):
        lines += [f"setp.ge.f32 p, {largest[i]}, {threshold[i]}; @p or.b32 hits, hits, {1 << i};"]
    # The lowest of the hits that are left, and the bits of its number.
    lines += ["NEXT: brev.b32 which, hits; clz.b32 which, which;"]
    lines += ["sub.u32 bit, hits, 1; and.b32 hits, hits, bit;"]
    lines += [f"and.b32 bit, which, {1 << i}; setp.ne.u32 e{i}, bit, 0;" for i in range(4)]
    for number, score in enumerate(scores):
        lines += _selected(f"x{number}", score)
    lines += ["and.b32 bit, which, 1; sub.u32 query, which, bit; shl.b32 query, query, 2;"]
    lines += ["add.u32 query, query, bit; add.u32 query, query, lane;"]
    lines += [f"mad.wide.u32 length, query, 4, {lengths[0]};"]
    lines += ["atom.global.relaxed.gpu.add.u32 place, [length], 1;"]
    lines += ["setp.eq.u32 p, hits, 0; @p bra NONE;", *_put(lists[0], keys[0]), "bra NEXT;", "NONE:"]
    found = ["place", "query", "key", *(f"x{i}" for i in range(4))]
    lines += [f"mov.b32 {to}, {x};" for to, x in zip(results, found, strict=False)]
    return "\n".join([*lines, *(f"mov.b32 {to}, 0;" for to in results[len(found) :]), "}"])


def _selected(result: str, values: list[str]) -> list[str]:
    """PTX: the value of which the predicates e0 to e3 are the number, by a tree of choices."""
    lines, level = ["{ .reg .b32 " + ", ".join(f"s{i}_{j}" for i in range(4) for j in range(8)) + ";"], 0
    while len(values) > 1:
        chosen = [f"s{level}_{j}" for j in range(len(values) // 2)]
        lines += [
            f"selp.b32 {to}, {odd}, {even}, e{level};"
            for to, even, odd in zip(chosen, values[::2], values[1::2], strict=True)
        ]
        values, level = chosen, level + 1
    return [*lines, f"mov.b32 {result}, {values[0]}; }}"]


def _put(lists: str, keys: str) -> list[str]:
    """PTX: one candidate into its place, if there is one."""
    return [
        f"{{ .reg .pred fits; .reg .u32 at; .reg .u64 to; setp.lt.u32 fits, place, {PLACES.value};",
        f"mad.lo.u32 at, query, {PLACES.value}, place; mad.wide.u32 to, at, 16, {lists};",
        "@fits st.global.v4.b32 [to], {x0, x1, x2, x3};",
        f"mad.wide.u32 to, at, 4, {keys}; @fits st.global.u32 [to], key; }}",
    ]


def _last() -> str:
    """PTX: the candidate that the search left over."""
    names = ("place", "query", "key", "x0", "x1", "x2", "x3")
    moves = [f"mov.b32 {name}, ${16 + i};" for i, name in enumerate(names)]
    declared = "{ .reg .u32 place, query, key; .reg .b32 x0, x1, x2, x3;"
    return "\n".join([declared, *moves, *_put("$32", "$48"), *(f"mov.b32 ${i}, 0;" for i in range(16)), "}"])


def _operands(*kinds: str) -> str:
    return ",".join(kind for kind in kinds for _ in range(16))


SEARCH, LAST = gl.constexpr(_search()), gl.constexpr(_last())
SEARCH_OPERANDS = gl.constexpr(_operands("=r", *"ffffff", "r", "l", "l", "l"))
LAST_OPERANDS = gl.constexpr(_operands("=r", "r", "l", "l"))
