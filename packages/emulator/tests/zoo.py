"""Reads the zoo: kernels whose comments say how to launch them, what is wrong with them and where."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import sprigs_emulator as emulator

FOLDER = Path(__file__).parent / "zoo"
FAULTY = sorted(path for path in FOLDER.glob("*.cu") if not path.stem.endswith(".fixed"))
FIXED = sorted(FOLDER.glob("*.fixed.cu"))
CHECKS = {
    "memcheck": emulator.MemcheckError,
    "racecheck": emulator.RacecheckError,
    "initcheck": emulator.InitcheckError,
    "synccheck": emulator.SynccheckError,
}


# clang copies a whole vector without asking for its alignment; in a fast launch the instruction itself traps.
FAST = {"misaligned_float4"} if "clang" in str(emulator.find_compiler()) else set()


@dataclass
class Specimen:
    """One kernel file of the zoo."""

    path: Path
    expect: list[str]
    launch: dict[str, int]
    args: list[str]
    written_fully: tuple[str, ...]
    here: set[int]
    other: set[int]

    def arguments(self):
        made = []
        for text in self.args:
            _, kind, size, *fill = text.split()
            if kind == "int":
                made.append(np.int32(int(size)))
                continue
            array = np.zeros(int(size), kind)
            if fill == ["arange"]:
                array[...] = np.arange(array.size)
            elif fill == ["ones"]:
                array[...] = 1
            made.append(array)
        return made

    def run(self, seed=0, **more):
        module = emulator.compile(self.path.read_text(), filename=self.path.name)
        (name,) = module.kernels
        arguments = self.arguments()
        launch = {**self.launch, "seed": seed, "written_fully": self.written_fully, **more}
        module[name](launch.pop("grid"), launch.pop("block"), arguments, **launch)
        return arguments


def read(path):
    text = path.read_text()

    def values(key):
        return re.findall(rf"^// {key}: (.*)$", text, re.MULTILINE)

    marks = {"here": set(), "other": set()}
    for number, line in enumerate(text.splitlines(), 1):
        if mark := re.search(r"// <- (here|other)( or other)?$", line):
            for which in ("here", "other") if mark[2] else (mark[1],):
                marks[which].add(number)
    launch = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", values("launch")[0])}
    return Specimen(
        path, values("expect")[0].split(" ", 1), launch, values("arg"), tuple(values("written_fully")), **marks
    )
