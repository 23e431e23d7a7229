"""The catalogue of mistakes as a page: `python -m regard.doctor.page > docs/doctor.md`."""

from __future__ import annotations

from regard.doctor.finding import Mistake, mistakes

__all__ = ["page"]

OPENING = """\
# The doctor

`regard doctor` finds known mistakes in attention code. It judges the code by what it does, not by its names:
it calls the code, finds out which matrix products act as queries, keys and values, and compares the result
with the correct formula and with the formula that each known mistake would give.

```console
$ regard doctor my_attention.py:attention
my_attention.py:attention: 1 finding.
  read as  layout bhnd

The scores are not divided by √d_k  [missing-scale]
  evidence  called plain, the output equals the formula with scale 1 to 0e+00 and misses the healthy one ...
  input     1 head, 2 tokens, plain: Q = [[...]], K = [[...]], V = [[...]]
  expected  [[...]]
  got       [[...]]
  line      my_attention.py:5: weights = (Q @ K.mT).softmax(-1)
  why       ...
  mend      Multiply the scores by d_k ** -0.5, d_k being the width of one head.
  write     weights = (Q @ K.mT * Q.shape[-1] ** -0.5).softmax(-1)
```

| exit status | meaning |
| --- | --- |
| 0 | examined, no mistake found |
| 1 | a mistake found |
| 2 | bad arguments: no such file or name, or an unknown option |
| 3 | not examined: the doctor could not call it, or it fits no known form; the report says what to do |
| 4 | the doctor itself failed; please report it |

The file runs in a process of its own. Code that raises, hangs (`--timeout`, 60 seconds), prints or changes
its input is reported and does no harm. `FILE:NAME` can name a part of a model: `model.py:net.layers.0.attn`.
A class is constructed with small sizes, guessed from the names of its arguments; `--with n_head=8` sets one.

From Python, and in tests:

```python
import torch

from regard.doctor import examine
from regard.testing import assert_attention

def attention(q, k, v):
    return (q @ k.mT).softmax(-1) @ v

found = examine(attention)                                         # or a module, or a class of one
print(found.codes)                                                 # ('missing-scale',)
assert_attention(torch.nn.functional.scaled_dot_product_attention)  # fails the test unless healthy
```

`found.verdict` is `healthy`, `broken` or `not examined`. With pytest, a fixture of the same name needs no
import: `def test_mine(assert_attention): assert_attention(mine)`.

## What can be examined

- **A function of q, k and v**, whatever it calls them, in torch or NumPy, or a module without weights. The
  doctor detects the layout: `bhnd` (batch, heads, length, dim), `bnhd`, `nbhd`, `hnd`, `bnd`, `nd`, or `bnm`
  if the function splits the heads itself. It also detects the meaning of the mask: True may attend, True
  blocks, added to the scores, ones and zeros, or lengths.
- **A module of tokens**, `(batch, length, d_model)`, batch second, without a batch, `(batch, channels,
  height, width)`, or a list of q, k and v. The doctor finds queries, keys and values by changing columns of
  products: separate, fused in any order, by head, einsum parameters, `Conv1D`, LoRA. It fills in rotary
  angles (cos and sin, or complex), masks, positions and caches by the names of the arguments. A block around
  the attention can be examined as a whole.
- **A model of token ids**: from outside (causality, padding, dropout, determinism), and one attention module
  of each kind inside it, called as the model calls it.

Options state what the doctor cannot detect:

| option | meaning |
| --- | --- |
| `layout` | one of the layouts above |
| `causal` | causal by its flag or mask, if any; assumed if its name, docstring or a buffer says so |
| `heads`, `dim` | the number of heads, and the width of one, if fixed |
| `mask` | the intended meaning of its mask: `allowed`, `blocked` or `additive` |
| `cache` | the function is used with a cache, so its causal mask must be aligned at the last key |
| `linear_memory` | memory must grow with the length only; without this, quadratic memory is a remark |

Rotary positions of the usual bases, partial or turned the other way, normalised queries and keys with norms
in the module, cosines with a factor, and any bias that does not depend on the input (ALiBi, relative
positions) are healthy forms. So are gates on the outputs of heads, a learnt logit beside the keys (a sink),
and windows of any width. Tables of positions and learnt biases are examined at zero, factors of single heads
at one, and weights that mix heads (talking heads) as the identity; a note says so each time. The formula is
compared on six tokens and again on up to 256, because some mistakes show only there. Code that fits no form
is not called healthy. The report names the nearest form and the distance from it, or the form if it is known:
top-k, where the scores choose the keys, or weights that do not sum to 1.

An optional mask that the code never reads is a remark, because nothing can be said about it. With `mask=` it
is probed nevertheless.

A query whose mask allows nothing makes most implementations return NaN. That is a remark, not a mistake:
where such queries occur, set their rows to 0 *after* softmax, and leave the mask where it is, before softmax.

## How often it is right

The zoo and the styles in `tests/doctor` were written by those who wrote the doctor. So attention was
written anew after the habits of public repositories and tutorials that are in neither. Of 38 healthy
implementations and 93 broken variants of them, one and the same set:

| | as it was | after mending |
| --- | --- | --- |
| healthy: right | 31 | 37 |
| healthy: accused | 3 | 1 |
| healthy: not examined, refused or crashed | 4 | 0 |
| broken: named | 67 | 87 |
| broken: misnamed | 9 | 0 |
| broken: not examined, refused or crashed | 17 | 6 |

Right for a form that is not known (linear attention, Performer) is *not examined*. With 12 more
implementations, of which there is no first count, it is 49 of 50 and 120 of 131. The set was mended
against, so this says what is left of known habits, not what to expect of others. The one that is accused
takes masks that it never reads. Still not read: functions that take their weight matrices as arguments,
weights in NumPy, and a missing output projection behind a residual and a norm.

A second set was written in other styles still (JAX and Keras habits, Megatron's layout, caches, cosines, soft
caps, sinks, ALiBi, attention without q·k), and counted before anything was mended, and after:

| | first count | after mending |
| --- | --- | --- |
| 39 healthy: right | 29 | 32 |
| accused | 3 | 3 |
| not examined | 7 | 4 |
| 22 that are no softmax of q·k: not examined, rightly | 17 | 21 |
| accused | 4 | 0 |
| clean bill | 1 | 1 |
| 54 broken: named | 43 | 49 |
| misnamed | 2 | 0 |
| not examined | 4 | 3 |
| clean bill | 5 | 2 |

Of the three that were accused then, two took a mask that they never read, and one dropped its causal mask
as soon as there was a cache, which is wrong for several new tokens: both are remarks now. Talking heads,
gated outputs and a list of q, k and v have become known forms; learnt queries are still not examined. The
two broken ones with a clean bill had two meanings: a mask whose 1 blocks, and a module that takes the batch
second.

A third set is in `tests/doctor/public`: vision, language models, teaching code and research code, after the
names, layouts and arguments of well-known repositories. It was counted before anything was mended, and after
(`python tests/doctor/public_set.py` prints the second column, and what is wrong):

| | first count | after mending |
| --- | --- | --- |
| 43 healthy: right | 37 | 49 of 49 |
| accused | 3 | 0 |
| not examined | 3 | 0 |
| 16 of another form: not examined, rightly | 11 | 15 of 15 |
| accused | 1 | 0 |
| clean bill | 4 | 0 |
| 76 broken: named | 54 | 77 of 77 |
| misnamed | 5 | 0 |
| not examined | 9 | 0 |
| clean bill | 8 | 0 |

In the second column three forms that are now known have moved up (sinks, gates, talking heads) and latent
attention with shared rotary keys has moved down: it is not examined. Seven more were added. Three broken
ones had two right answers and were written again, one with softmax over a chunk of queries is not named and
was taken out, and four masks upside down have a clean bill unless `mask=` says what they mean, as it does
here.

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
