"""From text to library: rewrites, options, messages, lines, the cache."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sprigs_emulator as emulator

KERNEL = 'extern "C" __global__ void k(int* x) {{ {} }}'


def run(text, options=(), n=1, name="k", **launch):
    x = np.zeros(n, np.int32)
    emulator.compile(text, options)[name](1, n, (x,), **launch)
    return x


@pytest.mark.parametrize(
    ("call", "name", "header"),
    [
        ("x[0] = __frobnicate(x[1]);", "__frobnicate", "intrinsics.h"),
        ("__shfl_sideways_sync(~0u, 1, 2);", "__shfl_sideways_sync", "warp.h"),
        ("atomicMul(x, 2);", "atomicMul", "atomics.h"),
        ("x[0] = __hquux(x[1]);", "__hquux", "narrow_floats.h"),
        ("x[0] = __fnord_rn(2.0f);", "__fnord_rn", "math.h"),
    ],
)
def test_unknown_intrinsic_is_named_with_the_header_to_extend(call, name, header):
    with pytest.raises(emulator.CompileError) as caught:
        emulator.compile("\n\n" + KERNEL.format(call))
    assert f"kernel.cu:3: unknown intrinsic `{name}`" in str(caught.value)
    assert header in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (KERNEL.format('asm("mov.u32 %0, %laneid;" : "=r"(x[0]));'), "kernel.cu:1: inline PTX"),
        (KERNEL.format("k<<<1, 1>>>(x);"), "kernel.cu:1: kernels cannot launch kernels"),
        ("\n__shared__ int s;\n" + KERNEL.format("x[0] = s;"), "kernel.cu:2: a __shared__ variable at file scope"),
        ("int f() { return 1; }", "there is no __global__ function"),
        ("template <class T> __global__ void t(T* x) {}", "instantiate t by name_expressions"),
        (KERNEL.format("x[0] = 1"), "kernel.cu:1:"),
        ("#include <nothing.cuh>\n" + KERNEL.format(""), "there is no header 'nothing.cuh'"),
        ('#include "cooperative_groups.h"\n' + KERNEL.format(""), "there is no header 'cooperative_groups.h'"),
        (KERNEL.format("long long y = 0; atomicMin((char*)x, 1);"), "atomicMin does not exist for this type"),
        ("#error give me up\n" + KERNEL.format(""), "give me up"),
        ("__device__ int missing(int);\n" + KERNEL.format("x[0] = missing(1);"), "missing"),
    ],
)
def test_text_that_cannot_be_emulated(text, message):
    with pytest.raises(emulator.CompileError) as caught:
        emulator.compile(text)
    assert message in str(caught.value)


def test_unused_ptx_is_no_obstacle():
    text = '#define LANE(x) asm("mov.u32 %0, %laneid;" : "=r"(x))\n' + KERNEL.format(
        "\n#ifdef SPRIGS_EMULATOR\nx[threadIdx.x] = 1;\n#else\nLANE(x[threadIdx.x]);\n#endif\n"
    )
    assert run(text, n=32).tolist() == [1] * 32


def test_macros_may_have_any_name():
    """Those of the runtime's own templates among them."""
    names = [chr(c) for c in range(ord("A"), ord("Z") + 1)]
    text = 'extern "C" __global__ void sum(int* y) { __syncthreads(); y[threadIdx.x] = ' + " + ".join(names) + "; }"
    options = [f"-D{name}={k}" for k, name in enumerate(names)] + ["-Dsize=7", "-UZ", "-DZ"]
    y = np.zeros(4, np.int32)
    emulator.compile(text, options=options)["sum"](1, 4, (y,))
    assert (y == sum(range(25)) + 1).all()


def test_options(tmp_path):
    (tmp_path / "own.cuh").write_text(
        "#pragma once\n__device__ int own(int i) {\n  __shared__ int s[32];\n  s[i] = VALUE;\n  __syncthreads();\n"
        "  return s[31 - i];\n}\n"
    )
    text = '#include "own.cuh"\n' + KERNEL.format("x[threadIdx.x] = own(threadIdx.x) + ONE;")
    assert (
        run(text, ["-DVALUE=40", "-D", "ONE", "-I", str(tmp_path), "--use_fast_math", "-std=c++14"], n=32) == 41
    ).all()
    (tmp_path / "own.cuh").write_text("__device__ int own(int i) { return VALUE + i * 0; }\n")
    assert (run(text, ["-DVALUE=2", "-DONE", f"-I{tmp_path}"], n=32) == 3).all()
    architecture = KERNEL.format("x[0] = __CUDA_ARCH__;")
    assert [run(architecture, o)[0] for o in ([], ["-arch=sm_80"], ["-D__CUDA_ARCH__=750"])] == [900, 800, 750]
    with pytest.raises(ValueError, match="--frobnicate"):
        emulator.compile(text, ["--frobnicate"])
    with pytest.raises(TypeError, match="sequence of strings"):
        emulator.compile(text, "-DVALUE=2")


def test_faults_in_the_users_own_headers_name_file_and_line(tmp_path):
    (tmp_path / "own.cuh").write_text("\n\n__device__ void own(int* x, int i) {\n  x[i] = 1;\n}\n")
    text = '#include "own.cuh"\n' + KERNEL.format("own(x, 32 + threadIdx.x);")
    with pytest.raises(emulator.MemcheckError) as caught:
        run(text, [f"-I{tmp_path}"], n=32)
    assert (caught.value.line, Path(caught.value.file).name) == (4, "own.cuh")


SHARED = r"""
#define N 32
#define TILE(T, name) __shared__ T name[N]
typedef struct { float re, im; } Complex;
extern __shared__ double buffer[];
namespace tools {
template <typename T> __device__ T turned(T v, int i) {
    TILE(T, turning);
    turning[i] = v;
    __syncthreads();
    T w = turning[N - 1 - i];
    __syncthreads();
    return w;
}
}
extern "C" {
__global__ void __launch_bounds__(N, 2) k(int *x) {
    __shared__ int a[2][N / 2], *pointer, count;
    __shared__
        Complex
        c[N];
    static __shared__ __align__(16) unsigned char raw[16];
    int i = threadIdx.x;
    if (i == 0) { pointer = &a[0][0]; count = (int)(sizeof(a) / sizeof(int)); raw[3] = 7; }
    a[i / 16][i % 16] = i;
    c[i].re = i, c[i].im = -i;
    buffer[i] = i;
    __syncthreads();
    int s = pointer[count - 1 - i] + tools::turned(i, i) + (int)tools::turned(2.0, i) + (int)c[31 - i].im + raw[3];
    if (((unsigned long long)raw & 15) != 0) s = -1;
    x[i] = s + (int)buffer[31 - i];
    x[i + 32] = __LINE__;
}
}
"""


@pytest.mark.parametrize("checks", ["all", "fast"])
def test_shared_declarations(checks):
    x = np.zeros(64, np.int32)
    module = emulator.compile(SHARED)
    module["k"](1, 32, (x,), shared=256, seed=range(4), checks=checks)
    back = 31 - np.arange(32)
    assert x[:32].tolist() == (back + back + 2 - back + 7 + back).tolist()
    assert (x[32:] == SHARED.splitlines().index("    x[i + 32] = __LINE__;") + 1).all()
    with pytest.raises(emulator.LaunchError, match="__launch_bounds__ allows 32"):
        module["k"](1, 64, (x,), shared=256)
    with pytest.raises(emulator.MemcheckError, match="dynamic shared memory"):
        module["k"](1, 32, (x,), shared=128, checks=checks)


@pytest.mark.parametrize(
    ("size", "elements"),
    [("1 << 4", 16), ("(1u << 2 * 2)", 16), ("N * N", 16), ("sizeof(int) > 3 ? 16 : 8", 16), ("64 >> 2", 16)],
)
def test_sizes_of_shared_arrays_may_be_expressions(size, elements):
    text = f"""
    #define N (1u << 2)
    extern "C" __global__ void k(int* y) {{
        __shared__ int a[{size}], b[{size}];
        a[threadIdx.x] = b[threadIdx.x] = threadIdx.x;
        __syncthreads();
        y[threadIdx.x] = a[{elements - 1} - threadIdx.x] + b[threadIdx.x];
    }}
    """
    y = np.zeros(elements, np.int32)
    emulator.compile(text)["k"](1, elements, (y,), seed=range(3))
    assert (y == elements - 1).all()


def test_shared_memory_of_interleaved_blocks_is_apart():
    text = r"""
    extern __shared__ int dynamic[];
    extern "C" __global__ void k(int* x) {
        __shared__ int s;
        if (threadIdx.x == 0) { s = blockIdx.x; dynamic[0] = 2 * blockIdx.x; }
        __syncthreads();
        x[blockIdx.x * blockDim.x + threadIdx.x] = s + dynamic[0];
    }"""
    module = emulator.compile(text)
    for checks in ("all", "fast"):
        x = np.zeros(8 * 32, np.int32)
        module["k"](8, 32, (x,), shared=4, interleave=5, seed=range(5), checks=checks)
        assert x.tolist() == np.repeat(3 * np.arange(8), 32).tolist()


def test_names_of_kernels():
    text = "template <int N> __global__ void t(int* x) { x[threadIdx.x] = N; }\n__global__ void declared(int);\n" + (
        KERNEL.format("x[0] = 2;")
    )
    module = emulator.compile(text, name_expressions=["t<5>", "t<6>"])
    assert module.kernels == ("k", "t<5>", "t<6>")
    x = np.zeros(4, np.int32)
    module["t<6>"](1, 4, (x,))
    assert x.tolist() == [6] * 4
    with pytest.raises(KeyError, match="it has k, t<5>, t<6>"):
        module["t<7>"]
    with pytest.raises(emulator.CompileError, match="names no __global__ function"):
        emulator.compile(text, name_expressions=["u<5>"])


def test_strings_comments_and_raw_text_are_left_alone():
    text = KERNEL.format(r"""
        // __shared__ int asm volatile <<< in a comment
        const char* s = "__shared__ asm(\"<<<\"); // {";
        const char c = '{', d = '\'';
        x[0] = s[0] + c + d + 1'000 * (sizeof("__global__") == 11);""")
    assert run(text)[0] == ord("_") + ord("{") + ord("'") + 1000


def test_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPRIGS_EMULATOR_CACHE", str(tmp_path / "cache"))
    text = KERNEL.format("x[0] = 11;")
    assert run(text)[0] == 11
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}
    assert sorted({path.suffix for path in files}) == [".json", ".so"]
    assert run(text)[0] == 11
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()} == files
    assert run(text.replace("11", "12"))[0] == 12
    assert len(list((tmp_path / "cache").iterdir())) == len(files) + 2


def test_compiler_is_found_or_missed_clearly(tmp_path, monkeypatch):
    monkeypatch.setenv("SPRIGS_EMULATOR_CXX", "no-such-compiler")
    with pytest.raises(emulator.CompilerNotFound, match="SPRIGS_EMULATOR_CXX=no-such-compiler"):
        emulator.find_compiler()
    monkeypatch.delenv("SPRIGS_EMULATOR_CXX")
    monkeypatch.setenv("CXX", "no-such-wrapper g++ -O2")
    assert emulator.find_compiler().path.endswith(("g++", "clang++", "c++"))
    monkeypatch.delenv("CXX")
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(emulator.CompilerNotFound, match="broken"):
        emulator.find_compiler()
    broken.unlink()
    with pytest.raises(emulator.CompilerNotFound, match=r"no C\+\+ compiler"):
        emulator.find_compiler()
    with pytest.raises(emulator.CompilerNotFound):
        emulator.compile(KERNEL.format(""))


OTHER = r"""
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import sprigs_emulator as emulator, zoo
for path in zoo.FAULTY:
    specimen = zoo.read(path)
    fast = path.stem in zoo.FAST
    try:
        specimen.run(seed=2, checks="fast" if fast else "all")
    except zoo.CHECKS[specimen.expect[0]] as error:
        if specimen.here and not fast and error.line not in specimen.here:
            print(path.stem, "line", error.line)
    else:
        print(path.stem, "not caught")
for path in zoo.FIXED:
    zoo.read(path).run(seed=range(10))
n = 100000
x, y = np.ones(n, np.float32), np.zeros(n, np.float32)
text = 'extern "C" __global__ void k(float* y, float v) { y[blockIdx.x * blockDim.x + threadIdx.x] = v; }'
k = emulator.compile(text)
k["k"](n // 100, 100, (y, np.float32(3)), checks="fast")
assert (y == 3).all()
print("done", emulator.find_compiler())
"""


@pytest.mark.parametrize("variables", [{"SPRIGS_EMULATOR_CXX": "clang++"}, {"SPRIGS_EMULATOR_UCONTEXT": "1"}], ids=str)
def test_the_zoo_under_another_compiler_or_context_switch(variables):
    import shutil

    if not shutil.which(variables.get("SPRIGS_EMULATOR_CXX", "c++")):
        pytest.skip("clang++ is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", OTHER, str(Path(__file__).parent)],
        capture_output=True, text=True, check=False, env={**os.environ, **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("done "), done.stdout
    assert "clang" in done.stdout or "SPRIGS_EMULATOR_CXX" not in variables
