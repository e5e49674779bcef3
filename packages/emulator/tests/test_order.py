"""What orders two accesses, and what does not."""

import functools
from pathlib import Path

import numpy as np
import pytest

import sprigs_emulator as emulator

TEXT = (Path(__file__).parent / "kernels" / "order.cu").read_text()
SEEDS = range(8)


@functools.cache
def compiled(**defines):
    given = {"FENCE": "", "STORE": "__ATOMIC_RELEASE", "SYNC": "__syncthreads()", "SHIFT": "0", "VALUE": "1", **defines}
    return emulator.compile(TEXT, [f"-D{name}={value}" for name, value in given.items()], filename="order.cu")


def line_of(text):
    return next(number for number, line in enumerate(TEXT.splitlines(), 1) if text in line)


def i32(*values):
    return np.array(values, np.int32)


FENCED = "__threadfence()"
BLOCK_FENCED = "__threadfence_block()"


@pytest.mark.parametrize("fence", [FENCED, "__threadfence_system()"])
class TestPublished:
    """The fence is there: nothing to report, and the data arrives."""

    def test_fence_then_barrier(self, fence):
        data, flag, out = np.zeros(64, np.int32), i32(0), np.zeros(64, np.int32)
        compiled(FENCE=fence)["fence_then_barrier"](2, 64, (data, flag, out), seed=SEEDS, interleave=2)
        np.testing.assert_array_equal(out, np.arange(64)[::-1])

    def test_chain_of_three_blocks(self, fence):
        data, flags, out = np.zeros(64, np.int32), np.zeros(2, np.uint32), np.zeros(64, np.int32)
        compiled(FENCE=fence)["chain"](3, 64, (data, flags, out), seed=SEEDS, interleave=3)
        np.testing.assert_array_equal(out, np.arange(64)[::-1])

    def test_between_warps(self, fence):
        out = i32(0)
        compiled(FENCE=fence)["between_warps"](1, 64, (out,), seed=SEEDS)
        assert out[0] == 42


@pytest.mark.parametrize("fence", ["", BLOCK_FENCED])
class TestUnpublished:
    """Without a fence, or with one that reaches the own block only, it is a race under every seed."""

    @pytest.mark.parametrize("seed", SEEDS)
    def test_fence_then_barrier(self, fence, seed):
        arrays = np.zeros(64, np.int32), i32(0), np.zeros(64, np.int32)
        with pytest.raises(emulator.RacecheckError) as caught:
            compiled(FENCE=fence)["fence_then_barrier"](2, 64, arrays, seed=seed, interleave=2)
        assert caught.value.line == line_of("out[threadIdx.x] = data[63")
        assert caught.value.other_line == line_of("data[threadIdx.x] = threadIdx.x;")
        assert (caught.value.block, caught.value.other_block) == ((1, 0, 0), (0, 0, 0))

    @pytest.mark.parametrize("seed", SEEDS)
    def test_chain_of_three_blocks(self, fence, seed):
        arrays = np.zeros(64, np.int32), np.zeros(2, np.uint32), np.zeros(64, np.int32)
        with pytest.raises(emulator.RacecheckError) as caught:
            compiled(FENCE=fence)["chain"](3, 64, arrays, seed=seed, interleave=3)
        assert caught.value.array == "data"


def test_block_fence_suffices_between_warps():
    out = i32(0)
    compiled(FENCE=BLOCK_FENCED)["between_warps"](1, 64, (out,), seed=SEEDS)
    assert out[0] == 42


def test_volatile_flag_alone_does_not_order_warps():
    with pytest.raises(emulator.RacecheckError) as caught:
        compiled()["between_warps"](1, 64, (i32(0),))
    assert caught.value.array == "value"
    assert (caught.value.line, caught.value.other_line) == (line_of("*out = value;"), line_of("value = 42;"))


def test_compiler_atomics_order_as_they_say():
    data, flag, out = i32(0), np.zeros(1, np.uint32), i32(0)
    compiled()["builtin_atomics"](2, 1, (data, flag, out), seed=SEEDS, interleave=2)
    assert out[0] == 7
    for seed in SEEDS:
        with pytest.raises(emulator.RacecheckError, match=r"data\[0\]"):
            compiled(STORE="__ATOMIC_RELAXED")["builtin_atomics"](
                2, 1, (i32(0), flag * 0, i32(0)), seed=seed, interleave=2
            )


def test_neighbouring_bytes_are_apart():
    x = np.zeros(99, np.uint8)
    compiled()["bytes"](1, 99, (x,), seed=SEEDS, written_fully=["x"])
    np.testing.assert_array_equal(x, np.arange(99))


@pytest.mark.parametrize("sync", ["__syncwarp()", "(void)0"])
@pytest.mark.parametrize("seed", SEEDS)
def test_write_after_reads_without_barrier(sync, seed):
    with pytest.raises(emulator.RacecheckError) as caught:
        compiled(SYNC=sync)["write_after_reads"](1, 64, (i32(1), i32(0), np.zeros(64, np.int32)), seed=seed)
    lines = {caught.value.line, caught.value.other_line}
    assert lines == {line_of("if (threadIdx.x == 40)"), line_of("out[threadIdx.x] = value;")}


def test_write_after_reads_with_barrier():
    x = i32(0)
    compiled()["write_after_reads"](1, 64, (i32(1), x, np.zeros(64, np.int32)), seed=SEEDS)
    assert x[0] == 2


def test_globals_are_checked_and_can_be_set_and_read():
    module = compiled()
    module.set_global("arrivals", np.uint32(0))
    out = np.zeros(32, np.uint32)
    module["global_counter"](1, 32, (out,))
    np.testing.assert_array_equal(out, 32 * (np.arange(32) % 4 + 1))
    assert module.get_global("arrivals").tolist() == [32]
    module.set_global("weights", i32(5, 5, 5, 5))
    module["global_counter"](1, 32, (out,), checks="fast")
    assert out.tolist() == [5 * 64] * 32
    assert module.get_global("arrivals").tolist() == [64]
    again = emulator.compile(TEXT, module._source.options, filename="order.cu")
    assert again.get_global("arrivals").tolist() == [0]
    assert again.get_global("weights").tolist() == [1, 2, 3, 4]
    with pytest.raises(emulator.RacecheckError) as caught:
        module["global_counter"](2, 32, (np.zeros(64, np.uint32),))
    assert caught.value.array == "arrivals"
    with pytest.raises(KeyError, match="arrivals, weights"):
        module.get_global("nothing")
    with pytest.raises(emulator.LaunchError, match="16 bytes, given 32"):
        module.set_global("weights", np.zeros(4))


def test_struct_copies_are_seen():
    pairs = np.arange(160, dtype=np.float32).view("V20")
    out = np.zeros_like(pairs)
    compiled()["structs"](1, 32, (pairs, out), written_fully=["y"])
    assert out.tobytes() == pairs.tobytes()
    with pytest.raises(emulator.MemcheckError) as caught:
        compiled(SHIFT="1")["structs"](1, 32, (pairs, out))
    assert (caught.value.line, caught.value.array, caught.value.index) == (line_of("= copy;"), "y", 32)


def test_memory_functions_are_seen():
    x, y = np.arange(512, dtype=np.uint16).view(np.uint8), np.zeros(1024, np.uint8)
    compiled()["copies"](1, 16, (x, y), seed=SEEDS, written_fully=["y"])
    np.testing.assert_array_equal(x, y)
    with pytest.raises((emulator.RacecheckError, emulator.MemcheckError)) as caught:
        compiled(SHIFT="1")["copies"](1, 16, (x, y))
    assert caught.value.line == line_of("memcpy(y")


def test_same_value_declaration_is_verified():
    flag = i32(0)
    compiled()["same_value"](2, 32, (flag,), seed=SEEDS)
    assert flag[0] == 1
    with pytest.raises(emulator.RacecheckError, match="the values differ"):
        compiled(VALUE="threadIdx.x")["same_value"](1, 32, (flag,))
    with pytest.raises(emulator.CompileError, match=r"kernel.cu:2: write why"):
        emulator.compile('extern "C" __global__ void k(int* x) {\n*x = 1; // sprigs: allow(same-value)\n}')
