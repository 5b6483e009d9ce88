#!/usr/bin/env python3
"""Compiles a CUDA source by NVIDIA's runtime compiler, which needs no GPU and no toolkit, into a C++ source that holds the machine code.

compile_kernels.py LIBNVRTC SOURCE OUTPUT

Machine code, not PTX: a driver of an earlier CUDA 13 does not read the PTX of a later one. Code for one architecture runs on all later ones
with the same first digit.
"""
import ctypes
import pathlib
import sys

ARCHITECTURES = [75, 80, 90, 100, 120]  # Turing, Ampere and Ada, Hopper, Blackwell


def checked(nvrtc, result, log=""):
    if result != 0:
        name = ctypes.cast(nvrtc.nvrtcGetErrorString(result), ctypes.c_char_p).value.decode()
        sys.exit(f"{name}\n{log}")


def text_of(nvrtc, program, size_of, get):
    size = ctypes.c_size_t()
    checked(nvrtc, size_of(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    checked(nvrtc, get(program, buffer))
    return buffer.raw


def compiled(nvrtc, path, architecture):
    program = ctypes.c_void_p()
    checked(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), path.read_bytes(), str(path).encode(), 0, None, None))
    options = [f"--gpu-architecture=sm_{architecture}".encode(), b"--std=c++17"]
    result = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    log = text_of(nvrtc, program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode(errors="replace").strip("\0\n")
    checked(nvrtc, result, log)
    if log:
        sys.exit(log)  # warnings are errors
    code = text_of(nvrtc, program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    checked(nvrtc, nvrtc.nvrtcDestroyProgram(ctypes.byref(program)))
    return code


def main():
    library, source, output = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    for builtins in pathlib.Path(library).parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins))  # which the compiler looks for by its name alone
    nvrtc = ctypes.CDLL(library)
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_void_p
    lines = [f"// Of {source.name}, by compile_kernels.py.", '#include "runtime/cuda/machine_code.h"', "", "namespace lockstep::cuda {", "namespace {"]
    for architecture in ARCHITECTURES:
        code = compiled(nvrtc, source, architecture)
        lines.append(f"alignas(16) constexpr unsigned char kCode{architecture}[] = {{{','.join(map(str, code))}}};")
    entries = ", ".join(f"{{{architecture}, kCode{architecture}}}" for architecture in ARCHITECTURES)
    name = "".join(part.title() for part in source.stem.split("_"))
    lines += ["}  // namespace", f"std::vector<MachineCode> {name}Code() {{ return {{{entries}}}; }}", "}  // namespace lockstep::cuda", ""]
    output.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
