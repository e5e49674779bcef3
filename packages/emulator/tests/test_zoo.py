"""Every fault of the zoo is caught by the right check at the right line; the corrected twins are silent."""

import pytest
import zoo


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("path", zoo.FAULTY, ids=lambda path: path.stem)
def test_fault_is_caught(path, seed):
    specimen = zoo.read(path)
    with pytest.raises(zoo.CHECKS[specimen.expect[0]]) as caught:
        specimen.run(seed=seed, checks="fast" if path.stem in zoo.FAST else "all")
    error = caught.value
    if specimen.here and path.stem not in zoo.FAST:
        assert error.line in specimen.here
    if error.other_line is not None:
        assert error.other_line in specimen.other | specimen.here
    if len(specimen.expect) > 1 and path.stem not in zoo.FAST:
        assert specimen.expect[1].split()[0].split("[")[0] in str(error)
        if "[" in specimen.expect[1]:
            array, index = specimen.expect[1].split()[0].rstrip("]").split("[")
            assert (error.array, error.index) == (array, int(index))
        if specimen.expect[1].endswith((" read", " write")):
            assert error.access == specimen.expect[1].split()[-1]
    assert specimen.expect[0] in str(error)
    assert error.seed == seed


@pytest.mark.parametrize("path", zoo.FIXED, ids=lambda path: path.stem)
def test_corrected_twin_is_silent(path):
    zoo.read(path).run(seed=range(50))


def test_every_fault_has_its_twin():
    assert [path.stem + ".fixed" for path in zoo.FAULTY] == [path.stem for path in zoo.FIXED]
    assert len(zoo.FAULTY) >= 15
