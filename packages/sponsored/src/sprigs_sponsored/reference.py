"""The plainest version, loops over everything: the oracle of the tests. One ad slot, no reserve."""

from __future__ import annotations

from typing import Any

Numbers = Any


def expected(prior: Numbers, kernel: Numbers, values: Numbers, question: int, signal: int, advertiser: int) -> float:
    """E[l, s, i]."""
    return float(sum(prior[t] * kernel[question][t][signal] * values[advertiser][t] for t in range(len(prior))))


def stage(
    prior: Numbers, kernel: Numbers, values: Numbers, question: int, absent: int = -1
) -> tuple[float, list[float], float]:
    """Welfare of the ads, continuation utilities and revenue after a question, without the advertiser `absent`."""
    n = len(values)
    welfare, revenue = 0.0, 0.0
    continuation = [0.0] * n
    for signal in range(len(kernel[question][0])):
        worth = [0.0 if i == absent else expected(prior, kernel, values, question, signal, i) for i in range(n)]
        winner = max(range(n), key=lambda i: (worth[i], -i))
        second = max([worth[i] for i in range(n) if i != winner], default=0.0)
        welfare += worth[winner]
        revenue += second
        continuation[winner] += worth[winner] - second
    return welfare, continuation, revenue


def first_of(x: list[float]) -> int:
    """Lowest index within rounding of the largest."""
    top = max(x)
    return next(k for k, v in enumerate(x) if v >= top - 1e-12 * max(1.0, abs(top)))


def joint_vcg(
    prior: Numbers, kernel: Numbers, values: Numbers, utility: Numbers
) -> tuple[int, list[float], list[float]]:
    """Question, payments and utilities, by Clarke's formula with n + 1 problems solved from scratch."""
    questions, n = range(len(kernel)), len(values)
    welfare = [utility[q] + stage(prior, kernel, values, q)[0] for q in questions]
    chosen = first_of(welfare)
    payments, utilities = [], []
    for i in range(n):
        without = max(utility[q] + stage(prior, kernel, values, q, absent=i)[0] for q in questions)
        own = 0.0
        for signal in range(len(kernel[chosen][0])):
            worth = [expected(prior, kernel, values, chosen, signal, j) for j in range(n)]
            if max(range(n), key=lambda j: (worth[j], -j)) == i:
                own += worth[i]
        payments.append(without - (welfare[chosen] - own))
        utilities.append(own - payments[-1])
    return chosen, payments, utilities


def single_winner(
    prior: Numbers, kernel: Numbers, values: Numbers, rho: float = 0.0
) -> tuple[int, int, float, list[float]]:
    """Question, sponsor (-1: none), price and utilities with second prices, a sponsor's rebate and reference bids."""
    questions, n = range(len(kernel)), len(values)
    stages = [stage(prior, kernel, values, q) for q in questions]
    bids = [[stages[q][1][i] + rho * stages[q][2] for q in questions] for i in range(n)]
    top = max(max(row) for row in bids)
    if top <= 0:
        return 0, -1, 0.0, list(stages[0][1])
    sponsor, question = next((i, q) for i in range(n) for q in questions if bids[i][q] >= top - 1e-12 * max(1.0, top))
    price = max([max(bids[j]) for j in range(n) if j != sponsor], default=0.0)
    utilities = list(stages[question][1])
    utilities[sponsor] += rho * stages[question][2] - price
    return question, sponsor, price, utilities


def pure_nash(worth: Numbers, welfare: Numbers, actions: list[list[tuple[int, float]]]) -> list[tuple[int, ...]]:
    """Equilibria of three advertisers, single winner and second prices; actions are (question, bid), bid 0 abstains."""

    def play(profile: tuple[int, ...]) -> list[float]:
        chosen = [actions[i][profile[i]] for i in range(3)]
        bids = [bid for _, bid in chosen]
        winner = max(range(3), key=lambda i: (bids[i], -i))
        question = chosen[winner][0] if bids[winner] > 0 else 0
        utility = [worth[question][i] for i in range(3)]
        if bids[winner] > 0:
            utility[winner] -= max(bids[j] for j in range(3) if j != winner)
        return utility

    found: list[tuple[int, ...]] = []
    for a in range(len(actions[0])):
        for b in range(len(actions[1])):
            for c in range(len(actions[2])):
                profile = (a, b, c)
                now = play(profile)
                stable = True
                for i in range(3):
                    for other in range(len(actions[i])):
                        tried = list(profile)
                        tried[i] = other
                        if play(tuple(tried))[i] > now[i] + 1e-9:
                            stable = False
                            break
                    if not stable:
                        break
                if stable:
                    found.append(profile)
    return found
