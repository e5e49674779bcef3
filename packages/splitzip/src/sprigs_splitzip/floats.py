"""The floating-point formats that split coding handles, and how wide each field is.

Split coding (paper, section on the dense path) takes an element's bits `v` apart into its exponent
`e = (v >> M) & (2^E - 1)` and the rest, `sm`: the sign placed on top of the mantissa, M + 1 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .errors import UnsupportedDtype


@dataclass(frozen=True)
class FloatFormat:
    """One element type: its code on the wire and the widths of its fields.

    Attributes:
        name: Short name, as accepted by every `dtype=` argument: `"bf16"`, `"fp16"`, `"fp32"`, `"e5m2"`, `"e4m3fn"`,
            `"e5m2fnuz"`, `"e4m3fnuz"`, or `"opaque"` for bytes of no known structure.
        wire_id: The dtype byte of the frame header.
        exponent_bits, mantissa_bits: E and M; both 0 for opaque bytes.
        dtype_name: NumPy's name of the type (ml_dtypes' where NumPy has none).
    """

    name: str
    wire_id: int
    exponent_bits: int
    mantissa_bits: int
    dtype_name: str

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return max(1, (1 + self.exponent_bits + self.mantissa_bits) // 8)

    @property
    def is_float(self) -> bool:
        """Whether the elements have an exponent to code; False for opaque bytes."""
        return self.exponent_bits > 0

    @property
    def n_exponents(self) -> int:
        """2^E, the number of exponent values."""
        return 1 << self.exponent_bits

    @property
    def sm_bits(self) -> int:
        """M + 1, the bits kept verbatim."""
        return self.mantissa_bits + 1

    @cached_property
    def bits_dtype(self) -> np.dtype[np.unsignedinteger[npt.NBitBase]]:
        """The unsigned integer type of the same size."""
        return np.dtype(f"u{self.itemsize}")

    @cached_property
    def dtype(self) -> np.dtype[np.generic]:
        """The NumPy dtype of decoded arrays."""
        return np.dtype(getattr(ml_dtypes, self.dtype_name, self.dtype_name))


BF16 = FloatFormat("bf16", 1, 8, 7, "bfloat16")
FP16 = FloatFormat("fp16", 2, 5, 10, "float16")
FP32 = FloatFormat("fp32", 3, 8, 23, "float32")
E5M2 = FloatFormat("e5m2", 4, 5, 2, "float8_e5m2")
E4M3FN = FloatFormat("e4m3fn", 5, 4, 3, "float8_e4m3fn")
E5M2FNUZ = FloatFormat("e5m2fnuz", 6, 5, 2, "float8_e5m2fnuz")
E4M3FNUZ = FloatFormat("e4m3fnuz", 7, 4, 3, "float8_e4m3fnuz")
OPAQUE = FloatFormat("opaque", 0, 0, 0, "uint8")

FORMATS = (BF16, FP16, FP32, E5M2, E4M3FN, E5M2FNUZ, E4M3FNUZ, OPAQUE)
BY_WIRE_ID = {f.wire_id: f for f in FORMATS}
_BY_NAME = {name: f for f in FORMATS for name in (f.name, f.dtype_name) if f is not OPAQUE} | {"opaque": OPAQUE}


def float_format(dtype: object) -> FloatFormat:
    """Return the `FloatFormat` that `dtype` names.

    Args:
        dtype: A `FloatFormat`, a name (`"bf16"`, `"bfloat16"`, `"float8_e5m2"`, ...), or a dtype of NumPy, ml_dtypes,
            torch or JAX.

    Raises:
        UnsupportedDtype: If it is none of those, or is stored in the other byte order.
    """
    if isinstance(dtype, FloatFormat):
        return dtype
    if isinstance(dtype, str):
        name = dtype
    elif type(dtype).__module__.partition(".")[0] == "torch":
        name = str(dtype).removeprefix("torch.")
    else:
        name = _numpy_name(dtype)
    try:
        return _BY_NAME[name]
    except KeyError:
        known = ", ".join(f.name for f in FORMATS)
        raise UnsupportedDtype(
            f"splitzip encodes {known}; got dtype {name!r}. For raw bit patterns in an integer array pass "
            'dtype="bf16" (or whichever format the bits are); for arbitrary bytes pass dtype="opaque"'
        ) from None


def _numpy_name(dtype: object) -> str:
    try:
        resolved = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError as error:
        raise UnsupportedDtype(f"cannot tell an element type from {dtype!r}") from error
    if not resolved.isnative:
        raise UnsupportedDtype(f"dtype {resolved} is not in this machine's byte order; convert it first")
    return str(resolved.name)


@lru_cache(maxsize=64)
def plane_widths(width: int) -> tuple[int, ...]:
    """Split a field of `width` bits into power-of-two planes, widest first: 11 -> (8, 2, 1)."""
    return tuple(1 << k for k in range(width.bit_length() - 1, -1, -1) if width >> k & 1)
