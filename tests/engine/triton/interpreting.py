"""Kernels without a GPU: Triton's interpreter, switched on however late."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from functools import cache


def interpret() -> None:
    """Run regard's kernels, and Triton's own functions they call, in the interpreter from now on.

    TRITON_INTERPRET only works before the first import of Triton and of the kernels, and another test may
    have imported both by now. So every compiled function is replaced by an interpreted one of the same
    source.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    import regard.engine.triton as package

    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(found.name)
    from triton.runtime import interpreter
    from triton.runtime.jit import JITFunction

    _mend(interpreter)
    made: dict[int, object] = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith(("triton.language", "regard.engine.triton")):
            continue
        for attribute, value in list(vars(module).items()):
            if isinstance(value, JITFunction):
                interpreted = made.setdefault(id(value), interpreter.InterpretedFunction(value.fn))
                setattr(module, attribute, interpreted)


def _mend(interpreter) -> None:
    """NumPy 2.4 no longer turns an array of one number into a number, and Triton 3.6 counts on it."""
    if hasattr(interpreter, "_mended"):
        return
    patch = interpreter._patch_lang_tensor

    def patched(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched
    _hasten(interpreter)
    interpreter._mended = True


def _hasten(interpreter) -> None:
    """Half of the interpreter's time is spent on doing again what it has done.

    It prepares the language for every function that a kernel calls, as it did for the kernel, makes a table
    of dtypes whenever it looks one up, and writes down every shape as a tuple that has a type and a name.
    """
    language, prepare, dtype_of = interpreter.tl, interpreter._patch_lang, interpreter._get_np_dtype
    preprocess: set[int] = set()

    @cache
    def modules(fn) -> frozenset[int]:
        return frozenset(id(x) for x in fn.__globals__.values() if x is language or x is language.core)

    def prepare_once(fn):
        if modules(fn) <= preprocess:
            return interpreter._LangPatchScope()
        scope = prepare(fn)
        preprocess.update(modules(fn))
        restore = scope.restore

        def undo() -> None:
            restore()
            preprocess.clear()

        scope.restore = undo
        return scope

    known = cache(dtype_of)

    def looked_up(kind):
        kind = kind.scalar
        return dtype_of(kind) if kind.is_ptr() else known(kind)

    core = language.core

    @cache
    def written(*sizes):
        """A shape as a tensor has it and as its type has it, and how many numbers that is."""
        numel = core.validate_block_shape(sizes)
        return core.tuple([core.constexpr(size) for size in sizes]), core.tuple(sizes), numel

    def make_tensor(self, handle, kind) -> None:
        core.base_value.__init__(self)
        self.shape, _, numel = written(*kind.shape) if kind.is_block() else written()
        self.handle, self.type, self.dtype, self.numel = handle, kind, kind.scalar, core.constexpr(numel)

    def make_type(self, element_ty, shape) -> None:
        if not shape:
            raise TypeError("0d block_type is forbidden")
        self.element_ty = element_ty
        _, self.shape, self.numel = written(*core._unwrap_shape(shape))

    core.tensor.__init__ = make_tensor
    core.block_type.__init__ = make_type
    core.block_type.name = property(lambda self: f"<{self.shape}, {self.element_ty}>")
    interpreter._patch_lang = prepare_once
    interpreter._get_np_dtype = looked_up
