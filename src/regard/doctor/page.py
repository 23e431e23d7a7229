"""The catalogue of mistakes as a page: `python -m regard.doctor.page > docs/doctor.md`."""

from __future__ import annotations

from regard.doctor.finding import Mistake, mistakes

__all__ = ["page"]

OPENING = """\
# The doctor

`regard doctor` finds the classic mistakes in somebody's attention. It reads no code: it calls what it is
given and compares the answers with the healthy formula, and with the formula as each known mistake would
have it.

```console
$ regard doctor my_attention.py:attention
my_attention.py:attention: 1 finding.
  read as  layout bhnd

The scores are not divided by √d_k  [missing-scale]
  evidence  called plain, the output equals the formula with scale 1 to 0e+00 and misses ...
  ...
```

The exit status is 0 if nothing was found, 1 if something was, and 2 if there was nothing to examine. The
file runs in a process of its own: one that raises, hangs (`--timeout`, 60 seconds) or prints is
reported, and harms nothing.

From Python, and in tests:

```python
import torch

from regard.doctor import examine
from regard.testing import assert_attention

def attention(q, k, v):
    return (q @ k.mT).softmax(-1) @ v

found = examine(attention)
print(found.codes)                                                 # ('missing-scale',)
assert_attention(torch.nn.functional.scaled_dot_product_attention)  # fails the test if there are findings
```

With pytest, a fixture of the same name needs no import: `def test_mine(assert_attention):
assert_attention(mine)`.

## What can be examined

- **A function of q, k and v**, whatever it calls them, in torch or NumPy. Its layout is found out:
  `bhnd` (batch, heads, length, dim), `bnhd`, `hnd`, `bnd`, `nd`, or `bnm` where it splits the heads
  itself. So is what its mask means: True may attend, True blocks, or added to the scores.
- **A module of tokens**, `(batch, length, d_model)`. Where W_q, W_k, W_v and W_o can be recognised
  (apart or fused), its output is compared with the formula on its own weights; where not, it is probed
  from outside: which tokens reach which outputs, what padding changes, whether a cache changes the
  result, whether gradients are slopes.
- **A model of token ids**, from outside: causality, padding, dropout, determinism.

What cannot be found out is asked for:

| option | meaning |
| --- | --- |
| `layout` | one of the layouts above |
| `causal` | it is meant to be causal; also assumed if its name, docstring, settings or a mask buffer say so |
| `heads`, `dim` | how many heads, and the width of one, where they are fixed |
| `mask` | `allowed`, `blocked` or `additive`: what its mask is meant to mean |
| `cache` | the function is used with a cache, so its causal mask must be aligned at the last key |
| `linear_memory` | memory must grow with the length only; without this, quadratic memory is a remark |

Attention that computes something else on purpose (biases, soft caps, normalised queries) fits no formula
here. It is then probed from outside only, and a remark says so.

## What it finds
"""


def page() -> str:
    """The whole page.

    >>> page().splitlines()[0]
    '# The doctor'
    """
    return OPENING + "".join(_entry(mistake) for mistake in mistakes().values())


def _entry(mistake: Mistake) -> str:
    return (
        f"\n### {mistake.title}\n\n`{mistake.code}`\n\n{mistake.why}\n\n**Mend it.** {mistake.mend}\n\n"
        f"```text\ninstead of   {mistake.wrong}\nwrite        {mistake.right}\n```\n"
    )


if __name__ == "__main__":
    print(page(), end="")
