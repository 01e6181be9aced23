"""Compiles the CUDA kernels to PTX, and assembles that for each architecture.

python tools/make_ptx.py PACKAGES [--check]

PACKAGES: a folder that `make ptx` fills with packages of PyPI: in 12.0 the
compiler and the assembler of CUDA 12.0, in 12.9 the assembler of CUDA 12.9. The
compiler of 12.0 is the last that writes PTX of ISA 8.0, which every driver from
CUDA 12.0 on loads. With --check, nothing is written, and it is an error if the
kernels that are committed are others.
"""

import argparse
import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCE = ROOT / "csrc/cuda/kernels/kernels.cu"
COMMITTED = ROOT / "csrc/cuda/kernels/kernels.ptx.inc"
OPTIONS = (
    "--gpu-architecture=compute_60",
    "--std=c++17",
    "--fmad=false",
    f"--include-path={ROOT}",
)
# Version of the assembler -> what it assembles for.
ARCHITECTURES = {
    "12.0": ("sm_60", "sm_80", "sm_90"),
    "12.9": ("sm_100", "sm_120"),
}
# What compilers accept of one string literal.
LITERAL = 16000


def compile_to_ptx(packages: pathlib.Path) -> str:
    """Returns the PTX of the kernels.

    Args:
      packages: see above.

    Raises:
      RuntimeError: with the compiler's messages.
    """
    (folder,) = packages.glob("12.0/nvidia/cuda_nvrtc/lib")
    # The compiler looks for it by its name alone.
    for builtins in folder.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(folder / "libnvrtc.so.12"))
    program = ctypes.c_void_p()

    def check(code: int) -> None:
        if code:
            size = ctypes.c_size_t()
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(f"NVRTC: error {code}\n{log.value.decode()}")

    check(
        nvrtc.nvrtcCreateProgram(
            ctypes.byref(program),
            SOURCE.read_bytes(),
            SOURCE.name.encode(),
            0,
            None,
            None,
        )
    )
    options = (ctypes.c_char_p * len(OPTIONS))(*(o.encode() for o in OPTIONS))
    check(nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options))
    size = ctypes.c_size_t()
    check(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetPTX(program, text))
    # Without comments and blank lines.
    lines = [
        line.split("//")[0].rstrip()
        for line in text.value.decode().splitlines()
    ]
    return "\n".join(line for line in lines if line) + "\n"


def as_literals(ptx: str) -> str:
    """Returns `ptx` as string literals of C++, each with a comma."""
    pieces = [ptx[i : i + LITERAL] for i in range(0, len(ptx), LITERAL)]
    return "".join(f'R"ptx({piece})ptx",\n' for piece in pieces)


def assemble(ptx: str, packages: pathlib.Path) -> None:
    """Assembles `ptx` for each architecture, and prints what a kernel takes."""
    with tempfile.TemporaryDirectory() as scratch:
        source = pathlib.Path(scratch) / "kernels.ptx"
        source.write_text(ptx)
        for version, architectures in ARCHITECTURES.items():
            (ptxas,) = packages.glob(f"{version}/nvidia/cuda_nvcc/bin/ptxas")
            ptxas.chmod(0o755)
            for architecture in architectures:
                done = subprocess.run(
                    [
                        *(ptxas, "-v", f"-arch={architecture}", source),
                        *("-o", source.with_suffix(".cubin")),
                    ],
                    capture_output=True,
                    text=True,
                )
                if done.returncode:
                    raise RuntimeError(f"{architecture}: {done.stderr}")
                registers = re.findall(r"Used (\d+) registers", done.stderr)
                spills = re.findall(r"(\d+) bytes spill stores", done.stderr)
                print(
                    f"{architecture}: {len(registers)} kernels,"
                    f" {max(map(int, registers))} registers at most,"
                    f" {max(map(int, spills))} bytes spilled at most"
                )


def main() -> None:
    """Writes the file, or compares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    ptx = compile_to_ptx(args.packages)
    assemble(ptx, args.packages)
    if not args.check:
        COMMITTED.write_text(as_literals(ptx))
    elif COMMITTED.read_text() != as_literals(ptx):
        sys.exit(f"{COMMITTED.relative_to(ROOT)} is not what `make ptx` writes")


if __name__ == "__main__":
    main()
