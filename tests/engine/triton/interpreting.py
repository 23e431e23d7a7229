"""Kernels without a GPU: Triton's interpreter, switched on however late."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys


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
    interpreter._mended = True
