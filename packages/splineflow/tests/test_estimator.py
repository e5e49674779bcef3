"""Training against closed forms; noise that is shared; files, conditions, imputation; other libraries' loops."""

import json
import warnings

import numpy as np
import pytest
import torch

from sprigs_splineflow import (
    BrownianBridge,
    BSplinePath,
    ConstantSigma,
    DegreeWarning,
    ExtrapolationWarning,
    InterruptedWarning,
    OvershootWarning,
    ResidualMLP,
    SplineFlow,
    SplineFlowError,
    estimate_diffusion,
    flow_matching_loss,
    integrate,
    integrate_sde,
    score_flow_matching_loss,
)
from sprigs_splineflow.compat.torchcfm import SplineConditionalFlowMatcher, chained
from sprigs_splineflow.datasets import make_sde
from sprigs_splineflow.diffusion import allowed_degree, differences
from sprigs_splineflow.records import read

SMALL = {"hidden": (64, 64), "progress": False, "random_state": 0}
W = 2.0


def oscillators(n=48, dt=0.1, seed=0):
    """Exact trajectories of x'' = -4 x, and their field."""
    rng = np.random.default_rng(seed)
    t, x0 = np.arange(0, 6, dt), rng.uniform(-1, 1, (n, 2))
    turn = np.stack([[np.cos(W * t), np.sin(W * t) / W], [-W * np.sin(W * t), np.cos(W * t)]])
    return t, np.einsum("abt,nb->nta", turn, x0)


def field(x):
    return np.stack([x[..., 1], -(W**2) * x[..., 0]], axis=-1)


@pytest.fixture(scope="module")
def oscillator():
    torch.set_num_threads(1)
    t, x = oscillators()
    mask = np.random.default_rng(1).uniform(size=x.shape) < 0.5
    mask[:, 0] = True
    model = SplineFlow(autonomous=True, max_steps=1500, batch_size=512, **SMALL)
    return t, x, mask, model.fit(t, np.where(mask, x, np.nan), mask)


def relative(found, true):
    return np.square(found - true).sum() / np.square(true).sum()


# Deterministic


def test_the_field_of_an_oscillator(oscillator):
    """From half of the observations, within 2 % of the exact field."""
    t, x, _, model = oscillator
    states = x.reshape(-1, 2)
    assert np.sqrt(relative(model.vector_field(0.0, states), field(states))) < 0.02
    assert np.sqrt(relative(model.predict(x[:, 0], t), x)) < 0.1
    assert (model.kind_, model.degree_) == ("bspline", 3)
    backwards = model.predict(x[:, -1], t[::-1])
    assert np.sqrt(relative(backwards[:, -1], x[:, 0])) < 0.2


def test_methods_of_integration_agree(oscillator):
    pytest.importorskip("torchdiffeq")
    t, x, _, model = oscillator
    one, two = (model.predict(x[:5, 0], t, method=m) for m in ("dopri5", "rk4"))
    np.testing.assert_allclose(one, two, atol=2e-4)
    np.testing.assert_allclose(model.predict(x[0, 0], t, method="rk4"), two[0], atol=1e-5)


def test_shapes_and_kinds_of_states(oscillator):
    _, x, _, model = oscillator
    grid = x[:6].reshape(2, 3, -1, 2)
    found = model.vector_field(0.0, grid)
    np.testing.assert_allclose(found, model.vector_field(0.0, grid.reshape(-1, 2)).reshape(grid.shape), atol=1e-6)
    as_tensor = model.vector_field(torch.zeros(2, 3, grid.shape[2]), torch.tensor(grid))
    assert isinstance(as_tensor, torch.Tensor)
    np.testing.assert_allclose(as_tensor, found, atol=1e-5)


def test_imputation(oscillator):
    """The spline fills gaps, the field what lies beyond; observed values stay."""
    t, x, mask, model = oscillator
    cut = mask.copy()
    cut[:, 45:, 1] = False
    filled = model.impute(t, np.where(cut, x, np.nan), cut)
    np.testing.assert_array_equal(filled[cut], x[cut])
    assert np.sqrt(relative(filled[:, :45], x[:, :45])) < 0.02
    # A flat continuation, which the spline alone would give, is off by the whole amplitude.
    tail = np.abs(filled - x)[:, 45:, 1].max()
    flat = np.abs(x[:, 44:45, 1] - x[:, 45:, 1]).max()
    assert tail < 0.15 * flat


def test_a_saved_model_is_the_same_model(oscillator, tmp_path):
    t, x, _, model = oscillator
    model.save(tmp_path / "m.safetensors")
    back = SplineFlow.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(back.predict(x[:3, 0], t), model.predict(x[:3, 0], t))
    assert back.get_params() == model.get_params()
    assert (
        repr(back)
        == repr(model)
        == "SplineFlow(hidden=(64, 64), autonomous=True, max_steps=1500, random_state=0, progress=False)"
    )


def test_files_that_are_no_models(oscillator, tmp_path):
    from safetensors.torch import load_file, save_file

    model = oscillator[3]
    good = tmp_path / "good.safetensors"
    model.save(good)
    raw = good.read_bytes()
    bad = tmp_path / "bad.safetensors"
    rng = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(raw[: rng.integers(1, len(raw))] if rng.uniform() < 0.5 else raw)
        for _ in range(3):
            damaged[rng.integers(0, min(len(damaged), 3000))] = rng.integers(0, 256)
        bad.write_bytes(damaged)
        try:
            SplineFlow.load(bad)
        except SplineFlowError:
            continue  # a changed weight is still a model
    tensors = load_file(good)
    from safetensors import safe_open

    with safe_open(good, framework="pt") as opened:
        header = dict(opened.metadata())

    def rewritten(tensors=tensors, **changes):
        save_file(tensors, bad, metadata={**header, **changes})
        with pytest.raises(SplineFlowError):
            SplineFlow.load(bad)

    parameters = json.loads(header["parameters"])
    rewritten(format="else")
    rewritten(parameters="[")
    rewritten(parameters=json.dumps({**parameters, "hidden": [10**9]}))
    rewritten(parameters=json.dumps({**parameters, "hidden": [64]}))
    rewritten(parameters=json.dumps({**parameters, "path": "os.system"}))
    rewritten(facts="{}")
    rewritten({**tensors, "scaling.x_std": torch.zeros(2, dtype=torch.float64)})
    rewritten({**tensors, "network.out.bias": torch.full((2,), float("nan"))})
    rewritten({k: v for k, v in tensors.items() if k != "network.out.bias"})
    with pytest.raises(SplineFlowError, match="cannot be read"):
        SplineFlow.load(tmp_path / "absent")


def test_the_same_seed_gives_the_same_model():
    t, x = oscillators(8)
    state = torch.random.get_rng_state()
    one, two = (SplineFlow(max_steps=20, **SMALL).fit(t, x) for _ in range(2))
    np.testing.assert_array_equal(one.vector_field(0.0, x), two.vector_field(0.0, x))
    assert torch.equal(state, torch.random.get_rng_state())


def test_units_do_not_matter():
    """The same data in other units give the same field in those units: everything is standardised, and back."""
    t, x = oscillators(16)
    a, b = np.array([1000.0, 1e-3]), np.array([5e4, -2.0])
    plain = SplineFlow(max_steps=60, **SMALL).fit(t, x)
    other = SplineFlow(max_steps=60, **SMALL).fit(3600 * t + 1e6, a * x + b)
    v = plain.vector_field(1.0, x[:, 0])
    np.testing.assert_allclose(
        other.vector_field(3600 * 1.0 + 1e6, a * x[:, 0] + b) / a * 3600, v, rtol=2e-3, atol=2e-3
    )


def test_conditions():
    """Two laws, told apart by a condition."""
    t, x = oscillators(24)
    still = np.repeat(x[:, :1], len(t), axis=1)
    cond = np.repeat([[0.0], [1.0]], 24, axis=0)
    model = SplineFlow(autonomous=True, max_steps=600, **SMALL).fit(t, np.concatenate([x, still]), cond=cond)
    states = x[:, ::10].reshape(-1, 2)
    assert relative(model.vector_field(0.0, states, [0.0]), field(states)) < 0.02
    assert np.square(model.vector_field(0.0, states, [1.0])).sum() < 0.02 * np.square(field(states)).sum()
    rolled = model.predict(x[:4, 0], t[:10], cond=np.array([[0.0], [0.0], [1.0], [1.0]]))
    assert np.abs(rolled[2:] - x[2:4, :1]).max() < 0.2 < np.abs(rolled[:2] - x[:2, :1]).max()
    with pytest.raises(SplineFlowError, match="needs cond"):
        model.predict(x[:4, 0], t)
    with pytest.raises(SplineFlowError, match="without conditions"):
        SplineFlow(max_steps=1, **SMALL).fit(t, x).predict(x[:4, 0], t, cond=[1.0])


def test_interrupted_training_keeps_what_was_learnt(monkeypatch):
    t, x = oscillators(8)
    calls = []
    forward = ResidualMLP.forward

    def interrupting(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 11:
            raise KeyboardInterrupt
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(ResidualMLP, "forward", interrupting)
    with pytest.warns(InterruptedWarning, match="after 10 of 500"):
        model = SplineFlow(max_steps=500, **SMALL).fit(t, x)
    assert len(model.loss_) == 10
    assert np.isfinite(model.predict(x[:, 0], t)).all()


def test_times_beyond_the_record_are_warned_of():
    t, x = oscillators(8)
    timed, law = (SplineFlow(max_steps=2, autonomous=a, **SMALL).fit(t, x) for a in (False, True))
    with pytest.warns(ExtrapolationWarning, match="autonomous=True"):
        timed.predict(x[:, 0], [0.0, 50.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        law.predict(x[:, 0], [0.0, 7.0])


# Stochastic


def test_a_linear_score_net_recovers_the_scaled_score():
    """One trajectory, one time: s* = -(g^2 / 2)(x - mu) / sigma^2; a bias alone learns nothing."""
    path = BSplinePath.fit(
        np.arange(5.0), np.sin(np.arange(5.0))[None, :, None], schedule=ConstantSigma(0.3), dtype=torch.float64
    )
    generator, g = torch.Generator().manual_seed(0), 0.5
    t = torch.full((4000,), 1.5, dtype=torch.float64)
    drawn = path.sample(4000, generator, index=torch.zeros(4000, dtype=torch.long), t=t)
    slope = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([slope], max_iter=50)

    def closure():
        optimiser.zero_grad()
        loss = score_flow_matching_loss(
            lambda t, x: torch.zeros_like(x), lambda t, x: slope[0] + slope[1] * (x - drawn.mu), drawn, g
        )[1]
        loss.backward()
        return loss

    optimiser.step(closure)
    assert slope[1].item() == pytest.approx(-(g**2) / 2 / 0.3**2, rel=1e-6)
    assert slope[0].item() == pytest.approx(0.0, abs=1e-6)
    # Noise drawn anew, as in the released code, leaves nothing to learn.
    other = torch.randn(drawn.x.shape, generator=generator, dtype=torch.float64)
    design = torch.cat([torch.ones_like(drawn.x), drawn.x - drawn.mu], dim=1)
    learnt = torch.linalg.lstsq(2 * 0.3 / g**2 * design, -other).solution
    assert abs(learnt[1].item()) < 0.1 * g**2 / 2 / 0.3**2


def test_score_identity():
    """With s* = -(g^2 / 2) eps / sigma, E[eps . s*] is -(g^2 / 2) d E[1 / sigma]."""
    rng = np.random.default_rng(0)
    path = BSplinePath.fit(
        np.arange(6.0), rng.normal(size=(3, 6, 2)), schedule=BrownianBridge(0.7), dtype=torch.float64
    )
    drawn = path.sample(200_000, torch.Generator().manual_seed(0))
    target = -(0.7**2 / 2) * drawn.score_noise / drawn.sigma
    found = float((drawn.score_noise * target).sum(dim=1).mean())
    expected = float(-(0.7**2 / 2) * (1 / drawn.sigma).sum(dim=1).mean())
    assert found == pytest.approx(expected, rel=0.02)


def test_losses_do_not_depend_on_the_mask():
    """Weighted means: a constant error has the same loss whatever was observed."""
    rng = np.random.default_rng(0)
    mask = rng.uniform(size=(4, 9, 2)) < 0.6
    mask[:, :2] = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegreeWarning)
        path = BSplinePath.fit(np.arange(9.0), np.zeros((4, 9, 2)), mask, schedule=ConstantSigma(0.0))
    drawn = path.sample(300, torch.Generator().manual_seed(0))
    assert flow_matching_loss(lambda t, x: torch.full_like(x, 3.0), drawn).item() == pytest.approx(9.0)


@pytest.mark.parametrize("method", ["euler-maruyama", "heun"])
def test_stationary_variance_of_an_ou_process(method):
    """g^2 / (2 theta), by our integrator."""
    theta, g, n = 0.8, 0.5, 20_000
    x = integrate_sde(
        lambda t, x: -theta * x, g, torch.zeros(n, 1, dtype=torch.float64), torch.tensor([0.0, 8.0]).double(),
        torch.Generator().manual_seed(0), method, max_step=0.02,
    )[-1]  # fmt: skip
    expected = g**2 / (2 * theta)
    assert x.var().item() == pytest.approx(expected, abs=4 * expected * np.sqrt(2 / n) + 0.01 * expected)
    assert abs(x.mean().item()) < 4 * np.sqrt(expected / n)


@pytest.mark.parametrize(("noise", "order"), [("multiplicative", 0.5), ("additive", 1.0)])
def test_strong_order_of_euler_maruyama(noise, order):
    """The same noise, summed, on ever coarser steps."""
    n, fine, end = 4000, 1024, 1.0
    dw = torch.randn(fine, n, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * (end / fine) ** 0.5

    def solve(steps, monkey):
        used = iter(dw.reshape(steps, fine // steps, n, 1).sum(dim=1))
        monkey.setattr(torch, "randn", lambda *a, **k: next(used) / (end / steps) ** 0.5)
        spread = (lambda t, x: 0.8 * x) if noise == "multiplicative" else 0.8
        times = torch.tensor([0.0, end], dtype=torch.float64)
        return integrate_sde(
            lambda t, x: -x, spread, torch.ones(n, 1, dtype=torch.float64), times, max_step=end / steps
        )[-1]

    with pytest.MonkeyPatch.context() as monkey:
        if noise == "multiplicative":
            exact = torch.exp(torch.tensor(-1.0 - 0.32) * end + 0.8 * dw.sum(dim=0))
        else:
            exact = solve(1024, monkey)
        errors = [float((solve(s, monkey) - exact).abs().mean()) for s in (16, 64)]
    assert np.log(errors[0] / errors[1]) / np.log(4) == pytest.approx(order, abs=0.15)


def ou_paths(n, dt=0.1, g=0.3, theta=0.8, end=6.0, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(0, end, dt)
    x = np.empty((n, len(t), 1))
    x[:, 0] = rng.uniform(-2, 2, (n, 1))
    decay, spread = np.exp(-theta * dt), g * np.sqrt((1 - np.exp(-2 * theta * dt)) / (2 * theta))
    for i in range(1, len(t)):
        x[:, i] = decay * x[:, i - 1] + spread * rng.normal(size=(n, 1))
    return t, x


@pytest.mark.parametrize("order", range(1, 6))
@pytest.mark.parametrize("layout", ["shared", "trajectory", "dimension"])
def test_differences_of_increments(order, layout):
    """Squares of a Brownian motion's have the mean g^2 at any times; polynomial drifts add nothing."""
    rng = np.random.default_rng(order)
    n, times = 2000, np.sort(rng.uniform(0, 3, (2000, 12)), axis=1)
    if layout == "shared":
        times = np.broadcast_to(times[0], times.shape)
    noise = np.sqrt(np.diff(times, axis=1, prepend=0))[..., None] * rng.normal(size=(n, 12, 2))
    walk = np.cumsum(noise * [0.3, 2.0], axis=1)
    mask = rng.uniform(size=walk.shape) < 0.8 if layout == "dimension" else None
    if mask is not None:
        mask[:, 0] = True
    drift = np.polynomial.polynomial.polyval(times, rng.normal(size=order + 1))[..., None]

    def squares(values, j):
        return differences(read(times[0] if layout == "shared" else times, values, mask), j, order)

    for j, g in enumerate((0.3, 2.0)):
        found, span = squares(walk + drift, j)
        assert found.mean() == pytest.approx(g**2, rel=0.1)
        assert (span > 0).all()
        np.testing.assert_allclose(found, squares(walk, j)[0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("system", "dt", "least", "most"),
    [
        ("van-der-pol", 0.1, 0.078, 0.11), ("van-der-pol", 0.05, 0.078, 0.09),
        ("fitzhugh-nagumo", 0.1, 0.078, 0.086), ("lotka-volterra", 0.1, 0.078, 0.12),
        ("lotka-volterra", 0.05, 0.078, 0.1), ("brusselator", 0.05, 0.076, 0.09),
    ],
)  # fmt: skip
def test_diffusion_beneath_a_drift_that_bends(system, dt, least, most):
    """Half of the entries missing, g = 0.08: what the drift leaves only adds, and not much."""
    panel = make_sde(system, 200, np.arange(0, 6, dt), 0.5, seed=3)
    found = estimate_diffusion(panel.times, panel.values, panel.mask)
    assert (found > least).all()
    assert (found < most).all()
    assert (estimate_diffusion(panel.times, panel.values, panel.mask, "realized") > found).all()


def test_estimated_diffusion():
    """Raw increments count the drift; those beside a fitted drift do not."""
    t, x = ou_paths(400, dt=0.5, g=0.3)
    assert estimate_diffusion(t, x)[0] == pytest.approx(0.3, rel=0.03)
    # Raw increments count how far the mean moves, and lose what is damped within a gap.
    keep = np.exp(-0.8 * 0.5)
    expected = np.square(x[:, :-1]).mean() * (1 - keep) ** 2 + 0.3**2 * (1 - keep**2) / (2 * 0.8)
    assert estimate_diffusion(t, x, method="realized")[0] == pytest.approx(np.sqrt(expected / 0.5), rel=0.02)
    shown = make_sde("damped", 200, np.arange(0, 6, 0.1), 0.5)
    found = estimate_diffusion(shown.times, shown.values, shown.mask)
    assert found[0] < 0.02
    assert found[1] == pytest.approx(0.08, rel=0.03)
    assert estimate_diffusion(shown.times, shown.values, shown.mask, "realized")[1] > 0.16
    mask = np.random.default_rng(0).uniform(size=x.shape) < 0.7
    mask[:, :2] = True
    two = np.concatenate([x, 2 * x], axis=2)
    found = estimate_diffusion(t, two, np.concatenate([mask, mask[:, ::-1] | (np.arange(len(t)) < 2)[:, None]], axis=2))
    assert found[1] == pytest.approx(2 * found[0], rel=0.1)
    with pytest.raises(SplineFlowError, match="only one"):
        estimate_diffusion([0.0], np.zeros((3, 1, 1)))


def test_noise_decides_the_degree():
    rough, smooth = (read(*ou_paths(200, g=g, end=3.0)) for g in (0.3, 0.01))
    assert allowed_degree(rough, np.array([0.3])) == 1
    assert allowed_degree(smooth, np.array([0.01])) == 3


def test_drift_of_an_ou_process():
    """A net's drift is within 15 % of -theta x, where the field of the probability flow is not."""
    t, x = ou_paths(400)
    model = SplineFlow(stochastic=True, autonomous=True, max_steps=1200, g=0.3, **SMALL).fit(t, x)
    assert model.degree_ == 1
    np.testing.assert_allclose(model.g_, 0.3)
    q = np.quantile(x, [0.05, 0.95])
    states = x[(x > q[0]) & (x < q[1])][::50, None]
    assert np.sqrt(relative(model.drift(0.0, states), -0.8 * states)) < 0.15
    drawn = model.sample(x[:, 0], t, n=2, seed=0)
    assert drawn.shape == (2, 400, len(t), 1)
    assert drawn[:, :, -1].std() == pytest.approx(x[:, -1].std(), rel=0.15)
    again = model.sample(x[:, 0], t, n=2, seed=0)
    np.testing.assert_array_equal(drawn, again)
    single = model.sample(x[0, 0], t, n=3, seed=1, method="heun")
    assert single.shape == (3, len(t), 1)
    # The score is what the drift adds to the flow.
    added = model.drift(0.0, states) - model.vector_field(0.0, states)
    np.testing.assert_allclose(model.score(0.0, states), added * 2 / 0.3**2, atol=1e-4)


# Snapshots


def clouds(seed=0, n=120):
    """A population that moves along a half circle, seen at uneven times."""
    rng = np.random.default_rng(seed)
    times = np.array([0.0, 1.0, 3.0, 10.0])
    angles = np.pi * np.arange(4) / 3
    return [np.stack([np.cos(a), np.sin(a)]) + 0.1 * rng.normal(size=(n, 2)) for a in angles], times


def test_snapshots():
    arrays, times = clouds()
    model = SplineFlow(max_steps=700, **SMALL).fit_snapshots(arrays, times)
    assert model.degree_ == 2
    assert model.path_._map is not None
    rolled = model.predict(arrays[0], times)
    for k in range(1, 4):
        assert np.linalg.norm(rolled[:, k].mean(axis=0) - arrays[k].mean(axis=0)) < 0.1
    # Along the circle, not across it: a chord's middle would be at cos(30 degrees).
    middle = model.predict(arrays[0], [0.0, 2.0])[:, 1].mean(axis=0)
    assert np.linalg.norm(middle) > 0.9


def test_uneven_gaps_in_raw_time_are_warned_of():
    arrays, _ = clouds()
    times = np.array([0.0, 1.0, 2.0, 30.0])
    with pytest.warns(OvershootWarning, match="centripetal"):
        SplineFlow(max_steps=1, parametrization="time", **SMALL).fit_snapshots(arrays, times)
    for options in ({}, {"parametrization": "time", "shape": "monotone"}, {"parametrization": "time", "degree": 1}):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            SplineFlow(max_steps=1, **options, **SMALL).fit_snapshots(arrays, times)


# torchcfm


def test_matcher_equals_torchcfm_on_two_marginals():
    torchcfm = pytest.importorskip("torchcfm")
    generator = torch.Generator().manual_seed(0)
    x0, x1 = torch.randn(2, 64, 3, generator=generator)
    t = torch.rand(64, generator=generator)
    peer = torchcfm.ConditionalFlowMatcher(sigma=0.0).sample_location_and_conditional_flow(x0, x1, t)
    ours = SplineConditionalFlowMatcher(0.0, coupling="none").sample_location_and_conditional_flow(x0, x1, t)
    for a, b in zip(ours, peer, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    sigma = torchcfm.ConditionalFlowMatcher(sigma=0.5)
    theirs = sigma.sample_location_and_conditional_flow(x0, x1, t, return_noise=True)
    mine = SplineConditionalFlowMatcher(0.5, coupling="none").sample_location_and_conditional_flow(
        x0, x1, t, return_noise=True
    )
    np.testing.assert_allclose(mine[1] - 0.5 * mine[3], theirs[1] - 0.5 * theirs[3], atol=1e-6)


def test_matcher_couples_like_torchcfm():
    """The exact plan of uniform minibatches is an assignment."""
    torchcfm = pytest.importorskip("torchcfm")
    x0, x1 = torch.randn(2, 40, 2, generator=torch.Generator().manual_seed(1))
    plan = torchcfm.optimal_transport.OTPlanSampler(method="exact").get_map(x0, x1)
    ours = chained(torch.stack([x0, x1], dim=1))[:, 1]
    np.testing.assert_allclose(ours, x1[plan.argmax(axis=1)])


def test_matcher_in_torchcfms_training_loop():
    """Their loop and network, our matcher, four marginals: the flow passes through all of them."""
    pytest.importorskip("torchcfm")
    from torchcfm.models import MLP

    torch.manual_seed(0)
    arrays, times = clouds()
    matcher = SplineConditionalFlowMatcher(sigma=0.05)
    model = MLP(dim=2, time_varying=True)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(700):
        optimizer.zero_grad()
        batch = torch.stack([torch.tensor(a, dtype=torch.float32)[torch.randperm(120)[:64]] for a in arrays], dim=1)
        t, xt, ut = matcher.sample_location_and_conditional_flow(batch, times=times)
        vt = model(torch.cat([xt, t[:, None] / 10], dim=-1))
        loss = torch.mean((vt - ut) ** 2)
        loss.backward()
        optimizer.step()

    def flow(t, x):
        return model(torch.cat([x, (t / 10).expand(len(x), 1)], dim=-1))

    with torch.no_grad():
        states = integrate(flow, torch.tensor(arrays[0], dtype=torch.float32), torch.tensor(times), "rk4")
    for k in range(1, 4):
        assert np.linalg.norm(states[k].mean(dim=0).numpy() - arrays[k].mean(axis=0)) < 0.15


def test_matcher_bad_input():
    x = torch.zeros(4, 2)
    with pytest.raises(SplineFlowError, match="two marginals"):
        SplineConditionalFlowMatcher().sample_location_and_conditional_flow(x)
    with pytest.raises(SplineFlowError, match="two marginals"):
        SplineConditionalFlowMatcher().sample_location_and_conditional_flow(x, torch.zeros(3, 2))
    for options in ({"coupling": "best"}, {"degree": 0}, {"sigma": -1.0}):
        with pytest.raises(SplineFlowError):
            SplineConditionalFlowMatcher(**options)


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "spline"}, "path must be"),
        ({"schedule": "linear"}, "schedule must be"),
        ({"degree": 9}, "degree must be"),
        ({"degree": "cubic"}, "degree must be"),
        ({"max_steps": 0}, "max_steps"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"lr": 0.0}, "lr"),
        ({"sigma": -0.1}, "sigma"),
        ({"stochastic": True, "g": -1.0}, "g must be"),
        ({"stochastic": True, "g": [1.0, 1.0, 1.0]}, "g must be"),
        ({"stochastic": True, "schedule": "constant", "sigma": 0.0}, "sigma above 0"),
        ({"hidden": ()}, "hidden"),
        ({"activation": "step"}, "activation"),
    ],
)
def test_bad_parameters(options, message):
    t, x = oscillators(4)
    with pytest.raises(SplineFlowError, match=message):
        SplineFlow(**{**SMALL, "max_steps": 1, **options}).fit(t, x)


def test_bad_calls(oscillator):
    t, x, _, model = oscillator
    with pytest.raises(SplineFlowError, match="not fitted"):
        SplineFlow().predict(x[0, 0], t)
    for call, message in (
        (lambda: model.predict(np.zeros((2, 3)), t), "x0"),
        (lambda: model.predict(x[0, 0], [0.0, 0.0]), "monotone"),
        (lambda: model.predict(x[0, 0], t, method="euler"), "method"),
        (lambda: model.vector_field(0.0, np.zeros((2, 3))), "states must be"),
        (lambda: model.drift(0.0, x[0]), "stochastic=True"),
        (lambda: model.sample(x[0, 0], t), "stochastic=True"),
        (lambda: model.set_params(depth=3), "no parameter"),
        (lambda: SplineFlow(max_steps=1, **SMALL).fit(t[:1], x[:, :1]), "two observations"),
        (lambda: SplineFlow(max_steps=1, **SMALL).fit(t, x, cond=np.zeros((3, 1))), "cond"),
        (lambda: SplineFlow(max_steps=1, **SMALL).fit_snapshots([x[0], x[1]], [0.0]), "one for each snapshot"),
    ):
        with pytest.raises(SplineFlowError, match=message):
            call()


def test_tubes_by_default():
    """Narrow around smooth trajectories, whose field a wide one smooths; the paper's around snapshots and noise."""
    times, values = np.arange(6.0), np.random.default_rng(0).normal(size=(5, 6, 2)).cumsum(axis=1)

    def width(fit, **options):
        model = SplineFlow(max_steps=1, hidden=(4,), progress=False, **options)
        return fit(model).path_.schedule.sigma

    assert width(lambda m: m.fit(times, values)) == 0.01
    assert width(lambda m: m.fit_snapshots([*values.swapaxes(0, 1)], times)) == 0.08
    assert width(lambda m: m.fit(times, values), stochastic=True, schedule="constant") == 0.08
    assert width(lambda m: m.fit(times, values), sigma=0.3) == 0.3
    assert width(lambda m: m.fit(times, values), sigma=0) == 0


@pytest.mark.parametrize("sampler", ["uniform", "stratified", lambda b, g: torch.rand(b, generator=g)])
def test_batches_that_do_not_divide_what_is_drawn_at_once(sampler):
    t, x = oscillators(8)
    model = SplineFlow(max_steps=40, batch_size=3000, t_sampler=sampler, **SMALL).fit(t, x)
    assert len(model.loss_) == 40
    assert model.loss_[-1] < model.loss_[0]
