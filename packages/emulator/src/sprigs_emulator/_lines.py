"""From an address in a compiled kernel to the line of the user's text.

Reads the DWARF 4 line table itself, so that no binutils are needed and inlined functions resolve to the line that was
written (DWARF Debugging Information Format, version 4, section 6.2).
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """From this address on, up to the next row, the code is of this line.

    Attributes:
        address: relative to where the library is loaded.
        file: as the compiler was told.
        line: 1-based; 0 for code of no line.
        ends: whether no code follows.
    """

    address: int
    file: str
    line: int
    ends: bool


class LineTable:
    """The line table of one shared library.

    Args:
        library: an ELF file; of any other format, or without a table, no line is known.
        is_own: whether a file is the user's.
    """

    def __init__(self, library: Path, is_own: Callable[[str], bool]) -> None:
        section = _section(library.read_bytes(), ".debug_line")
        self._rows = sorted(_rows(section)) if section else []
        self._addresses = [row.address for row in self._rows]
        self._is_own = is_own

    def find(self, address: int) -> tuple[str, int] | None:
        """Return file and line of the code at an address.

        Code of the emulator's own headers counts for the user's line before it, which is the one that called it.
        """
        index = bisect.bisect_right(self._addresses, address) - 1
        while index >= 0 and not self._rows[index].ends:
            row = self._rows[index]
            if row.line and self._is_own(row.file):
                return row.file, row.line
            index -= 1
        return None

    def ranges(self, lines: set[int], file: str) -> list[tuple[int, int]]:
        """Return the address ranges, low to high, that the given lines of a file were compiled to."""
        return [
            (row.address, following.address)
            for row, following in zip(self._rows, self._rows[1:], strict=False)
            if not row.ends and row.file == file and row.line in lines and following.address > row.address
        ]


def _section(data: bytes, wanted: str) -> bytes:
    if data[:4] != b"\x7fELF" or data[4] != 2:
        return b""
    order = "<" if data[5] == 1 else ">"
    (table,) = struct.unpack_from(order + "Q", data, 0x28)
    size, count, names_index = struct.unpack_from(order + "HHH", data, 0x3A)
    headers = [struct.unpack_from(order + "IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    names = headers[names_index][4]
    for header in headers:
        start = names + header[0]
        if data[start : data.index(b"\0", start)].decode() == wanted:
            return data[header[4] : header[4] + header[5]]
    return b""


class _Reader:
    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position

    def fixed(self, kind: str) -> int:
        (value,) = struct.unpack_from("<" + kind, self.data, self.position)
        self.position += struct.calcsize("<" + kind)
        return int(value)

    def string(self) -> str:
        end = self.data.index(b"\0", self.position)
        text = self.data[self.position : end].decode(errors="replace")
        self.position = end + 1
        return text

    def leb(self, *, signed: bool = False) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 127) << shift
            shift += 7
            if not byte & 128:
                return value - (1 << shift) if signed and byte & 64 else value


def _rows(section: bytes) -> Iterator[Row]:
    position = 0
    while position + 4 < len(section):
        (length,) = struct.unpack_from("<I", section, position)
        if length == 0xFFFFFFFF:
            return
        end = position + 4 + length
        yield from _unit(_Reader(section, position + 4), end)
        position = end


def _unit(reader: _Reader, end: int) -> Iterator[Row]:
    if reader.fixed("H") not in (2, 3, 4):
        return
    header_length = reader.fixed("I")
    program = reader.position + header_length
    step = reader.fixed("B")
    # The rest is that of version 4: the compiler is asked for it. Operations per instruction and is_stmt do not matter.
    reader.fixed("H")
    line_base, line_range, opcode_base = reader.fixed("b"), reader.fixed("B"), reader.fixed("B")
    operands = [reader.fixed("B") for _ in range(opcode_base - 1)]
    folders, files = [""], [""]
    while folder := reader.string():
        folders.append(folder)
    while name := reader.string():
        folder = folders[reader.leb()]
        files.append(f"{folder}/{name}" if folder else name)
        reader.leb()
        reader.leb()
    reader.position = program
    address, file, line = 0, 1, 1
    while reader.position < end:
        opcode = reader.fixed("B")
        if opcode >= opcode_base:
            address += (opcode - opcode_base) // line_range * step
            line += line_base + (opcode - opcode_base) % line_range
            yield Row(address, files[file], line, False)
        elif opcode == 0:
            length = reader.leb()
            after = reader.position + length
            extended = reader.fixed("B")
            if extended == 1:
                yield Row(address, files[file], line, True)
                address, file, line = 0, 1, 1
            elif extended == 2:
                address = reader.fixed("Q")
            reader.position = after
        elif opcode == 1:
            yield Row(address, files[file], line, False)
        elif opcode == 2:
            address += reader.leb() * step
        elif opcode == 3:
            line += reader.leb(signed=True)
        elif opcode == 4:
            file = reader.leb()
        elif opcode == 8:
            address += (255 - opcode_base) // line_range * step
        elif opcode == 9:
            address += reader.fixed("H")
        else:
            for _ in range(operands[opcode - 1]):
                reader.leb()
