"""Games for other programs: Gambit's .nfg files, and payoff tensors as OpenSpiel and nashpy take them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from .equilibrium import Game
from .instance import Array


def to_gambit(game: Game, path: str | os.PathLike[str] | None = None, *, title: str = "sponsored prompts") -> str:
    """Write a game in Gambit's strategic (.nfg) format, payoff version; return the text.

    The first player's action varies fastest, as the format has it.
    """
    _, utilities = game.utilities()
    names = [game.first.instance.name("advertiser", i) for i in range(len(game.shape))]
    actions = "\n".join(
        "{ " + " ".join(_quoted(game.action(i, a)) for a in range(size)) + " }" for i, size in enumerate(game.shape)
    )
    flat = utilities.transpose(*reversed(range(len(game.shape))), len(game.shape)).reshape(-1, len(game.shape))
    body = "\n".join(" ".join(repr(float(x)) for x in row) for row in flat)
    text = f'NFG 1 R {_quoted(title)} {{ {" ".join(map(_quoted, names))} }}\n\n{{ {actions}\n}}\n""\n\n{body}\n'
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def to_openspiel_matrix(game: Game) -> tuple[list[list[str]], list[Array]]:
    """Return names of actions and payoff tensors by player, for `pyspiel.create_tensor_game` or nashpy.

    Two players' tensors are matrices, rows the first player's actions.
    """
    _, utilities = game.utilities()
    names = [[game.action(i, a) for a in range(size)] for i, size in enumerate(game.shape)]
    return names, [np.ascontiguousarray(utilities[..., i]) for i in range(len(game.shape))]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
