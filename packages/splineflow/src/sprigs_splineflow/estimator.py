"""`SplineFlow`: from trajectories or snapshots to a vector field, in the manner of scikit-learn."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .conditional import ConditionalPath, TimeSampler
from .diffusion import allowed_degree, diffusion_of
from .errors import ExtrapolationWarning, OvershootWarning, SplineFlowError
from .networks import ResidualMLP
from .paths import AkimaPath, BSplinePath, LinearPath, PchipPath
from .records import read
from .schedules import BrownianBridge, ConstantSigma, RescaledBridge, Schedule
from .solvers import integrate, integrate_sde
from .training import Plan, Scaling, moments, train

Array = npt.NDArray[np.float64]
SCHEDULES = ("constant", "bridge", "bridge-rescaled")
PATHS = ("bspline", "linear", "pchip", "akima")
WIDE, NARROW = 0.08, 0.01  # tubes around snapshots' chains and noisy paths, and around smooth trajectories
UNEVEN = 8  # the longest gap over the median from which a raw-time spline through snapshots is warned of


class SplineFlow:
    """Learns a vector field, and for noisy systems a drift, from trajectories or snapshots, without solving an ODE.

    Attributes after fitting:
        path_: the conditional path the field was regressed on, in standardised states.
        degree_: its degree; kind_: which path; g_: [d] the diffusion in the data's units, None without noise.
        loss_: [steps] the training loss, in units of the targets' variance.
        n_features_in_: d.
    """

    def __init__(
        self,
        degree: int | str = "auto",
        stochastic: bool = False,
        *,
        path: str = "bspline",
        bc: str = "not-a-knot",
        parametrization: str | None = None,
        shape: str | None = None,
        smoothing: Any = None,
        schedule: str | None = None,
        sigma: float | None = None,
        g: Any = None,
        extrapolation: str = "mask",
        t_sampler: TimeSampler = "uniform",
        hidden: Sequence[int] = (256, 256, 256, 256),
        activation: str = "silu",
        autonomous: bool = False,
        max_steps: int = 3000,
        batch_size: int = 512,
        lr: float = 2e-3,
        weight_decay: float = 0.0,
        device: Any = None,
        random_state: int | None = None,
        progress: bool = True,
    ) -> None:
        """Set the parameters; they are checked in `fit`.

        Args:
            degree: of the B-spline, 1 to 5. "auto" takes 3 for trajectories, 2 for snapshots and, for noisy systems, 3
                or 1 by what the noise allows (`diffusion.allowed_degree`).
            stochastic: whether to learn a score too, for `drift`, `score` and `sample`.
            path: "bspline", "linear", "pchip" or "akima".
            bc, shape, smoothing, extrapolation: as in `BSplinePath.fit`; smoothing is in standardised states.
            parametrization: as there; None takes "time" for trajectories and "centripetal" for snapshots.
            schedule: "constant" (sigma), "bridge" or "bridge-rescaled" (g); None takes "constant", for stochastic
                systems "bridge".
            sigma: width of the tube, in standard deviations of the states. A tube smooths the field, an error of about
                sigma^2 of it, so that None takes 0.01 for trajectories; 0.08, the paper's, for snapshots and noise.
            g: diffusion in the data's units, a number or one for each dimension; estimated without.
            t_sampler: as in `ConditionalPath.sample`.
            hidden, activation, autonomous: the network; `autonomous=True` leaves time out of its input, which is right
                for systems whose law does not change and extrapolates better. The score's network is twice as deep.
            max_steps, batch_size, lr, weight_decay: AdamW, the rate falling to zero along a cosine.
            device: torch's; the CPU without.
            random_state: seed of weights and draws.
            progress: whether to show a bar.
        """
        self.degree, self.stochastic, self.path, self.bc = degree, stochastic, path, bc
        self.parametrization, self.shape, self.smoothing = parametrization, shape, smoothing
        self.schedule, self.sigma, self.g, self.extrapolation = schedule, sigma, g, extrapolation
        self.t_sampler, self.hidden, self.activation, self.autonomous = t_sampler, hidden, activation, autonomous
        self.max_steps, self.batch_size, self.lr, self.weight_decay = max_steps, batch_size, lr, weight_decay
        self.device, self.random_state, self.progress = device, random_state, progress

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, as scikit-learn's estimators do."""
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **params: Any) -> SplineFlow:
        """Set parameters and return the estimator.

        Raises:
            SplineFlowError: There is no such parameter.
        """
        for name, value in params.items():
            if name not in _PARAMETERS:
                raise SplineFlowError(f"there is no parameter {name!r}; there are {', '.join(_PARAMETERS)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """Show the parameters that are not defaults."""
        changed = [f"{k}={v!r}" for k, v in self.get_params().items() if v is not _DEFAULTS[k] and v != _DEFAULTS[k]]
        return f"SplineFlow({', '.join(changed)})"

    # Fitting

    def fit(
        self, times: npt.ArrayLike, values: npt.ArrayLike, mask: npt.ArrayLike | None = None, cond: Any = None
    ) -> SplineFlow:
        """Learn from trajectories.

        Args:
            times: [n], or [N, n] for each trajectory.
            values: [N, n, d]; NaN only where masked.
            mask: [N, n, d] bool, True where observed.
            cond: [N, c] conditions of each trajectory, given to the network.

        Returns:
            The estimator.

        Raises:
            SplineFlowError: Data or parameters that cannot be used.
        """
        return self._fit(times, values, mask, cond, unpaired=False)

    def fit_snapshots(
        self,
        snapshots: Sequence[npt.ArrayLike],
        times: npt.ArrayLike,
        coupling: Any = "exact",
        chains: int | None = None,
        batch: int | None = None,
        cond: Any = None,
    ) -> SplineFlow:
        """Learn from populations seen at several times, whose members are not followed.

        Members are chained by couplings of consecutive snapshots (`couplings.chain`), and chains taken as trajectories.
        The default path is a quadratic B-spline in the centripetal parameter: in raw time a cubic through uneven gaps
        overshoots, and loses to straight lines (README).

        Args:
            snapshots: arrays [n_k, d].
            times: [m + 1], strictly increasing.
            coupling: "exact", "sinkhorn", "unbalanced", "independent", a `couplings` object or a function of two
                snapshots that returns their joint [n, m].
            chains: how many; four for each member of the largest snapshot without, 20 000 at most.
            batch: couple minibatches of this size instead of whole snapshots.
            cond: [n_0, c] conditions of the members of the first snapshot.

        Returns:
            The estimator.

        Raises:
            SplineFlowError: Data or parameters that cannot be used.
        """
        from .couplings import chain

        arrays = [np.asarray(_plain(s), dtype=np.float64) for s in snapshots]
        t = np.asarray(_plain(times), dtype=np.float64)
        if t.shape != (len(arrays),):
            raise SplineFlowError(f"times must be [{len(arrays)}], one for each snapshot; got shape {t.shape}")
        index = chain(arrays, coupling, n=chains, rng=self.random_state, batch=batch)
        values = np.stack([s[index[:, k]] for k, s in enumerate(arrays)], axis=1)
        parametrization = self.parametrization or "centripetal"
        gaps = np.diff(t)
        uneven = len(gaps) > 1 and gaps.max() > UNEVEN * np.median(gaps)
        if uneven and self.path == "bspline" and self.shape is None and self.degree != 1 and parametrization == "time":
            warnings.warn(
                f"the longest gap is {gaps.max() / np.median(gaps):.0f} times the median: a spline in raw time is"
                " likely to overshoot; use parametrization='centripetal', 'index' or shape='monotone'",
                OvershootWarning,
                stacklevel=2,
            )
        chosen = None if cond is None else _array("cond", cond, (len(arrays[0]), None))[index[:, 0]]
        everyone = np.concatenate(arrays)
        return self._fit(t, values, None, chosen, unpaired=True, population=everyone)

    def _fit(
        self,
        times: npt.ArrayLike,
        values: npt.ArrayLike,
        mask: npt.ArrayLike | None,
        cond: Any,
        unpaired: bool,
        population: Array | None = None,
    ) -> SplineFlow:
        self._check_parameters()
        device = torch.device(self.device or "cpu")
        times, values = np.asarray(_plain(times), np.float64), np.asarray(_plain(values), np.float64)
        mask = None if mask is None else np.asarray(_plain(mask))
        records = read(times, values, mask)
        if (records.counts < 2).all():
            raise SplineFlowError("a field needs trajectories with at least two observations")
        values = values[None] if values.ndim == 2 else values
        d = records.dims
        seen = values.reshape(-1, d) if mask is None else np.where(mask, values, np.nan).reshape(-1, d)
        x_mean, x_std = moments(seen if population is None else population)
        there = np.arange(records.sites.shape[1]) < records.counts[:, None]
        t_mean, t_std = moments(records.sites[there][:, None])
        conditions = None if cond is None else _array("cond", cond, (len(values), None))
        c_mean, c_std = moments(conditions) if conditions is not None else (np.zeros(0), np.ones(0))
        scaled = (values - x_mean) / x_std
        self.n_features_in_, self.g_ = d, None
        kind = self.schedule or ("bridge" if self.stochastic else "constant")
        g = self._diffusion(records, kind, x_std, d)
        self.kind_, self.degree_ = self._choose(records, g * x_std if g is not None else None, unpaired)
        path = self._path(times, scaled, mask, unpaired, _schedule(kind, self._sigma(unpaired), g))
        self.path_ = path.to(device)
        self.time_range_ = path.time_range
        generator = torch.Generator(device)
        seed = torch.seed() % (1 << 31) if self.random_state is None else self.random_state
        generator.manual_seed(seed)
        probe = path.sample(4096, generator, self.t_sampler)
        weight = probe.weight.double()
        count = weight.sum(dim=0).clamp(min=1)
        v_mean = (probe.velocity.double() * weight).sum(dim=0) / count
        v_std = (((probe.velocity.double() - v_mean) ** 2 * weight).sum(dim=0) / count).sqrt()
        v_std = torch.where(v_std > 0, v_std, 1.0)
        noise = np.zeros(d) if g is None else np.broadcast_to(g, (d,)).copy()
        typical = ((probe.sigma.double() ** 2).mean(dim=0)).sqrt().cpu().numpy()
        s_scale = noise**2 / (2 * np.where(typical > 0, typical, 1.0))
        self.scaling_ = Scaling(
            x_mean, x_std, t_mean, t_std, v_mean.cpu().numpy(), v_std.cpu().numpy(), c_mean, c_std, noise, s_scale
        )
        self.g_ = noise * x_std if self.stochastic else None
        self._build(d, len(c_mean), device, seed)
        scaled_cond = None
        if conditions is not None:
            scaled_cond = torch.from_numpy((conditions - c_mean) / c_std).float().to(device)
        networks = (self.network_, self.score_network_)
        plan = Plan(self.max_steps, self.batch_size, self.lr, self.weight_decay, self.t_sampler, self.progress)
        self.loss_ = train(path, networks, self.scaling_, self._tensors, plan, generator, scaled_cond)
        return self

    def _check_parameters(self) -> None:
        for name, known in (("path", PATHS), ("schedule", (None, *SCHEDULES))):
            if getattr(self, name) not in known:
                raise SplineFlowError(f"{name} must be one of {known}; got {getattr(self, name)!r}")
        if self.degree != "auto" and (isinstance(self.degree, (bool, str)) or self.degree not in range(1, 6)):
            raise SplineFlowError(f"degree must be 'auto' or 1 to 5; got {self.degree!r}")
        for name in ("max_steps", "batch_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise SplineFlowError(f"{name} must be a positive whole number; got {value!r}")
        for name, least in (("lr", 1e-12), ("weight_decay", 0.0), ("sigma", 0.0)):
            value = getattr(self, name)
            if name == "sigma" and value is None:
                continue
            if not isinstance(value, (int, float)) or not least <= value < float("inf"):
                raise SplineFlowError(f"{name} must be a number of at least {least:g}; got {value!r}")
        if self.stochastic and self.schedule == "constant" and self.sigma == 0:
            raise SplineFlowError("a score needs sigma above 0: with no noise around the path there is none to learn")

    def _diffusion(self, records: Any, kind: str, x_std: Array, d: int) -> Array | None:
        """Return g of standardised states, or None where nothing needs it."""
        if kind == "constant" and self.g is None:
            # Paper's code: a constant tube is its own diffusion.
            return np.full(d, self._sigma(unpaired=False)) if self.stochastic else None
        if self.g is None:
            g = diffusion_of(records)
        else:
            g = np.asarray(self.g, dtype=np.float64)
            if g.size not in (1, d) or not (np.isfinite(g).all() and (g > 0).all()):
                raise SplineFlowError(f"g must be above 0, a number or one for each of {d} dimensions; got {self.g!r}")
            g = np.broadcast_to(g.reshape(-1), (d,))
        # A dimension without noise would have no bridge at all.
        floor = 1e-6 * x_std
        return np.asarray(np.maximum(g, floor) / x_std)

    def _sigma(self, unpaired: bool) -> float:
        if self.sigma is not None:
            return float(self.sigma)
        return WIDE if unpaired or self.stochastic else NARROW

    def _choose(self, records: Any, g: Array | None, unpaired: bool) -> tuple[str, int]:
        if self.path != "bspline":
            return self.path, 1 if self.path == "linear" else 3
        if self.degree != "auto":
            return self.path, int(self.degree)
        if unpaired:
            return self.path, 2
        if self.stochastic and g is not None:
            return self.path, allowed_degree(records, g)
        return self.path, 3

    def _path(self, times: Any, values: Any, mask: Any, unpaired: bool, schedule: Schedule) -> ConditionalPath:
        common: dict[str, Any] = {"schedule": schedule, "extrapolation": self.extrapolation}
        if self.path != "bspline":
            kinds: dict[str, Any] = {"linear": LinearPath, "pchip": PchipPath, "akima": AkimaPath}
            path: ConditionalPath = kinds[self.path].fit(times, values, mask, **common)
            return path
        few = {"bc": self.bc, "shape": self.shape, "smoothing": self.smoothing}
        degree = 3 if self.shape or self.smoothing is not None else self.degree_
        if unpaired:
            # Two or three snapshots allow no more, and that is no surprise worth a warning.
            degree = min(degree, max(np.asarray(times).shape[-1] - 1, 1))
            self.degree_ = degree
        parametrization = self.parametrization or ("centripetal" if unpaired else "time")
        return BSplinePath.fit(times, values, mask, degree, parametrization=parametrization, **few, **common)

    def _build(self, d: int, c: int, device: torch.device, seed: int) -> None:
        # A generator of its own: the caller's global one is left alone.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            hidden = tuple(int(w) for w in self.hidden)
            options: dict[str, Any] = {"conditions": c, "activation": self.activation, "autonomous": self.autonomous}
            self.network_ = ResidualMLP(d, hidden, **options).to(device)
            self.score_network_ = ResidualMLP(d, hidden * 2, **options).to(device) if self.stochastic else None
        self._tensors = {
            name: torch.as_tensor(value, dtype=torch.float32, device=device)
            for name, value in vars(self.scaling_).items()
        }

    # Using the model

    def _fitted(self) -> None:
        if not hasattr(self, "network_"):
            raise SplineFlowError("this model is not fitted: call fit, fit_snapshots or load first")

    def _conditions(self, cond: Any, rows: int) -> Tensor | None:
        c = len(self.scaling_.c_mean)
        if c == 0:
            if cond is not None:
                raise SplineFlowError("this model was fitted without conditions")
            return None
        if cond is None:
            raise SplineFlowError(f"this model needs cond [{rows}, {c}]")
        given = _array("cond", cond, (None, c)) if np.ndim(_plain(cond)) == 2 else _array("cond", cond, (c,))[None]
        if len(given) not in (1, rows):
            raise SplineFlowError(f"cond must be [{rows}, {c}] or [{c}]; got {given.shape}")
        scaled = torch.from_numpy((given - self.scaling_.c_mean) / self.scaling_.c_std).float()
        return scaled.to(self._tensors["g"].device).expand(rows, c)

    def _velocity(self, t: Tensor, x: Tensor, cond: Tensor | None, what: str = "velocity") -> Tensor:
        """Return dx/dt, the scaled score or the drift in the data's units at time [] or [B] and states [B, d]."""
        k = self._tensors
        x_n = (x - k["x_mean"]) / k["x_std"]
        t_n = ((t.double() - self.scaling_.t_mean[0]) / self.scaling_.t_std[0]).float().reshape(-1)
        t_n = t_n.expand(len(x)) if len(t_n) == 1 else t_n
        out = torch.zeros_like(x)
        if what != "score":
            out = self.network_(t_n, x_n, cond) * k["v_std"] + k["v_mean"]
        if what != "velocity":
            if self.score_network_ is None:
                raise SplineFlowError("only a model with stochastic=True has a score and a drift of its own")
            out = out + self.score_network_(t_n, x_n, cond) * k["s_scale"]
        return out * k["x_std"]

    def _call(self, t: Any, x: Any, cond: Any, what: str) -> Any:
        self._fitted()
        given = x
        device = self._tensors["g"].device
        state = torch.as_tensor(_plain(x), dtype=torch.float32, device=device)
        d = self.n_features_in_
        if state.ndim == 0 or state.shape[-1] != d:
            raise SplineFlowError(f"states must be [..., {d}]; got shape {tuple(state.shape)}")
        rows = state.reshape(-1, d)
        moment = torch.as_tensor(_plain(t), dtype=torch.float64, device=device)
        if moment.ndim:
            moment = torch.broadcast_to(moment, state.shape[:-1]).reshape(-1)
        with torch.no_grad():
            found = self._velocity(moment, rows, self._conditions(cond, len(rows)), what).reshape(state.shape)
        return found if isinstance(given, Tensor) else found.cpu().numpy().astype(np.float64)

    def vector_field(self, t: Any, x: Any, cond: Any = None) -> Any:
        """Return the learnt dx/dt [..., d] (of the probability flow, for stochastic systems).

        Args:
            t: a time, or one for each state [...].
            x: [..., d] states; torch tensors give torch tensors, all else NumPy arrays.
            cond: [c] or [rows, c].
        """
        return self._call(t, x, cond, "velocity")

    def drift(self, t: Any, x: Any, cond: Any = None) -> Any:
        """Return the drift f of dX = f dt + g dW [..., d]: the vector field plus (g^2 / 2) grad log p."""
        return self._call(t, x, cond, "drift")

    def score(self, t: Any, x: Any, cond: Any = None) -> Any:
        """Return grad log p_t(x) [..., d] in the data's units."""
        scaled = self._call(t, x, cond, "score")
        factor = 2 / np.asarray(self.g_) ** 2
        return scaled * (torch.as_tensor(factor, dtype=scaled.dtype) if isinstance(scaled, Tensor) else factor)

    def predict(self, x0: Any, times: Any, cond: Any = None, method: str = "auto") -> Array:
        """Roll the vector field out from states at the first of `times`.

        Args:
            x0: [d] or [N, d].
            times: [T], strictly monotone (backwards is fine).
            cond: [c] or [N, c].
            method: "dopri5" (torchdiffeq), "rk4" or "auto".

        Returns:
            [T, d] or [N, T, d].
        """
        x, t, single = self._start(x0, times)
        c = self._conditions(cond, len(x))
        with torch.no_grad():
            states = integrate(lambda at, s: self._velocity(at, s, c), x, t, method)
        out: Array = states.cpu().numpy().astype(np.float64).swapaxes(0, 1)
        return out[0] if single else out

    def sample(
        self, x0: Any, times: Any, n: int = 1, seed: int | None = None, cond: Any = None, method: str = "euler-maruyama"
    ) -> Array:
        """Draw n paths of the learnt stochastic system from each of the states at the first of `times`.

        Args:
            x0: [d] or [N, d].
            times: [T], strictly increasing.
            n: paths for each state.
            seed: of the noise.
            cond: [c] or [N, c].
            method: "euler-maruyama" or "heun".

        Returns:
            [n, T, d] or [n, N, T, d].
        """
        x, t, single = self._start(x0, times)
        if self.g_ is None:
            raise SplineFlowError("only a model with stochastic=True can be sampled: use predict")
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise SplineFlowError(f"n must be a positive whole number; got {n!r}")
        c = self._conditions(cond, len(x))
        c = None if c is None else c.repeat(n, 1)
        generator = torch.Generator(x.device)
        generator.manual_seed(torch.seed() % (1 << 31) if seed is None else seed)
        with torch.no_grad():
            states = integrate_sde(
                lambda at, s: self._velocity(at, s, c, "drift"), self.g_, x.repeat(n, 1), t, generator, method
            )
        out: Array = states.cpu().numpy().astype(np.float64)
        out = np.moveaxis(out.reshape(len(t), n, len(x), -1), 0, 2)
        return out[:, 0] if single else out

    def impute(self, times: npt.ArrayLike, values: npt.ArrayLike, mask: npt.ArrayLike, cond: Any = None) -> Array:
        """Fill in missing observations: by the spline between a dimension's observations, by the field beyond them.

        Args:
            times: [n] or [N, n].
            values: [N, n, d]; mask: [N, n, d] bool, True where observed.
            cond: [N, c].

        Returns:
            [N, n, d] with observed values as they were.
        """
        self._fitted()
        t = np.asarray(_plain(times), np.float64)
        x = np.asarray(_plain(values), np.float64)
        seen = np.asarray(_plain(mask))
        path = BSplinePath.fit(t, x, seen, 3 if self.degree_ == 2 else self.degree_, dtype=torch.float64)
        n, length, d = x.shape
        if d != self.n_features_in_:
            raise SplineFlowError(f"values must have {self.n_features_in_} dimensions; got {d}")
        t = np.broadcast_to(t, (n, length))
        index = torch.arange(n).repeat_interleave(length)
        filled = path.evaluate(index, torch.from_numpy(t.reshape(-1).copy())).numpy().reshape(x.shape)
        filled = np.where(seen, x, filled)
        first = np.argmax(seen, axis=1)
        last = length - 1 - np.argmax(seen[:, ::-1], axis=1)
        c = self._conditions(cond, n)
        for step in (1, -1):
            order = range(1, length) if step == 1 else range(length - 2, -1, -1)
            for i in order:
                beyond = i > last if step == 1 else i < first
                who = np.flatnonzero(beyond.any(axis=1))
                if len(who):
                    ahead = self._advance(filled[who, i - step], t[who, i - step], t[who, i], c, who)
                    filled[who, i] = np.where(beyond[who], ahead, filled[who, i])
        return filled

    def _advance(self, x: Array, start: Array, stop: Array, cond: Tensor | None, who: npt.NDArray[np.int64]) -> Array:
        """Take four steps of the classical Runge-Kutta method, each state over its own interval."""
        device = self._tensors["g"].device
        state = torch.as_tensor(x, dtype=torch.float32, device=device)
        h = torch.as_tensor((stop - start) / 4, dtype=torch.float64, device=device)
        c = None if cond is None else cond[torch.as_tensor(who, device=device)]
        t = torch.as_tensor(start, dtype=torch.float64, device=device)
        width = h[:, None].float()
        with torch.no_grad():
            for _ in range(4):
                k1 = self._velocity(t, state, c)
                k2 = self._velocity(t + h / 2, state + width / 2 * k1, c)
                k3 = self._velocity(t + h / 2, state + width / 2 * k2, c)
                k4 = self._velocity(t + h, state + width * k3, c)
                state, t = state + width / 6 * (k1 + 2 * k2 + 2 * k3 + k4), t + h
        out: Array = state.cpu().numpy().astype(np.float64)
        return out

    def _start(self, x0: Any, times: Any) -> tuple[Tensor, Tensor, bool]:
        self._fitted()
        x = _array("x0", x0, (self.n_features_in_,) if np.ndim(_plain(x0)) == 1 else (None, self.n_features_in_))
        t = _array("times", times, (None,))
        low, high = self.time_range_
        slack = 1e-9 * (high - low)
        if not self.autonomous and (t.min() < low - slack or t.max() > high + slack):
            warnings.warn(
                f"times reach from {t.min():g} to {t.max():g}, beyond the fitted {low:g} to {high:g}, and the field"
                " depends on time: expect nothing there (autonomous=True extrapolates)",
                ExtrapolationWarning,
                stacklevel=3,
            )
        device = self._tensors["g"].device
        single = x.ndim == 1
        rows = torch.as_tensor(x[None] if single else x, dtype=torch.float32, device=device)
        return rows, torch.from_numpy(t.copy()).to(device), single

    # Files

    def save(self, file: str | Path) -> None:
        """Write the model (networks, scaling, parameters; not the training data) as safetensors."""
        from .storage import save

        self._fitted()
        save(self, Path(file))

    @classmethod
    def load(cls, file: str | Path, device: Any = None) -> SplineFlow:
        """Read a model that `save` wrote. Nothing in the file is executed.

        Raises:
            SplineFlowError: The file is not such a model.
        """
        from .storage import load

        model: SplineFlow = load(cls, Path(file), device)
        return model


def _plain(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _array(name: str, given: Any, shape: tuple[int | None, ...]) -> Array:
    try:
        array = np.asarray(_plain(given), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SplineFlowError(f"{name} must be an array of numbers: {error}") from error
    fits = array.ndim == len(shape) and all(b in (None, a) for a, b in zip(array.shape, shape, strict=True))
    if not fits or array.size == 0 or not np.isfinite(array).all():
        wanted = ", ".join("n" if s is None else str(s) for s in shape)
        raise SplineFlowError(f"{name} must be finite numbers of shape [{wanted}]; got shape {array.shape}")
    return array


def _schedule(kind: str, sigma: float, g: Array | None) -> Schedule:
    if kind == "constant":
        return ConstantSigma(sigma)
    assert g is not None
    if kind == "bridge":
        return BrownianBridge(g)
    return RescaledBridge(g)


_DEFAULTS: dict[str, Any] = {
    name: parameter.default for name, parameter in inspect.signature(SplineFlow).parameters.items()
}
_PARAMETERS = tuple(_DEFAULTS)
