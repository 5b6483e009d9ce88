"""The Python that .ci/make-torch-python makes: PyTorch's own, except that CUDA's libraries are stand-ins."""
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
import torch_python
from cases import LIMIT, expect


def python(script, *options):
    return subprocess.run([torch_python.python(), *options, "-c", script], capture_output=True, text=True, timeout=LIMIT, check=False)


def test_imports_the_pinned_release_in_silence_and_without_cuda():
    done = python("import torch; print(torch.__version__, torch.cuda.is_available())", "-W", "error")
    pinned = re.search(r"\btorch==(\S+?)[\s)]", (ROOT / ".ci/install").read_text()).group(1)
    expect(done.returncode == 0 and not done.stderr, f"{done}")
    expect(re.fullmatch(rf"{re.escape(pinned)}(\+\S+)? False\n", done.stdout), f"{done.stdout!r}, pinned: {pinned}")


def test_finds_a_compiled_file_for_each_module():
    """Pods mount the packages read-only: they could not keep what they compile."""
    done = python("import os, sys, torch.nn.parallel, torch.optim\n"
                  "specs = [module.__spec__ for name, module in list(sys.modules.items()) if name.startswith(('torch.', 'numpy.', 'sympy.'))]\n"
                  "files = [spec.cached for spec in specs if spec and spec.cached]\n"
                  "print(len(files), *(file for file in files if not os.path.exists(file)))")
    expect(done.returncode == 0, done.stderr)
    count, *absent = done.stdout.split()
    expect(int(count) > 500 and not absent, f"of {count} modules: {absent}")


def test_a_call_of_cuda_ends_with_its_name():
    done = python("import ctypes, torch; ctypes.CDLL(torch.__path__[0] + '/lib/libcublas.so.13').cublasCreate_v2()")
    expect(done.returncode < 0 and "cublasCreate_v2 was called, but this PyTorch is for the CPU only" in done.stderr, f"{done}")
