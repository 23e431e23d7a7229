"""The native kernels: how they are built and chosen, and that nothing is missing without them."""

from __future__ import annotations

import ctypes
import importlib.util
import platform
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.folded import BUILDS, CAPABILITY, LOADED, assert_same, both, every_statistic, where_kernels_are
from engine.harness import qkv
from regard import attention, explain_dispatch, observe
from regard.engine import library, native
from regard.engine.native import availability, folding
from regard.masks import Causal, Window
from regard.stats import Entropy

ROOT = Path(__file__).parents[2]


def exact_ulps(x: Tensor, y: Tensor) -> Tensor:
    """How far y is from e^x, in steps of float32 around it."""
    truth = x.double().exp()
    near = truth.float()
    step = (torch.nextafter(near, near.new_tensor(torch.inf)) - near).double()
    return (y.double() - truth).abs() / step


@where_kernels_are
@pytest.mark.parametrize("capability", BUILDS)
def test_the_exponential_is_within_two_ulp_subnormal_results_included(capability):
    loaded = native.load(capability=capability)
    # On ARM PyTorch says DEFAULT of every processor, and they all have NEON.
    default = "NEON" if platform.machine().lower() in ("aarch64", "arm64") else "baseline"
    assert loaded.isa == {"DEFAULT": default}.get(capability, capability)
    x = torch.cat([torch.linspace(-103.9, 1.0, 2_000_001), -torch.logspace(-30, 2, 100_001)])
    y = loaded.exp(x)
    assert float(exact_ulps(x, y).max()) <= 2.0
    special = torch.tensor([0.0, -0.0, -104.0, -1e4, -torch.inf])
    assert loaded.exp(special).tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]


@where_kernels_are
@pytest.mark.parametrize("capability", BUILDS)
def test_the_logarithm_is_right_to_the_last_digit(capability):
    loaded = native.load(capability=capability)
    near_one = 1 + torch.linspace(-1e-3, 1e-3, 100_001)
    x = torch.cat([torch.logspace(-37.9, 0, 1_000_001), torch.linspace(0.5, 1.5, 100_001), near_one])
    truth = x.double().log()
    assert bool(((loaded.log(x) - truth).abs() <= 1.5e-7 * truth.abs()).all())
    assert loaded.log(torch.ones(1)).item() == 0.0


@where_kernels_are
@pytest.mark.parametrize("capability", BUILDS)
def test_every_build_says_the_same(capability, monkeypatch):
    monkeypatch.setattr(folding, "load", lambda: native.load(capability=capability))
    torch.manual_seed(12)
    assert_same(*both(qkv(130, 600, batch=1, heads=2), mask=Causal() & Window(400)))


@where_kernels_are
def test_a_library_built_from_other_sources_is_not_used(monkeypatch):
    class Longer(ctypes.Structure):
        _fields_ = (*library.Job._fields_, ("more", ctypes.c_int64))

    monkeypatch.setattr(library, "Job", Longer)
    wrong = "the native kernels were built from other sources than these; install regard again"
    assert library.load.__wrapped__() == wrong


@where_kernels_are
def test_a_library_without_one_of_the_functions_is_not_used(monkeypatch):
    monkeypatch.setattr(library, "SYMBOLS", (*library.SYMBOLS, "regard_newer"))
    found = library.load.__wrapped__()
    assert re.fullmatch(
        r"fold-\S+ lacks regard_newer: it was built from other sources; install regard again", found
    )


def test_a_file_that_is_no_library_is_not_used(tmp_path):
    (tmp_path / f"fold-{library.BUILDS.get(CAPABILITY, 'generic')}.so").write_text("not a library")
    assert library.load.__wrapped__(tmp_path).startswith("the native kernels do not load: ")


# -- without them ----------------------------------------------------------------------------------------


@where_kernels_are
def test_without_the_kernels_everything_is_still_there(monkeypatch, tmp_path):
    torch.manual_seed(13)
    leaves, mask = qkv(130, 130, heads=4, kv_heads=2), Causal()
    stats = list(every_statistic(130, 130, 4, 16).values())
    ours = observe(**leaves, mask=mask, stats=stats)
    none = library.load.__wrapped__(tmp_path)
    assert none == "the native kernels were not built when regard was installed"
    monkeypatch.setattr(availability, "load", lambda: none)
    assert explain_dispatch(**leaves).second_pass == f"torch operations: {none}"
    without = observe(**leaves, mask=mask, stats=stats)
    assert_same(ours.stats, without.stats)
    assert torch.equal(ours.out, without.out)


@where_kernels_are
def test_the_dispatch_says_what_reads_the_map():
    leaves = qkv(5, 5)
    assert explain_dispatch(**leaves).second_pass == f"native kernels ({LOADED.isa})"
    by_name = explain_dispatch(**leaves, backend="torch")
    assert by_name.second_pass == "torch operations: asked for by name"
    double = {name: x.double() for name, x in leaves.items()}
    wanted = "torch operations: the native kernels compute in float32, and q is float64"
    assert explain_dispatch(**double).second_pass == wanted


@where_kernels_are
def test_row_statistics_ride_only_where_that_is_cheaper(monkeypatch):
    called = []
    fold = native.fold
    monkeypatch.setattr(native, "fold", lambda *a: (called.append(1), fold(*a))[1])
    leaves = qkv(65, 65)
    few = qkv(5, 300)  # laying out so many keys anew costs more than five queries save
    assert torch.equal(observe(**few, stats=[Entropy()]).out, attention(**few))
    assert called == [1]
    for options in ({"backend": "torch"}, {"differentiable": True}, {"softcap": 5.0}):
        observe(**leaves, stats=[Entropy()], **options)
    assert called == [1]


# -- how they are built ----------------------------------------------------------------------------------


@pytest.fixture
def builder(tmp_path, monkeypatch):
    """building/native.py, with a copy of the sources to work on."""
    spec = importlib.util.spec_from_file_location("native_builder", ROOT / "building" / "native.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shutil.copytree(ROOT / module.FOLDER, tmp_path / module.FOLDER, ignore=shutil.ignore_patterns("fold-*"))
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def test_without_a_compiler_the_build_asks_for_one_and_says_what_is_missing(
    builder, monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(builder, "_system_compiler", lambda: None)
    monkeypatch.setattr(builder, "_zig", lambda: None)
    assert builder.requirements() == ["ziglang>=0.13"]
    assert builder.build(tmp_path) == []
    assert builder.wheel_tag() is None
    said = capsys.readouterr().err
    assert "regard's native kernels were not built: there is no C compiler\n" in said
    assert "regard works without them; observing is slower." in said


def test_kernels_can_be_left_out_of_a_wheel(builder, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("REGARD_BUILD_NATIVE", "0")
    assert builder.build(tmp_path) == []
    assert builder.wheel_tag() is None
    assert capsys.readouterr().err == ""


def test_gcc_is_not_taken_on_windows_where_it_misaligns_vectors(builder, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(builder.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(builder.sys, "platform", "win32")
    assert builder._system_compiler() == ["clang"]
    monkeypatch.setattr(builder.shutil, "which", lambda name: name if name in ("cc", "gcc") else None)
    assert builder._system_compiler() is None


def test_a_compiler_that_fails_is_quoted_and_stops_nothing(builder, monkeypatch, capsys, tmp_path):
    complaint = [sys.executable, "-c", "raise SystemExit('no such instruction')"]
    monkeypatch.setattr(builder, "_system_compiler", lambda: complaint)
    assert builder.requirements() == []
    assert builder.build(tmp_path) == []
    assert "failed:\nno such instruction" in capsys.readouterr().err


def test_zig_is_told_the_processor_as_it_spells_it(builder, monkeypatch, capsys, tmp_path):
    says = [sys.executable, "-c", "import sys; raise SystemExit(' '.join(sys.argv[1:]))"]
    monkeypatch.setattr(builder, "_system_compiler", lambda: None)
    monkeypatch.setattr(builder, "_zig", lambda: says)
    monkeypatch.setattr(builder, "_builds", lambda: builder.STEPS)
    builder.build(tmp_path)
    given = re.findall(r"-march=(\S+)", capsys.readouterr().err.split("failed:\n", 1)[1])
    assert {"x86_64_v2", "x86_64_v3", "x86_64_v4"} <= set(given)
    assert not any(name.startswith("x86-64") for name in given)


@pytest.mark.long
def test_a_compiler_makes_a_library_for_this_platform(builder, monkeypatch, tmp_path):
    if builder._system_compiler() is None:
        pytest.skip("there is no C compiler")
    name, flags = next(iter(builder._builds().items()))
    monkeypatch.setattr(builder, "_builds", lambda: {name: flags})
    [made] = builder.build(tmp_path)
    assert made.stem == f"fold-{name}"
    assert re.fullmatch(
        r"py3-none-(manylinux_2_17|linux|musllinux_\d_\d|macosx_\d+_\d+|win)_\w+", builder.wheel_tag()
    )
