"""CUDA C++ compiled at run time by NVRTC, which comes with PyTorch's builds for NVIDIA GPUs: no compiler is needed.

A kernel compiled once is kept in Saccade's cache, by its source, its options and the GPU it is for.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.ops.machine_code import machine_code

Argument = Tensor | ctypes._SimpleCData  # type: ignore[type-arg]


@cache
def nvrtc_missing() -> str | None:
    """Why CUDA C++ cannot be compiled here; where there is a GPU and it cannot, one line says so."""
    try:
        _nvrtc()
    except OSError:
        print("note: NVRTC, which comes with PyTorch for CUDA, was not found: slower kernels are used", file=sys.stderr)
        return "NVRTC, which comes with PyTorch for CUDA, was not found"
    return None


@cache
def cuda_kernel(source: str, name: str, options: tuple[str, ...], device: int) -> ctypes.c_void_p:
    """A kernel of one of this folder's files, compiled with these options for a GPU, ready to be launched there."""
    text = resources.files("saccade.ops.cuda").joinpath(source).read_text(encoding="utf-8")
    major, minor = torch.cuda.get_device_capability(device)
    words = ("-std=c++17", f"-arch=sm_{major}{minor}", *options)
    key = hashlib.sha256("\0".join((text, torch.version.cuda or "", *words)).encode()).hexdigest()[:32]
    code = machine_code("kernels", f"{Path(source).stem}-{key}.cubin", lambda: compile_source(text, source, words))
    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # there is a context from here on
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        _check("load", _driver().cuModuleLoadData(ctypes.byref(module), code))
        _check("find", _driver().cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
    return function


def launch(kernel: ctypes.c_void_p, grid: tuple[int, int], threads: int, arguments: Sequence[Argument]) -> None:
    """On the current stream; tensors are handed over by their addresses."""
    values = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, Tensor) else a for a in arguments]
    places = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.pointer(v), ctypes.c_void_p).value for v in values))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    _check("launch", _driver().cuLaunchKernel(kernel, *grid, 1, threads, 1, 1, 0, stream, places, None))


def compile_source(text: str, name: str, options: Sequence[str]) -> bytes:
    """Machine code for a GPU."""
    nvrtc, program, size = _nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
    words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), words)
    what = "ProgramLog" if failed else "CUBIN"
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    found = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, found)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    if failed:
        raise SaccadeError(f"{name} could not be compiled for this GPU: {found.value.decode(errors='replace')[:500]}")
    return found.raw


def _check(what: str, code: int) -> None:
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        raise SaccadeError(f"the GPU's driver could not {what} a kernel: {(text.value or b'?').decode()}")


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@cache
def _nvrtc() -> ctypes.CDLL:
    version = (torch.version.cuda or "0").split(".")[0]
    library = f"libnvrtc.so.{version}"
    spec = importlib.util.find_spec("nvidia")  # where packages of PyTorch's dependencies keep it
    folders = (spec.submodule_search_locations or []) if spec else []
    for path in (path for folder in folders for path in Path(folder).glob(f"*/lib/{library}")):
        for part in path.parent.glob(f"libnvrtc-builtins.so.{version}*"):
            ctypes.CDLL(str(part), mode=ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(str(path))
    return ctypes.CDLL(library)
