"""Queries, tables, commands, pictures, the demo, the claims, and the package as a plugin."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import sprigs
from sprigs.testing import checks
from sprigs_sponsored import (
    BackendUnavailable,
    JointVCG,
    Modular,
    SponsoredError,
    engagement,
    load_topics,
    plots,
    qulac,
    random_instance,
    read_instance,
    recommend,
    simulate,
)
from sprigs_sponsored import claims as claims_module
from sprigs_sponsored.cli import commands
from sprigs_sponsored.demo import demo
from sprigs_sponsored.experiments import query_experiment
from sprigs_sponsored.queries import (
    ANSWERS,
    answer_class,
    best_posterior_entropy,
    entropy,
    generated_topics,
    reduce_answers,
    topics_of,
)

RUN = {command.name: command for command in commands}


@pytest.mark.parametrize(("name", "check"), checks("sponsored"))
def test_contract(name, check):
    check()


@pytest.fixture
def real():
    try:
        return load_topics()
    except sprigs.DataUnavailable as missing:
        pytest.skip(str(missing))


def test_qulac_is_as_described(real):
    assert len(real) == 198
    assert np.mean([len(t.facets) for t in real.values()]) == pytest.approx(3.85, abs=0.005)
    assert np.mean([len(t.questions) for t in real.values()]) == pytest.approx(13.3, abs=0.05)
    prior = np.mean([np.log2(len(t.facets)) for t in real.values()])
    left = np.mean([best_posterior_entropy(qulac(t, eps=0.0)) for t in real.values()])
    assert prior == pytest.approx(1.886, abs=5e-4)
    assert prior - left == pytest.approx(1.476, abs=5e-4)
    with pytest.raises(SponsoredError, match="no topic"):
        qulac(99999)


def test_the_query_experiment(real):
    """The means of the plan, within sampling error; and the worst case of the single winner."""
    random = query_experiment("random", topics=real, draws=20)
    rivals = query_experiment("rivals", topics=real, draws=20)
    plan = [(0.649, 0.864, 0.919, 0.894, 0.931), (0.301, 0.641, 0.801, 0.809, 0.809)]
    for e, expected in zip((random, rivals), plan, strict=True):
        # The plan's figures have three digits and draws of their own.
        assert (np.abs(e.mean - expected) <= 2 * e.standard_error + 5e-4).all()
    assert rivals.shares[..., 1].min() == pytest.approx(0.25, abs=0.01)


def test_the_query_experiment_without_data():
    e = query_experiment("random", topics=generated_topics(40), draws=4)
    assert e.shares.shape == (40, 4, 5)
    null, single, public, sponsor, joint = e.mean
    assert null < single < joint
    assert max(public, sponsor) <= joint


def test_answers_are_classed_by_their_first_words():
    for text, expected in {
        "Yes, please": "yes",
        "sure thing": "yes",
        "i am looking for that": "yes",
        "no": "no",
        "Not really": "no",
        "i am not looking for that": "no",
        "I don't know": "unsure",
        "im not sure": "unsure",
        "i want pictures": "other",
        "": "other",
        "nothing": "other",
    }.items():
        assert answer_class(text) == expected, text
    columns = {
        "topic_id": {"0": 1, "1": 1, "2": 1},
        "topic": {"0": "q", "1": "q", "2": "q"},
        "facet_id": {"0": 1, "1": 2, "2": 2},
        "facet_desc": {"0": "a", "1": "b", "2": "b"},
        "question": {"0": "is it a", "1": "is it a", "2": " "},
        "answer": {"0": "yes", "1": "no", "2": ""},
    }
    (topic,) = topics_of(reduce_answers(columns)).values()
    assert topic.answers.tolist() == [[[1, 0, 0, 0], [0, 1, 0, 0]]]
    kernel = topic.kernel(0.2)
    assert kernel.shape == (2, 2, 4)
    np.testing.assert_allclose(kernel.sum(axis=2), 1)
    for bad in ({}, {"topic_id": {"x": 1}}):
        with pytest.raises(SponsoredError, match=r"qulac\.json"):
            reduce_answers(bad)
    with pytest.raises(SponsoredError, match="classes"):
        topics_of(
            [
                {
                    "topic_id": "1",
                    "topic": "q",
                    "facet_id": "1",
                    "facet_desc": "",
                    "question": "q",
                    "answer_class": "maybe",
                }
            ]
        )


def test_the_originals_answers_reduce_to_nearly_the_same(real, tmp_path, monkeypatch):
    """From a file in Qulac's own form, made of the reduced one."""
    records = {"topic_id": {}, "topic": {}, "facet_id": {}, "facet_desc": {}, "question": {}, "answer": {}}
    number = 0
    for topic in list(real.values())[:5]:
        for q, question in enumerate(topic.questions):
            for f, facet in enumerate(topic.facets):
                row = (topic.topic_id, topic.query, f, facet, question, ANSWERS[int(topic.answers[q, f].argmax())])
                for column, value in zip(records, row, strict=True):
                    records[column][str(number)] = value
                number += 1
    path = tmp_path / "qulac.json"
    path.write_text(json.dumps(records))
    for topic_id, topic in load_topics(path).items():
        mine = np.eye(4)[real[topic_id].answers.argmax(axis=2)]
        np.testing.assert_array_equal(topic.answers, mine)
    path.write_text("{")
    load_topics.cache_clear()
    with pytest.raises(SponsoredError, match="not JSON"):
        load_topics(path)


def test_entropy():
    assert entropy(np.array([0.5, 0.5, 0])) == pytest.approx(1)
    assert entropy(np.full(8, 1 / 8)) == pytest.approx(3)


@pytest.fixture
def tables(tmp_path):
    (tmp_path / "advertisers.csv").write_text("advertiser,buy,learn\nshop,10,0\nschool,0,8\nportal,6,6\n")
    (tmp_path / "prior.csv").write_text("intent,probability\nbuy,0.5\nlearn,0.5\n")
    (tmp_path / "answers.csv").write_text(
        "question,intent,signal,probability\nBuy or learn?,buy,buy,1\nBuy or learn?,learn,learn,1\n"
    )
    return [tmp_path / f"{name}.csv" for name in ("advertisers", "prior", "answers")]


def test_tables_in_and_a_recommendation_out(tables):
    instance = read_instance(*tables)
    joint = JointVCG().run(instance)
    assert joint.payments.tolist() == [3, 3, 0], "the hand instance"
    advice = recommend(instance)
    assert "Ask 'Buy or learn?': it adds 3 to a welfare of 6" in advice.verdict
    assert [row[2] for row in advice.rows()] == [6, 9, 9, 9, 9, 9, 9]
    assert "jointly" in recommend(engagement()).verdict
    assert recommend(engagement().replace(values=np.zeros((3, 2)))).verdict.startswith("Ask nothing")


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (0, "advertiser,buy\nshop,1\n", "lacks the column 'learn'"),
        (0, "advertiser,buy,learn\nshop,x,1\n", r"line 2: 'x' is not a number"),
        (0, "advertiser,buy,learn\n", "no rows"),
        (0, "advertiser,buy,learn\nshop,-1,1\n", "not negative"),
        (0, b"\xff\xfe\x00", "cannot be read|lacks"),
        (1, "intent,probability\nbuy,0.5\nbuy,0.5\n", "named twice"),
        (1, "intent,probability\nbuy,0.5\nlearn,0.4\n", "sum to 1"),
        (2, "question,intent,signal,probability\nq,fly,s,1\n", "none of the intents"),
        (2, "question,intent,signal,probability\nq,buy,s,0.5\nq,buy,s,0.5\n", "twice"),
        (2, "question,intent,signal,probability\nq,buy,s,0.8\nq,buy,t,0.8\n", "at most"),
    ],
)
def test_bad_tables(tables, file, text, said):
    tables[file].write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SponsoredError, match=said):
        read_instance(*tables)
    result = CliRunner().invoke(
        RUN["recommend"], [str(tables[0]), "--prior", str(tables[1]), "--answers", str(tables[2])]
    )
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")


def test_commands(tables, tmp_path):
    def run(name, *arguments):
        result = CliRunner().invoke(RUN[name], list(map(str, arguments)))
        assert result.exit_code == 0, result.output
        return result.output

    arguments = (tables[0], "--prior", tables[1], "--answers", tables[2])
    assert "Ask 'Buy or learn?'" in run("recommend", *arguments)
    content = json.loads(run("recommend", *arguments, "--json"))
    assert content["mechanisms"][5]["welfare"] == 9
    config = tmp_path / "c.toml"
    config.write_text("intents = 2\nquestions = 2\nsignals = 2\nadvertisers = 3\n")
    assert "joint VCG" in run("simulate", config, "-n", 2000, "--backend", "numpy")
    content = json.loads(run("simulate", config, "-n", 2000, "--backend", "numpy", "--json"))
    assert content["auctions"] == 2000
    for family in ("engagement", "intents", "free-rider"):
        assert "closed form" in run("poa", "--family", family, "--step", 0.1)
    content = json.loads(run("poa", "--step", 0.05, "--json"))
    assert [row["pure"]["value"] for row in content] == pytest.approx([2, 4, 8])
    coarse = json.loads(run("poa", "--step", 0.3, "--json"))[2]["pure"]
    assert coarse["value"] == "inf", "nobody can bid as little as 1/8: everybody leaves"
    slates = tmp_path / "s.json"
    slates.write_text(
        json.dumps({"prior": [0.5, 0.5], "prompts": [[2, -2], [-2, 2]], "values": [[1, 0], [0, 1]], "k": 2})
    )
    assert "4 of 4 slates, enumerate" in run("slate", slates)
    assert json.loads(run("slate", slates, "--method", "bnb", "--json"))["slate"] == [0, 1]
    for text in ("{", "[]", '{"prior": [1]}', '{"prior": [1], "prompts": [[1]], "values": [[1]], "k": 9}'):
        slates.write_text(text)
        assert CliRunner().invoke(RUN["slate"], [str(slates)]).exit_code == 1
    config.write_text("intents = 0")
    assert CliRunner().invoke(RUN["simulate"], [str(config)]).exit_code == 1


def test_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    instance = random_instance(0)
    drawn = [
        plots.poa_curve(),
        plots.mechanism_bars([JointVCG().run(instance), Modular().run(instance)]),
        plots.welfare_cdf(np.random.default_rng(0).random((50, 2)), ("a", "b")),
        plots.rebate_tradeoff(),
        plots.posterior_tree(instance),
    ]
    for k, ax in enumerate(drawn):
        ax.figure.savefig(tmp_path / f"{k}.png")
        assert (tmp_path / f"{k}.png").stat().st_size > 5000
        assert ax.get_title()
    measured, closed = drawn[0].get_lines()[:2]
    np.testing.assert_allclose(measured.get_ydata(), closed.get_ydata())


def test_pictures_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BackendUnavailable, match="matplotlib"):
        plots.poa_curve()


def test_the_demo(tmp_path):
    result = CliRunner().invoke(demo, ["-o", str(tmp_path / "d.png"), "--draws", "1"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "d.png").stat().st_size > 50_000
    assert float(re.search(r"([\d.]+) s\s*$", result.output)[1]) < 30
    assert "joint VCG" in result.output


@pytest.mark.parametrize("claim", claims_module.CLAIMS, ids=lambda c: c.id)
def test_claims_hold(claim):
    outcome = claim.run(True)
    assert outcome.holds, outcome.measured


def test_readme_examples_print_what_the_readme_shows(tmp_path):
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```\n+```\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 2
    for code, output in examples:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
        assert done.stdout == output


def test_lazy_names():
    import sprigs_sponsored

    assert callable(simulate)
    for name in sprigs_sponsored.__all__:
        assert getattr(sprigs_sponsored, name) is not None
    assert not Path(sprigs_sponsored.__file__).with_name("simulate.py").exists()
