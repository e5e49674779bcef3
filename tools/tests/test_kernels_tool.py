"""The kernel report: what it reads, and that every kernel in the tree passes the compiler's gate."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from kernels import (  # noqa: E402
    Report,
    ceilings,
    costs,
    disassembler,
    faults,
    main,
    parse_disassembly,
    parse_log,
    report,
    table,
    variants,
)

LOG = """
ptxas info    : 1 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas info    : Function properties for one
ptxas         .     0 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compiling entry function 'two' for 'sm_90'
ptxas info    : Function properties for two
ptxas         .     16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 18 registers, used 0 barriers
"""


def test_reading_the_log():
    assert parse_log(LOG) == {"one": (32, 12, 0, 1024), "two": (18, 0, 16, 0)}
    with pytest.raises(ValueError, match="'one'"):
        parse_log(LOG.replace("Used 32", "uses 32"))


def test_reading_the_disassembly():
    text = """
    .section .text.one,"ax"
        /*0000*/  LDC R1, c[0x0][0x28] ;
        /*0010*/  EXIT ;
    .L_x_0:
        /*0020*/  NOP ;
    .section .text.two,"ax"
        /*0000*/  EXIT ;
    """
    assert parse_disassembly(text) == {"one": 2, "two": 1}


def test_comments():
    source = """
// variant: small: -DA=1 -DB=2
// variant: large: -DA=2
// one: moves 3.5 bytes and does 8 operations per element, in at most 100 instructions
// two: moves 1 bytes and does 2 operations per element
// at most, large: one 90, two 7
"""
    assert variants(source) == {"small": ["-DA=1", "-DB=2"], "large": ["-DA=2"]}
    assert variants("") == {"": []}
    assert costs(source) == {"one": (3.5, 8.0, 100), "two": (1.0, 2.0, None)}
    assert ceilings(source) == {"large": {"one": 90, "two": 7}}


def test_faults():
    good = Report("p", "k.cu", "", "one", 1.0, 2.0, 100, spilled_bytes={"sm_90": 0}, instructions={"sm_90": 100})
    assert faults([good]) == []
    spilling = Report("p", "k.cu", "v", "two", 1.0, 2.0, None, spilled_bytes={"sm_75": 0, "sm_90": 8})
    long = Report("p", "k.cu", "", "three", 1.0, 2.0, 100, instructions={"sm_90": 101, "sm_75": 50})
    silent = Report("p", "k.cu", "", "four", None, None, None)
    told = faults([spilling, long, silent])
    assert [("spills on sm_90" in told[0]), ("101 instructions" in told[1]), ("no comment" in told[2])] == [True] * 3
    assert [row[0] for row in table([good, spilling])[1:]] == ["p k.cu", "  one", "p k.cu (v)", "  two"]


def test_without_nvrtc_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    assert main([]) == 2
    assert "pip install cuda-core" in capsys.readouterr().err


def test_a_tree_without_kernels(tmp_path, capsys):
    assert main([], tmp_path) == 0
    assert "no kernels" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(ROOT.glob("packages/*/src/**/*.cu")), ids=lambda p: p.name)
def test_every_kernel_compiles_without_spills(path):
    """For the oldest architecture and for sm_90; `nox -s kernels` does all seven."""
    pytest.importorskip("cuda.core")
    source = path.read_text(encoding="utf-8")
    assert set(ceilings(source)) <= set(variants(source))
    reports = report(path, ROOT, ("sm_75", "sm_90"))
    assert reports
    assert faults(reports) == []
    if disassembler() is not None:
        assert all(r.instructions["sm_90"] > 0 for r in reports)


def test_one_instruction_too_many_in_one_variant_is_found(tmp_path):
    pytest.importorskip("cuda.core")
    if disassembler() is None:
        pytest.skip("nvdisasm is not installed")
    path = tmp_path / "packages" / "grown" / "k.cu"
    path.parent.mkdir(parents=True)
    text = """// variant: small: -DN=1
// variant: large: -DN=8
// scale: moves 8 bytes and does 1 operations per element
// at most, large: scale COUNT
extern "C" __global__ void scale(float* x) { for (int i = 0; i < N; i++) x[i * 32 + threadIdx.x] *= 2.0f; }
"""
    path.write_text(text.replace("COUNT", "9999"))
    count = next(r for r in report(path, tmp_path, ("sm_90",)) if r.variant == "large").instructions["sm_90"]
    path.write_text(text.replace("COUNT", str(count)))
    assert faults(report(path, tmp_path, ("sm_90",))) == []
    path.write_text(text.replace("COUNT", str(count - 1)))
    (told,) = faults(report(path, tmp_path, ("sm_90",)))
    assert f"(large) has {count} instructions" in told


def test_an_array_in_local_memory_is_found(tmp_path):
    pytest.importorskip("cuda.core")
    path = tmp_path / "packages" / "indexed" / "k.cu"
    path.parent.mkdir(parents=True)
    path.write_text(
        "// pick: moves 8 bytes and does 1 operations per element\n"
        'extern "C" __global__ void pick(float* x, int i, int j) {'
        " float v[64]; for (int k = 0; k < 64; k++) v[(k * i) % 64u] = x[k * 9]; x[0] = v[j % 64u] + v[i % 64u]; }"
    )
    (made,) = report(path, tmp_path, ("sm_90",))
    assert made.local_bytes["sm_90"] >= 256
    (told,) = faults([made])
    assert "local memory on sm_90" in told


def test_a_spilling_kernel_is_found(tmp_path):
    pytest.importorskip("cuda.core")
    path = tmp_path / "packages" / "greedy" / "spill.cu"
    path.parent.mkdir(parents=True)
    # A hundred values alive at once, and sixteen blocks of 128 threads asked for: 32 registers a thread.
    body = "".join(f"float v{i} = x[i * 128 + {i}];" for i in range(100))
    total = " + ".join(f"v{i} * v{99 - i}" for i in range(100))
    path.write_text(
        'extern "C" __global__ __launch_bounds__(128, 16) void many(float* x, int i) {'
        + body
        + " __syncthreads(); "
        + f"x[i] = {total}; x[i + 1] = {total.replace(' + ', ' - ')};"
        + "}"
    )
    (made,) = report(path, tmp_path, ("sm_90",))
    assert made.spilled_bytes["sm_90"] > 0
    assert any("spills" in fault for fault in faults([made]))
