"""Launching a compiled kernel through Triton's own launcher, without the Python around it.

The launcher is not a public API, so it is used on tested releases of Triton only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from regard.engine.triton.configs import TESTED_TRITON
from regard.engine.triton.launch.switch import replay_is_on
from regard.engine.triton.launch.untested import warn_untested

__all__ = ["launcher_of"]

SLOWER = "every launch goes through Triton's public API, so short texts wait longer"

# The most descriptors of a kernel that are kept.
MOST_DESCRIPTORS = 256

Launcher = Callable[[tuple[int, ...], Sequence[Any]], None]


def launcher_of(compiled: Any, device: int) -> Launcher:
    """A function of a grid and arguments that launches a compiled kernel on a device.

    It does what Triton does, except for scratch memory, which our kernels don't use; while launch hooks are
    set, Triton's own launch runs. With `by_address`, addresses may take the place of tensors.
    """
    import triton

    def public(grid: tuple[int, ...], values: Sequence[Any]) -> None:
        compiled[grid](*values)

    if not isinstance(compiled, triton.compiler.CompiledKernel) or not replay_is_on():
        return public
    if not triton.__version__.startswith(TESTED_TRITON):
        warn_untested(triton.__version__, SLOWER)
        return public
    launcher: Any = compiled.run
    sanitised = getattr(launcher, "gsan_enabled", False)
    if sanitised or launcher.global_scratch_size or launcher.profile_scratch_size:
        return public
    return _private(compiled, device, public)


def _private(compiled: Any, device: int, public: Launcher) -> Launcher:
    from triton import knobs
    from triton.runtime import driver

    active: Any = driver.active
    launcher: Any = compiled.run
    launch, stream = launcher.launch, active.get_current_stream
    options = (launcher.launch_cooperative_grid, launcher.launch_pdl)
    # From Triton 3.7 on one function launches all kernels and takes the types of their arguments.
    shared = hasattr(launcher, "kernel_signature")
    if shared:
        types = (launcher.arg_annotations, launcher.kernel_signature)
        options += (compiled.packed_metadata, None, None, None, None, None, *types)
    else:
        options += (None, None, compiled.packed_metadata, None, None, None)
    function, hooks = compiled.function, knobs.runtime
    expand = None
    wrapped = _expanded(launch)
    if wrapped is not None:
        launch, expand = wrapped

    def fast(grid: tuple[int, ...], values: Sequence[Any]) -> None:
        if hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls:
            public(grid, values)
            return
        values = values if expand is None else expand(values)
        if shared:
            launch(*grid, stream(device), function, *options, values)
        else:
            launch(*grid, stream(device), function, *options, *values)

    fast.by_address = True  # pyright: ignore[reportFunctionMemberAccess]
    return fast


def _expanded(launch: Any) -> tuple[Any, Callable[[Sequence[Any]], list[Any]]] | None:
    """The launcher inside Triton's wrapper for kernels with descriptors, and a function that does what the
    wrapper does; None if there is no such wrapper.

    The wrapper looks at all arguments in Python, in every launch, to find the few that are descriptors.
    """
    names: tuple[str, ...] = getattr(getattr(launch, "__code__", None), "co_freevars", ())
    cells: tuple[Any, ...] = getattr(launch, "__closure__", None) or ()
    inside: dict[str, Any] = {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}
    if not inside.keys() >= {"launcher", "tensordesc_indices", "tensordesc_meta"}:
        return None
    from triton.backends.nvidia.driver import make_tensordesc_arg

    # From the last on: each takes the place of one argument.
    described = list(zip(sorted(inside["tensordesc_indices"]), inside["tensordesc_meta"], strict=True))[::-1]
    known: dict[tuple[int, int, int], tuple[Any, Any, list[Any]]] = {}

    def expand(values: Sequence[Any]) -> list[Any]:
        expanded = list(values)
        for index, meta in described:
            x = expanded[index]
            # Replayed calls pass the same lists as shape and strides, and mostly find the same addresses.
            # The lists are kept, so that no other gets their id.
            key = (index, x.base.data_ptr(), id(x.shape))
            shape, strides, found = known.get(key, (None, None, []))
            if shape is not x.shape or strides is not x.strides:
                if len(known) >= MOST_DESCRIPTORS:
                    known.clear()
                found = make_tensordesc_arg(x, meta)
                # Without metadata it holds the tensor itself, which must not be kept.
                if meta is not None:
                    known[key] = (x.shape, x.strides, found)
            expanded[index : index + 1] = found
        return expanded

    return inside["launcher"], expand
