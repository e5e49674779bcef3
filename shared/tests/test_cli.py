"""The command line: what it prints, where, and with which exit code."""

import json
import sys
from inspect import signature

import click
import pytest
from click.testing import CliRunner

import sprigs
from sprigs.cli._app import app

# click 8.2 keeps stdout and stderr apart by itself, and no longer takes the option.
_SEPARATE = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}
RUNNER = CliRunner(**_SEPARATE)


@pytest.fixture
def run(here):
    """Runs a command in this interpreter, against the shelf."""

    def invoke(*arguments):
        return RUNNER.invoke(app, list(arguments), obj=sprigs.Registry(), prog_name="sprigs")

    return invoke


def test_list(run, here, add_good):
    add_good(here)
    here.add("twice", distribution="first", package="plug_first")
    here.add("twice", distribution="second", package="plug_second")
    result = run("list")
    assert result.exit_code == 0
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert "1.0" in rows["herb"]
    assert "dist-herb" in rows["herb"]
    assert "summary of herb" in rows["herb"]
    assert "DuplicateName" in rows["twice"]
    assert "pip uninstall first" in result.stderr


def test_list_of_nothing(run):
    assert run("list").stdout == "no method is installed in this environment\n"


def test_lines_are_never_cut(shelf):
    long = "a summary " * 40 + "[bold] :smile: end"
    shelf.add("wide", metadata=[f"Summary: {long}"])
    done = shelf.cli("list", COLUMNS="40")
    assert long in done.stdout
    assert "…" not in done.stdout


def test_info(run, here, add_good):
    add_good(here)
    result = run("info", "herb")
    assert result.exit_code == 0
    for expected in (
        "dist-herb 1.0",
        "Counts leaves",
        "https://example.org/leaves",
        "count",
        "pip install 'dist-herb[fast]'",
        "sprigs demo herb, sprigs claims herb, sprigs bench herb",
    ):
        assert expected in result.stdout
    told = json.loads(run("info", "HERB", "--json").stdout)
    assert told["card"]["exports"] == {"count": "plug_herb.leaves:count"}
    assert told["missing_imports"] == {"fast": ["a_module_nobody_has"]}
    assert told["error"] is None


def test_info_of_a_broken_plugin(run, here):
    here.add("bad", "1 / 0")
    result = run("info", "bad")
    assert result.exit_code == 3
    assert "dist-bad 1.0" in result.stdout
    assert "ZeroDivisionError" in result.stderr
    assert "Traceback" not in result.stderr
    result = run("info", "bad", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["error"]["kind"] == "ImportFailed"


@pytest.mark.parametrize(("plugin", "code"), [("1 / 0", 1), ("raise SystemExit(0)", 3)])
def test_strict_shows_the_traceback(shelf, plugin, code):
    shelf.add("bad", plugin)
    done = shelf.cli("info", "bad", SPRIGS_STRICT="1")
    assert done.returncode == code
    assert "Traceback" in done.stderr
    assert "plug_bad/plugin.py" in done.stderr.replace("\\", "/")


def test_demo_and_bench_hand_their_arguments_on(run, here, add_good):
    add_good(here)
    assert run("demo", "herb", "--times", "2").stdout == "leaf leaf \n"
    assert run("bench", "herb", "x.bin").stdout == "timed x.bin\n"
    inner = run("demo", "herb", "--help")
    assert inner.exit_code == 0
    assert inner.stdout.startswith("Usage: sprigs demo")
    assert "--times" in inner.stdout
    assert "--times" not in run("demo", "--help").stdout
    assert run("demo", "herb", "--nonsense").exit_code == 2


def test_no_demo(run, here):
    here.add("plain")
    result = run("demo", "plain")
    assert result.exit_code == 2
    assert "plain has no demo" in result.stderr


def test_demo_that_is_no_command(run, here, add_good):
    add_good(here, files={"cli.py": "demo = print\nshow = fail = None\n"})
    result = run("demo", "herb")
    assert result.exit_code == 3
    assert "must be a click.Command" in result.stderr


def test_own_commands(run, here, add_good):
    add_good(here)
    assert run("herb", "show").stdout == "shown\n"
    help_text = run("herb", "--help").stdout
    assert "Counts leaves" in help_text
    assert "Show it." in help_text
    assert run("herb").exit_code in (0, 2)  # click 8.2 made the bare group a usage error
    assert run("herb", "nonsense").exit_code == 2
    interrupted = run("herb", "fail")
    assert interrupted.exit_code == 130
    assert "Traceback" not in interrupted.output


def test_interrupted_at_a_prompt(run, here):
    # click turns Ctrl-C at a prompt, and here the end of input, into an Abort.
    body = "return [click.Command('herb', callback=lambda: click.prompt('how many'))]"
    here.add("herb", COMMANDS.format(body=body))
    assert run("herb").exit_code == 130


COMMANDS = """
import sprigs

@sprigs.hookimpl
def sprigs_method():
    return sprigs.Method(name="herb", title="t", paper=None, exports={{}})

@sprigs.hookimpl
def sprigs_commands():
    import click
    {body}
"""


@pytest.mark.parametrize(
    ("body", "arguments", "stdout"),
    [
        (
            "go = click.Command('go', callback=lambda: print(1))\n    return [click.Group('herb', commands=[go])]",
            ["herb", "go"],
            "1\n",
        ),
        ("return [click.Command('herb', callback=lambda: print(2))]", ["herb"], "2\n"),
        ("return [click.Command('go', callback=lambda: print(3))]", ["herb", "go"], "3\n"),
    ],
)
def test_one_command_of_its_own(run, here, body, arguments, stdout):
    here.add("herb", COMMANDS.format(body=body))
    assert run(*arguments).stdout == stdout


def test_commands_that_fail_to_load(run, here):
    here.add("herb", COMMANDS.format(body="import a_module_nobody_has"))
    result = run("herb", "go")
    assert result.exit_code == 3
    assert "a_module_nobody_has" in result.stderr


def test_no_commands(run, here):
    here.add("plain")
    result = run("plain")
    assert result.exit_code == 2
    assert "sprigs info plain" in result.stderr


def test_unknown(run, here):
    here.add("splitzip")
    for arguments in (["splitzp"], ["splitzp", "encode"]):
        result = run(*arguments)
        assert result.exit_code == 2
        assert "did you mean 'splitzip'?" in result.stderr
    for command in ("info", "demo", "claims", "bench"):
        result = run(command, "splitzp")
        assert result.exit_code == 2
        assert "did you mean 'splitzip'?" in result.stderr
    assert "did you mean 'doctor'?" in run("docter").stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPRIGS_STRICT", "1")  # it is about plugins, not about typing errors
        assert run("info", "splitzp").exit_code == 2
    assert run("--nonsense").exit_code == 2


def test_a_method_named_as_a_command(run, here):
    here.add("list")
    here.add("good")
    listing = run("list")
    assert listing.exit_code == 0
    assert "the name is taken by the command `sprigs list`" in listing.stderr
    assert run("info", "list").exit_code == 3
    assert run("info", "good").exit_code == 0
    assert run("--help").stdout.count("\n  list ") == 1


def test_claims_table(run, here, add_good):
    add_good(here)
    result = run("claims", "herb", "--fast")
    assert result.exit_code == 1
    assert "DOES NOT HOLD" in result.stdout
    assert "raised RuntimeError: broken" in result.stdout
    assert "[1/5] holds: holds (" in result.stderr
    assert "[4/5] no-data: not run (" in result.stderr
    good = run("claims", "herb", "--only", "holds", "--only", "no-data")
    assert good.exit_code == 0
    unknown = run("claims", "herb", "--only", "nope")
    assert unknown.exit_code == 2
    assert "it has holds, fails" in unknown.stderr


def test_claims_json(run, here, add_good, tmp_path):
    add_good(here)
    file = tmp_path / "a new folder" / "claims.json"
    result = run("claims", "herb", "--json", "-o", str(file))
    assert result.exit_code == 1
    printed = json.loads(result.stdout)
    assert json.loads(file.read_text()) == printed
    assert [claim["id"] for claim in printed] == ["holds", "fails", "raises", "no-data", "no-extra"]
    assert {"statement", "paper", "measured", "baseline", "holds", "seconds", "command"} <= set(printed[0])


def test_interrupted_claims_keep_what_is_done(run, here, add_good, tmp_path):
    text = (
        "import sprigs\ndef stop(fast):\n    raise KeyboardInterrupt\n"
        "def go(fast):\n    return sprigs.Outcome(measured='1', holds=True)\n"
        "CLAIMS = [sprigs.Claim(id=r.__name__, statement='s', paper='p', here='h', bar='b', run=r)"
        " for r in (go, stop)]\n"
    )
    add_good(here, files={"claims.py": text})
    file = tmp_path / "claims.json"
    result = run("claims", "herb", "-o", str(file))
    assert result.exit_code == 130
    assert [claim["id"] for claim in json.loads(file.read_text())] == ["go"]


def test_doctor(run, here):
    here.add("good")
    result = run("doctor", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["versions"]["sprigs"] == sprigs.__version__
    assert told["versions"]["click"]
    assert set(told["compilers"]) == {"nvcc", "g++", "clang++"}
    assert told["emulator"] == "not installed (pip install sprigs-emulator)"
    assert [(m["name"], m["error"]) for m in told["methods"]] == [("good", None)]
    here.add("bad", "raise SystemExit(0)")
    result = run("doctor")
    assert result.exit_code == 1
    assert "method good" in result.stdout
    assert "ImportFailed" in result.stdout
    assert "pip install --upgrade dist-bad" in result.stderr


def test_doctor_shows_all_failures_even_when_strict(run, here, monkeypatch):
    monkeypatch.setenv("SPRIGS_STRICT", "1")
    here.add("bad", "1 / 0")
    here.add("worse", "1 / 0")
    result = run("doctor")
    assert result.exit_code == 1
    assert "dist-bad" in result.stderr
    assert "dist-worse" in result.stderr


@pytest.mark.parametrize(
    ("body", "said"), [("return 'g++ 12.2'", "uses g++ 12.2"), ("raise RuntimeError('install g++')", "install g++")]
)
def test_doctor_tells_the_emulators_compiler(run, here, body, said):
    here.add(
        "emulator",
        "import sprigs\n"
        f"def find_compiler():\n    {body}\n"
        "@sprigs.hookimpl\ndef sprigs_method():\n"
        "    exports = {'find_compiler': f'{__name__}:find_compiler'}\n"
        "    return sprigs.Method(name='emulator', title='t', paper=None, exports=exports)\n",
    )
    assert said in json.loads(run("doctor", "--json").stdout)["emulator"]


def test_doctor_and_blocked(run, here, monkeypatch):
    monkeypatch.setenv("SPRIGS_BLOCK", "bad")
    here.add("bad", "1 / 0")
    result = run("doctor")
    assert result.exit_code == 0
    assert "Blocked" in result.stdout
    assert run("info", "bad").exit_code == 3


def test_version_and_exit_codes_in_the_help(run):
    assert run("--version").stdout == f"sprigs {sprigs.__version__}\n"
    help_text = run("--help").stdout
    for code in ("  0 ", "  1 ", "  2 ", "  3 ", "  130 "):
        assert code in help_text


def test_keyboard_interrupt_while_a_plugin_is_imported(shelf):
    shelf.add("bad", "raise KeyboardInterrupt")
    done = shelf.cli("info", "bad")
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def complete(shelf, line):
    """The words a shell would offer at the end of a line."""
    words = line.split(" ")
    done = shelf._run(
        [
            sys.executable,
            "-c",
            "import sys\nfrom sprigs.cli import main\n"
            "try:\n    main()\nfinally:\n"
            "    print(sorted(m for m in sys.modules if m.startswith('plug_')), file=sys.stderr)\n",
        ],
        {
            "_SPRIGS_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
    )
    offered = [item.partition(",")[2] for item in done.stdout.split()]
    return offered, done.stderr.strip()


def test_completion_imports_nothing(shelf, add_good):
    add_good(shelf)
    shelf.add("hedge", "raise RuntimeError('imported')")
    assert complete(shelf, "sprigs he") == (["hedge", "herb"], "[]")
    assert complete(shelf, "sprigs info her") == (["herb"], "[]")
    assert complete(shelf, "sprigs demo h") == (["hedge", "herb"], "[]")
    assert complete(shelf, "sprigs cl") == (["claims"], "[]")


def test_completion_of_a_methods_own_commands(shelf, add_good):
    add_good(shelf)
    offered, imported = complete(shelf, "sprigs herb sh")
    assert offered == ["show"]
    assert "plug_herb.plugin" in imported


def test_completion_meets_a_broken_plugin_in_silence(shelf):
    shelf.add("bad", "1 / 0")
    offered, stderr = complete(shelf, "sprigs bad sh")
    assert offered == []
    assert "Error" not in stderr


def test_a_host_may_mount_the_commands(here):
    here.add("can", group="greenhouse.tools")
    host = click.Group("greenhouse", commands={"tools": app})
    result = RUNNER.invoke(host, ["tools", "list"], obj=sprigs.Registry("greenhouse.tools"))
    assert "dist-can" in result.stdout


def test_list_imports_only_what_it_prints_with(shelf):
    """What makes `sprigs list` quick; benchmarks/bench_list.py measures the seconds."""
    shelf.add("one", "raise RuntimeError('imported')")
    done = shelf.run("""
        import json, sys
        from sprigs.cli._app import app
        app(["list"], standalone_mode=False)
        print(json.dumps(list(sys.modules)))
    """)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    idle = {
        "numpy",
        "pooch",
        "pygments",
        "markdown_it",
        "asyncio",
        "rich.progress",
        "rich.traceback",
    }
    ours = {"sprigs.bench", "sprigs.data", "sprigs.testing", "sprigs.cli._doctor"}
    assert loaded & (idle | ours) == set()
    assert "rich.table" in loaded
