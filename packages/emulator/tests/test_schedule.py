"""Seeds, interleaving, limits, and how a launch lives with the process it runs in."""

import faulthandler
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import sprigs_emulator as emulator

ORDER = r"""
extern "C" __global__ void order(unsigned* next, unsigned* out) {
    unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
    out[atomicAdd(next, 1u)] = me;
}
extern "C" __global__ void by_plain_writes(int* x, float* sum) {
    atomicAdd(sum, 0.1f * (1 + threadIdx.x % 7));
    __syncthreads();
    if (threadIdx.x == 0) *x = 1;
}
extern "C" __global__ void last_writer(int* x) { atomicExch(x, (int)threadIdx.x); }
"""


@pytest.fixture(scope="module")
def order():
    return emulator.compile(ORDER)


def run_order(order, seed, grid=4, **launch):
    out = np.zeros(grid * 32, np.uint32)
    order["order"](grid, 32, (np.zeros(1, np.uint32), out), seed=seed, **launch)
    assert sorted(out) == list(range(grid * 32))
    return out


@pytest.mark.parametrize("checks", ["all", "fast"])
def test_the_seed_decides_the_order(order, checks):
    first, again, other = (run_order(order, seed, checks=checks) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()
    assert first.tolist() != sorted(first)


def test_blocks_are_shuffled_and_interleaved(order):
    alone = run_order(order, 5) // 32
    assert [alone[i] for i in range(0, 128, 32)] != [0, 1, 2, 3]
    assert all(len(set(alone[i : i + 32])) == 1 for i in range(0, 128, 32))
    together = run_order(order, 5, interleave=4) // 32
    assert any(len(set(together[i : i + 32])) > 1 for i in range(0, 128, 32))


def test_a_delayed_block_comes_last(order):
    for seed in range(5):
        out = run_order(order, seed, grid=8, interleave=8, delay_block=3) // 32
        assert (out[-30:] == 3).all()


def test_determinism(order):
    with pytest.raises(emulator.DeterminismError, match=r"x\[0\] is .* under seed 0 and") as caught:
        order.determinism("last_writer", 1, 64, (np.zeros(1, np.int32),), seeds=10)
    assert (caught.value.array, caught.value.index) == ("x", 0)
    x, total = np.zeros(1, np.int32), np.zeros(1, np.float32)
    with pytest.raises(emulator.DeterminismError, match="sum"):
        order.determinism("by_plain_writes", 1, 256, (x, total * 0), seeds=20)
    order.determinism("by_plain_writes", 1, 256, (x, total), seeds=20, atomic_order="float")
    expected = sum(0.1 * (1 + i % 7) for i in range(256))
    assert total[0] == pytest.approx(expected, rel=1e-5)


DEEP = Path(__file__).parent / "kernels" / "misbehaving.cu"


def line_of(mark):
    lines = DEEP.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"// {mark}"))


@pytest.fixture(scope="module")
def deep():
    return emulator.compile(DEEP.read_text(), filename=DEEP.name)


@pytest.mark.parametrize("checks", ["all", "fast"])
def test_stack_overflow_is_reported(deep, checks):
    out = np.zeros(8, np.int32)
    with pytest.raises(emulator.LaunchError, match="needs more stack") as caught:
        deep["deep"](1, 8, (out, 1000), checks=checks)
    # The guard page may also be met by the runtime, on the kernel's behalf.
    assert caught.value.line in (None, *range(line_of("deep") - 4, line_of("deep") + 3))
    deep["deep"](1, 8, (out, 1000), checks=checks, stack=1 << 21)
    assert (out == 1000 * 1001 // 2).all()
    deep["deep"](1, 8, (out, 10), checks=checks)
    assert (out == 55).all()


@pytest.mark.parametrize("checks", ["all", "fast"])
def test_a_thread_that_never_ends_is_taken_out(deep, checks):
    with pytest.raises(emulator.LaunchError, match="without ever meeting") as caught:
        deep["forever"](1, 1, (np.zeros(1, np.int32),), checks=checks, timeout=0.3)
    assert caught.value.line == line_of("forever")
    with pytest.raises(emulator.LaunchError, match="poll a volatile flag") as caught:
        deep["spin_on_plain"](1, 1, (np.zeros(3, np.int32),), checks=checks, timeout=0.3)
    assert caught.value.line == line_of("plain spin")


@pytest.mark.parametrize("checks", ["all", "fast"])
def test_volatile_reads_out_of_bounds(deep, checks):
    with pytest.raises(emulator.MemcheckError) as caught:
        deep["poll"](1, 1, (np.zeros(4, np.int32), 4), checks=checks)
    assert (caught.value.array, caught.value.index, caught.value.line) == ("x", 4, line_of("poll"))
    with pytest.raises(emulator.SynccheckError, match="no other thread can run") as caught:
        deep["poll"](1, 1, (np.zeros(4, np.int32), 0), checks=checks)
    assert caught.value.line == line_of("poll")
    with pytest.raises(emulator.SynccheckError, match="no other thread can run") as caught:
        deep["lock_twice"](1, 1, (np.zeros(1, np.int32),), checks=checks)
    assert caught.value.line == line_of("second lock")


def test_ctrl_c_ends_a_long_launch(deep):
    # A shell that puts tests into the background has them ignore the signal.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _interrupt(deep)
    finally:
        signal.signal(signal.SIGINT, inherited)


def _interrupt(deep):
    before = signal.getsignal(signal.SIGINT)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        deep["long_wait"](1, 64, (np.zeros(64, np.int32), 2**31 - 1), checks="fast")
    assert time.monotonic() - start < 20
    assert signal.getsignal(signal.SIGINT) is before
    x = np.zeros(64, np.int32)
    deep["long_wait"](1, 64, (x, 7))
    assert (x == 7).all()


@pytest.mark.parametrize("checks", ["all", "fast"])
def test_division_by_zero(deep, checks):
    x, y = np.arange(-2, 6, dtype=np.int32), np.zeros(8, np.int32)
    with pytest.raises(emulator.MemcheckError, match="division") as caught:
        deep["divide"](1, 8, (x, y), checks=checks)
    assert (caught.value.line, caught.value.thread) == (line_of("division"), (2, 0, 0))
    assert (y == 0).all()


def test_shift_and_local_index(deep):
    y = np.zeros(8, np.int32)
    with pytest.raises(emulator.MemcheckError, match="shift of 'int' by 32") as caught:
        deep["shift"](1, 8, (np.full(8, 32, np.int32), y))
    assert caught.value.line == line_of("shift")
    with pytest.raises(emulator.MemcheckError, match=r"index \d+ of 'int ?\[8\]'") as caught:
        deep["index"](1, 8, (y, 1))
    assert caught.value.line == line_of("index")


@pytest.mark.parametrize("checks", ["all", "fast"])
def test_assert_and_trap(deep, checks):
    deep["claims"](1, 2, (np.array([0, 2], np.int32),), checks=checks)
    with pytest.raises(emulator.KernelAssertionError, match=r"x\[threadIdx.x\] < 3") as caught:
        deep["claims"](1, 2, (np.array([0, 3], np.int32),), checks=checks)
    assert (caught.value.line, caught.value.thread) == (line_of("claim"), (1, 0, 0))
    with pytest.raises(emulator.KernelAssertionError, match="__trap"):
        deep["claims"](1, 2, (np.array([0, -3], np.int32),), checks=checks)


def test_printf(deep, capsys):
    deep["talk"](1, 3, (np.array([7, 8, 9], np.int32),))
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == [f"x[{i}] = {7 + i},  0.50 ok" for i in range(3)]


@pytest.mark.parametrize("checks", ["all", "fast"])
@pytest.mark.parametrize("index", [10**9, -(10**9), 10**14])
def test_far_and_null_pointers(deep, checks, index):
    with pytest.raises(emulator.MemcheckError) as caught:
        deep["far"](1, 1, (np.zeros(5, np.int32), index), checks=checks)
    assert caught.value.line == line_of("far")
    if abs(index) == 10**9:
        assert (caught.value.array, caught.value.index) == ("x", index)
    with pytest.raises(emulator.MemcheckError, match="no array") as caught:
        deep["null"](1, 8, (None,), checks=checks)
    assert (caught.value.line, caught.value.thread) == (line_of("null"), (3, 0, 0))


GUARD = r"""
extern "C" __global__ void read(const float* x, float* y, int i) { y[0] = x[i]; }
extern "C" __global__ void write(float* x, int i) { x[i] = 5.0f; }
"""


@pytest.fixture(scope="module")
def guard():
    return emulator.compile(GUARD)


@pytest.mark.parametrize("n", [1, 5, 1024, 5000])
def test_guard_pages_without_instrumentation(guard, n):
    """Even seeds put the end, odd ones the start, against an inaccessible page."""
    x, y = np.arange(n, dtype=np.float32), np.zeros(1, np.float32)
    beyond = -(-n // 4) * 4  # a device's vectors of 16 bytes must stay aligned, so up to 3 floats may lie between
    for seed, index in ((0, beyond), (1, -1), (7, -2)):
        with pytest.raises(emulator.MemcheckError) as caught:
            guard["read"](1, 1, (x, y, index), seed=seed, checks="fast")
        error = caught.value
        assert (error.array, error.index, error.access, error.line) == ("x", index, "read", 2)
    with pytest.raises(emulator.MemcheckError, match=rf"x\[{n}\], out of bounds"):
        guard["write"](1, 1, (x, n), seed=0, checks="fast")
    with pytest.raises(emulator.MemcheckError, match=r"x\[-1\], out of bounds"):
        guard["write"](1, 1, (x, -1), seed=0, checks="fast")
    assert x.tolist() == list(range(n))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("n", "index"), [(1, 1), (1, -1), (3, 3), (1025, 1025), (1025, -1)])
def test_instrumented_bounds_are_exact_on_both_sides(guard, n, index, seed):
    x = np.zeros(n, np.float32)
    with pytest.raises(emulator.MemcheckError) as caught:
        guard["write"](1, 1, (x, index), seed=seed)
    assert (caught.value.array, caught.value.index, caught.value.access) == ("x", index, "write")


def test_previous_handlers_come_back_and_faulthandler_stays(guard):
    seen = []
    before = signal.signal(signal.SIGFPE, lambda *_: seen.append(1))
    active = faulthandler.is_enabled()
    faulthandler.enable()
    try:
        with pytest.raises(emulator.MemcheckError):
            guard["read"](1, 1, (np.zeros(4, np.float32), np.zeros(1, np.float32), 9**9), checks="fast")
        os.kill(os.getpid(), signal.SIGFPE)
        for _ in range(100):
            if seen:
                break
            time.sleep(0.01)
        assert seen == [1]
        assert faulthandler.is_enabled()
    finally:
        signal.signal(signal.SIGFPE, before)
        if not active:
            faulthandler.disable()


def test_faults_outside_a_launch_stay_fatal(tmp_path):
    """The emulator must not swallow a crash that is not a kernel's."""
    code = """
        import ctypes, faulthandler, numpy as np, sprigs_emulator as emulator
        faulthandler.enable()
        k = emulator.compile('extern "C" __global__ void k(int* x) { x[5] = 1; }')["k"]
        for checks in ("all", "fast"):
            try:
                k(1, 1, (np.zeros(4, np.int32),), checks=checks)
            except emulator.MemcheckError:
                print("caught", flush=True)
        ctypes.string_at(8)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["caught", "caught"]
    assert done.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in done.stderr


def test_launches_from_several_threads(guard):
    failures = []

    def work(seed):
        x = np.zeros(8, np.float32)
        try:
            for _ in range(20):
                guard["write"](1, 1, (x, 3), seed=seed)
            if x[3] != 5.0:
                failures.append(x)
        except emulator.EmulatorError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_clock_is_monotone(deep):
    t = np.zeros(1, np.int64)
    deep["ticks"](1, 1, (t,))
    assert t[0] > 0


def test_too_many_threads_alive(order):
    with pytest.raises(emulator.LaunchError, match="lower interleave="):
        order["order"](60000, 1024, (np.zeros(1, np.uint32), np.zeros(1, np.uint32)), interleave=60000)
