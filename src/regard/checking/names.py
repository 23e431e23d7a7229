"""The names of attention steps in tutorials."""

from __future__ import annotations

import re

__all__ = ["FORMULAS", "GIVEN", "STEPS", "TABLES", "step_named"]

GIVEN = ("x", "context", "w_q", "w_k", "w_v", "w_o")
"""The input tables of an example."""

STEPS = ("q", "k", "v", "scores", "scaled", "masked", "exps", "total", "weights", "output", "projected")
"""The computed tables, in the order of the computation."""

TABLES = (*GIVEN, *STEPS, "k_t")
"""The tables that a reader accepts; kᵀ is transposed and stored as k."""

FORMULAS = {
    "q": "x W_q",
    "k": "x W_k",
    "v": "x W_v",
    "scores": "q kᵀ",
    "scaled": "scores × scale",
    "masked": "scaled, −∞ where hidden",
    "exps": "e^scores",
    "total": "sum of each row of e^scores",
    "weights": "softmax",
    "output": "weights v",
    "projected": "output W_o",
}

# Labels by step, one paragraph each; compared without spaces, case and decoration.
_ALIASES = """
x: x input inputs embedding embeddings tokenembeddings inputvectors tokenvectors vectors
context: context encoder memory encoderoutput encoderoutputs
w_q: wq w^q queryweights wquery
w_k: wk w^k keyweights wkey
w_v: wv w^v valueweights wvalue
w_o: wo w^o outputweights wout outputprojection
q: q query queries xwq x@wq
k: k key keys xwk x@wk
k_t: kt keyt keyst ktranspose ktransposed transposedk transposedkeys transposeofk
v: v value values xwv x@wv
scores: xxt x@xt x·xt s score scores rawscores rawscore attentionscores attentionscore unscaledscores
    dotproduct
    dotproducts qkt qk q·k q·kt q@kt q*kt qkscores logits logit similarity similarities alignment
    alignmentscores energies
scaled: scaled scaledscores scaledscore scaledlogits scaledattentionscores scaleddotproducts
    scaledqkt afterscaling
masked: masked maskedscores maskedscore aftermask aftermasking scaledandmasked
exps: exp exps exponential exponentials expscores exp(scores) e^scores e^score exp(scaled) e^scaled
    e^s e^x exp(s) exp(x)
total: sum total sumofexps sumofexponentials denominator rowsum rowsums
weights: w a alpha weights weight attentionweights attentionweight attention attentionmatrix
    attentionmap softmax softmaxscores softmaxoutput probabilities probability probs alphas
    attentionprobabilities attentionprobs aftersoftmax
output: o z out output outputs result results contextvector contextvectors
    contextvec contextvecs mixture attentionoutput
    concat concatenated concatenation concatenatedheads concatheads concatenatedoutput
    weightedsum weights·v weights@v weightsv av a·v a@v
projected: projected finaloutput projectedoutput outputwo zwo concatwo multihead multiheadoutput
    multihead(qkv) finalmultiheadoutput
mask: mask attentionmask causalmask
scale: scale scaling scalefactor scalingfactor 1/√dk 1/√d
divisor: √dk √d √dkey √headdim √dmodel scaledby divideby dividedby divisor
dim: dk d dim headdim dimension dkey headsize
tokens: tokens words sentence querytokens
key_tokens: keytokens keywords
"""
_LOOKUP = {
    alias: name
    for name, words in re.findall(r"^(\w+): (.+(?:\n +.+)*)", _ALIASES, re.MULTILINE)
    for alias in words.split()
}
_SIGNS = {"ᵀ": "t", "⊤": "t", "^t": "t", "'": "t", "α": "alpha", "sqrt": "√", ".t": "t", "transpose(k)": "kt"}


# Words in names, with their step; the first that occurs counts.
_MEANT = {
    "output": "context output outputs result",
    "weights": "softmax softmaxed softmaxes weight weights prob probs probability probabilities coefficients",
    "masked": "masked masking",
    "scaled": "scaled scaling",
    "scores": "score scores logit logits energy energies similarity similarities dot",
}
_FILLERS = """
attention attn the of for raw final normalized normalised self causal matrix mat vector vec vectors head row
values value product products unnormalized unnormalised and per each token query all pre before after qk word
words then
"""
_MEANING = {word: step for step, words in _MEANT.items() for word in words.split()}
_KNOWN = {*_MEANING, *_FILLERS.split()}


def _by_words(label: str) -> str | None:
    """The step of a name that consists of known words, such as attn_scores_softmax."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", label.strip(" *_#:`"))
    words = [word for word in re.split(r"[\s_\-]+", spaced.lower()) if word and not word.isdigit()]
    if not words or not _KNOWN.issuperset(words):
        return None
    if {"before", "pre"} & set(words):
        return None
    steps = {_MEANING[word] for word in words if word in _MEANING}
    return next((step for step in _MEANT if step in steps), None)


def step_named(label: str) -> str | None:
    """The step or setting of a label; None if it is unknown.

    >>> [step_named(s) for s in ("Q", "Attention weights", "QK^T", "Q @ K.T / sqrt(d_k)")]
    ['q', 'weights', 'scores', 'scaled']
    >>> step_named("softmax(QKᵀ/√d_k) V")
    'output'
    >>> step_named("the cat sat")
    """
    label = re.sub(r"\s+(?:for|of)\s+(?:the\s+)?(?:word\s+|token\s+)?['\"“‘]\w+['\"”’]\s*$", "", label)
    text = _squashed(label)
    # attn_weights_2 is the weights of one query.
    for name in (text, re.sub(r"(?<=\w{3})\d+$", "", text)):
        if name in _LOOKUP:
            return _LOOKUP[name]
    if re.match(r"(?:torch|np|numpy|tf|jnp|mx)?(?:concat|concatenate|cat|hstack|hcat)[(\[]", text):
        return "output"
    if text.startswith("attention(q"):
        return "output"
    if text.startswith(("softmax(", "softmax[")):
        return "output" if re.search(r"\)[·@*×]?v$", text) else "weights"
    if re.match(r"(exp\(|e\^)", text):
        return "exps"
    # A row of a table: what stands above it, divided.
    if re.fullmatch(r"[/÷]\(?√.+", text):
        return "scaled"
    if re.fullmatch(r"q\w?[·*@]k\w?t?", text):
        return "scores"
    product = re.fullmatch(r"\(?(?:qkt|q[·@*×]kt|scores?|qk)\)?(?:/|dividedby)\(?(?:√.+|\d+)", text)
    return "scaled" if product else _by_words(label)


def _squashed(label: str) -> str:
    """A label without spaces, decoration, braces and shapes: `**Q K^T** (3×3):` becomes `qkt`."""
    text = re.sub(r"\\(?:text|mathrm|mathbf|operatorname|mathsf)\s*\{([^}]*)\}", r"\1", label.strip(" *_#"))
    text = (
        re.sub(r"\\(?:sqrt)\s*\{([^}]*)\}", r"√\1", text)
        .replace("\\cdot", "·")
        .replace("\\top", "ᵀ")
        .replace("\\alpha", "α")
    )
    text = re.sub(
        r"\(?\b\d+\s*[×xX,]\s*\d+\b\)?|\[\d+\s*,\s*\d+\]|\(rounded[^)]*\)|\s\([^()]*\s[^()]*\)$|\s\((?:causal|masked|softmax|scaled|raw|self)\)\W*$",
        "",
        text,
    )
    text = re.sub(r"[\s$*#`_{}\\:=≈~.…]+(?=t\b)", ".", text.lower()) if ".t" in text.lower() else text.lower()
    for sign, plain in _SIGNS.items():
        text = text.replace(sign, plain)
    text = re.sub(r"^(?:step\s*\d+[.:)]?|\d+[.)])\s*", "", text.strip(" #*-"))
    text = re.sub(r"^(?:the|compute|computing|our)\s+", "", text)
    text = re.sub(r"(?<![^\W_])attn?(?![^\W_])|^attn(?=\w)", "attention", text)
    return re.sub(r"[\s$#`_{}\\:=≈~.,*]+|\(\)$", "", text)
