"""Random programs against a brute-force happens-before: racecheck finds a race if and only if there is one."""

import itertools

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import sprigs_emulator as emulator

THREADS = 96
# Few threads do anything, so that programs without a race are common; they are spread over three warps.
ACTIVE = (0, 1, 31, 32, 40, 64)
OPERATION = st.one_of(st.just(-1), st.integers(0, 7))
PHASE = st.tuples(st.lists(OPERATION, min_size=len(ACTIVE), max_size=len(ACTIVE)), st.integers(0, 2))


def is_racy(phases):
    accesses = [
        (p, thread, operation >> 1, operation & 1)
        for p, (operations, _) in enumerate(phases)
        for thread, operation in zip(ACTIVE, operations, strict=True)
        if operation >= 0
    ]
    for (p, a, cell, write), (q, b, other, writes) in itertools.combinations(accesses, 2):
        if a == b or cell != other or not (write or writes):
            continue
        between = {meeting for _, meeting in phases[p:q]}
        if 1 not in between and not (2 in between and a // 32 == b // 32):
            return True
    return False


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PHASE, min_size=1, max_size=5), st.integers(0, 10))
@example([([0, 0, -1, 0, -1, 0], 2), ([1, -1, -1, -1, -1, -1], 0)], 0)
def test_races(kernels, phases, seed):
    operations = np.full((len(phases), THREADS), -1, np.int32)
    for row, (chosen, _) in zip(operations, phases, strict=True):
        row[list(ACTIVE)] = chosen
    meetings = np.array([meeting for _, meeting in phases], np.int32)
    arguments = operations, meetings, len(phases), np.zeros(THREADS, np.int32)
    found = None
    try:
        kernels("programs.cu")["run"](1, THREADS, arguments, seed=seed)
    except emulator.RacecheckError as error:
        found = error.array
    assert found == ("cells" if is_racy(phases) else None)
