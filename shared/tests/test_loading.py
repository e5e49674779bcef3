"""Loading: each failure breaks its own plugin alone, and its message says how to mend it."""

import threading

import pytest

import sprigs

GOOD_EXPORTS = {"answer": "plug_good.things:answer"}
THINGS = {"things.py": "def answer():\n    return 42\n"}

HEAD = "import sprigs\n"


def card(body: str) -> str:
    return f"import sprigs\n\n@sprigs.hookimpl\ndef sprigs_method():\n    {body}\n"


def method(**changes: object) -> str:
    fields: dict[str, object] = {"name": "bad", "title": "t", "paper": None, "exports": {}}
    fields.update(changes)
    return f"return sprigs.Method(**{fields!r})"


FAILURES = {
    "import-error": (
        "import a_module_that_is_not_there",
        sprigs.ImportFailed,
        "No module named 'a_module_that_is_not_there'",
        "pip install --upgrade dist-bad",
    ),
    "syntax-error": ("def (", sprigs.ImportFailed, "SyntaxError", "SPRIGS_BLOCK=bad"),
    "system-exit": (
        "raise SystemExit(7)",
        sprigs.ImportFailed,
        "it called sys.exit(7)",
        "pip uninstall dist-bad",
    ),
    "exception": ("1 / 0", sprigs.ImportFailed, "ZeroDivisionError", "SPRIGS_STRICT=1"),
    "signature": (
        "import sprigs\n\n@sprigs.hookimpl\ndef sprigs_method(verbose):\n    pass\n",
        sprigs.BadHook,
        "verbose",
        "pip install --upgrade dist-bad",
    ),
    "misspelt-hook": (
        "import sprigs\n\n@sprigs.hookimpl\ndef sprigs_metod():\n    pass\n",
        sprigs.BadHook,
        "'sprigs_metod'; did you mean 'sprigs_method'?",
        "pip install --upgrade dist-bad",
    ),
    "no-hook": (
        "def sprigs_method():\n    pass\n",
        sprigs.BadHook,
        "is it marked @sprigs.hookimpl?",
        "pip install --upgrade dist-bad",
    ),
    "card-type": (
        card("return {'name': 'bad'}"),
        sprigs.BadCard,
        "must return a sprigs.Method, it returned a dict",
        "pip uninstall dist-bad",
    ),
    "card-name": (
        card(method(name="other")),
        sprigs.BadCard,
        "the card is named 'other', its entry point 'bad'",
        "pip install --upgrade dist-bad",
    ),
    "card-raises": (
        card("return sprigs.Method(name='bad', from_the_future=1)"),
        sprigs.BadCard,
        "from_the_future",
        "pip install --upgrade sprigs dist-bad",
    ),
    "api-too-new": (
        card(method(api=99)),
        sprigs.ApiTooNew,
        "needs API 99",
        "pip install --upgrade sprigs",
    ),
    "asks-for-itself": (
        "import sprigs\nsprigs.get('bad')\n",
        sprigs.ImportFailed,
        "ImportFailed: bad",
        "pip install --upgrade dist-bad",
    ),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_breaks_only_itself(here, kind, monkeypatch):
    plugin, error, problem, fix = FAILURES[kind]
    registry = sprigs.Registry()
    # The one that asks for itself asks the default registry.
    monkeypatch.setattr("sprigs.get", registry.get)
    here.add("bad", plugin)
    here.add("good", exports=GOOD_EXPORTS, files=THINGS)

    with pytest.raises(error) as caught:
        registry.get("bad")
    assert type(caught.value) is error
    message = str(caught.value)
    assert message.startswith("bad (dist-bad 1.0): ")
    assert problem in message
    assert fix in message.partition("fix: ")[2]

    assert registry.get("good").title == "Does good"
    assert registry.load("good", "answer")() == 42
    assert registry.failures() == {"bad": caught.value}
    assert registry.entry("bad").error is caught.value
    assert registry.entry("good").error is None
    # No half registration is left behind.
    assert not registry.pm.has_plugin("bad")
    assert {plugin.__name__ for plugin in registry.pm.get_plugins()} == {"plug_good.plugin"}
    assert [i.plugin_name for i in registry.pm.hook.sprigs_method.get_hookimpls()] == ["good"]
    registry.pm.check_pending()


def test_the_original_exception_is_the_cause(here):
    here.add("bad", "1 / 0")
    with pytest.raises(sprigs.ImportFailed) as caught:
        sprigs.Registry().get("bad")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_failure_is_kept_until_refresh(here):
    counter = here.root / "count"
    here.add(
        "bad",
        f"with open({str(counter)!r}, 'a') as f: f.write('x')\n"
        "import os\nif os.environ.get('BAD'): 1 / 0\n" + card(method()),
    )
    registry = sprigs.Registry()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAD", "1")
        with pytest.raises(sprigs.ImportFailed) as first:
            registry.get("bad")
    with pytest.raises(sprigs.ImportFailed) as second:
        registry.get("bad")
    assert second.value is first.value
    assert counter.read_text() == "x"
    registry.refresh()
    assert registry.get("bad").name == "bad"
    assert counter.read_text() == "xx"
    assert registry.failures() == {}


def test_refresh_finds_what_was_installed_meanwhile(here):
    here.add("one")
    registry = sprigs.Registry()
    registry.get("one")
    here.add("two")
    with pytest.raises(sprigs.UnknownMethod):
        registry.get("two")
    registry.refresh()
    assert registry.get("two").name == "two"
    assert registry.get("one").name == "one"


@pytest.mark.parametrize("kind", ["KeyboardInterrupt", "GeneratorExit"])
def test_what_belongs_to_the_user_is_never_swallowed(here, kind):
    here.add("bad", f"raise {kind}()")
    registry = sprigs.Registry()
    with pytest.raises(BaseException) as caught:
        registry.get("bad")
    assert type(caught.value).__name__ == kind
    assert registry.failures() == {}
    assert not registry.pm.has_plugin("bad")


def test_strict_raises_the_original(here, monkeypatch):
    here.add("bad", "1 / 0")
    here.add("quits", "raise SystemExit(3)")
    here.add("wrong", card(method(name="other")))
    registry = sprigs.Registry()
    monkeypatch.setenv("SPRIGS_STRICT", "1")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            registry.get("bad")
    with pytest.raises(SystemExit):
        registry.get("quits")
    with pytest.raises(sprigs.BadCard):  # nothing lies underneath
        registry.get("wrong")
    with pytest.raises(ZeroDivisionError):
        registry.load_all()
    monkeypatch.setenv("SPRIGS_STRICT", "0")
    with pytest.raises(sprigs.ImportFailed):
        registry.get("bad")
    with pytest.raises(ZeroDivisionError):
        sprigs.Registry(strict=True).get("bad")


def test_blocked(here, monkeypatch):
    here.add("bad", "1 / 0")
    here.add("other", "1 / 0")
    here.add("good")
    monkeypatch.setenv("SPRIGS_BLOCK", "Bad, ")
    registry = sprigs.Registry(block=["OTHER"])
    with pytest.raises(sprigs.Blocked, match="take bad out of SPRIGS_BLOCK"):
        registry.get("bad")
    with pytest.raises(sprigs.Blocked, match="by this application"):
        registry.get("other")
    assert registry.pm.is_blocked("bad")
    # Blocking is no failure: the plugin was never tried.
    assert registry.load_all() == {}
    assert registry.get("good").name == "good"
    monkeypatch.delenv("SPRIGS_BLOCK")
    registry.refresh()
    with pytest.raises(sprigs.ImportFailed):
        registry.get("bad")


def test_block_refuses_a_bare_string():
    with pytest.raises(TypeError, match="list of names"):
        sprigs.Registry(block="bad")


@pytest.mark.parametrize("module", ["plug_second", "plug_first"])
def test_two_distributions_with_one_name(here, module):
    here.add("bad", distribution="first", package="plug_first")
    here.add("bad", distribution="second", package=module)  # perhaps a fork of the first
    here.add("good")
    registry = sprigs.Registry()
    with pytest.raises(sprigs.DuplicateName) as caught:
        registry.get("bad")
    message = str(caught.value)
    assert "first 1.0" in message
    assert "second 1.0" in message
    assert "pip uninstall first" in message
    assert "pip uninstall second" in message
    assert registry.get("good").name == "good"


@pytest.mark.parametrize("name", ["list", "doctor"])
def test_the_name_of_a_command_is_refused_for_the_hub_alone(here, name):
    here.add(name)
    here.add("good")
    registry = sprigs.Registry()
    with pytest.raises(sprigs.DuplicateName, match=f"the command `sprigs {name}`"):
        registry.get(name)
    assert registry.get("good").name == "good"
    here.add(name, group="a.host", distribution="hosts", package="plug_hosts")
    assert sprigs.Registry("a.host").get(name).name == name


def test_one_plugin_under_two_names(here):
    here.add("good")
    here.add("twin", distribution="dist-twin", package="plug_twin", value="plug_good.plugin")
    registry = sprigs.Registry()
    registry.get("good")
    with pytest.raises(sprigs.BadHook, match="already registered"):
        registry.get("twin")
    assert registry.pm.has_plugin("good")


EXPORTS = {
    "answer": "plug_good.things:answer",
    "nothing": "plug_good.things:nothing",
    "nowhere": "plug_good.nowhere:x",
    "quick": "plug_good.quick:x",
    "lazy": "plug_good.things:lazy",
    "broken": "plug_good.broken:x",
}
EXPORT_FILES = {
    "things.py": """
        def answer():
            return 42
        def __getattr__(name):
            if name == "lazy":
                try:
                    import a_fast_module
                except ImportError as error:
                    raise RuntimeError("lazily") from error
            raise AttributeError(name)
    """,
    "quick.py": "import a_fast_module.inner",
    "broken.py": "1 / 0",
}


@pytest.fixture
def exporting(here):
    here.add(
        "good",
        "import sprigs\n\n@sprigs.hookimpl\ndef sprigs_method():\n"
        f"    return sprigs.Method(name='good', title='t', paper=None, exports={EXPORTS!r},\n"
        "        extras={'fast': ('a_fast_module',)})\n",
        files=EXPORT_FILES,
    )
    return sprigs.Registry()


@pytest.mark.parametrize(
    ("export", "error", "message"),
    [
        ("anser", sprigs.MissingExport, "did you mean 'answer'.*it exports answer, broken"),
        ("nothing", sprigs.MissingExport, "plug_good.things has no 'nothing'"),
        ("nowhere", sprigs.MissingExport, "no module 'plug_good.nowhere'"),
        ("quick", sprigs.MissingExtra, r"pip install 'dist-good\[fast\]'"),
        ("lazy", sprigs.MissingExtra, r"pip install 'dist-good\[fast\]'"),
        ("broken", sprigs.ImportFailed, "ZeroDivisionError"),
    ],
)
def test_exports_that_cannot_be_had(exporting, export, error, message):
    with pytest.raises(error) as caught:
        exporting.load("good", export)
    assert type(caught.value) is error
    import re

    assert re.search(message, str(caught.value), re.DOTALL), str(caught.value)
    # The card is good all the same, and so are the other exports.
    assert exporting.failures() == {}
    assert exporting.load("good", "answer")() == 42


def test_strict_exports_raise_the_original(exporting, monkeypatch):
    monkeypatch.setenv("SPRIGS_STRICT", "1")
    with pytest.raises(ModuleNotFoundError, match="a_fast_module"):
        exporting.load("good", "quick")


def test_first_load_is_safe_from_many_threads(here):
    counter = here.root / "count"
    here.add(
        "slow",
        f"import time\nwith open({str(counter)!r}, 'a') as f: f.write('x')\ntime.sleep(0.2)\n"
        + card(method(name="slow")),
    )
    registry = sprigs.Registry()
    barrier = threading.Barrier(16)
    cards = []

    def load():
        barrier.wait()
        cards.append(registry.get("slow"))

    threads = [threading.Thread(target=load) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.read_text() == "x"
    assert len(cards) == 16
    assert {id(card) for card in cards} == {id(cards[0])}


def test_the_default_registry(shelf):
    shelf.add("good", exports=GOOD_EXPORTS, files=THINGS)
    done = shelf.run("""
        import sprigs
        assert list(sprigs.methods()) == ["good"]
        assert sprigs.get("good") is sprigs.registry().get("good")
        print(sprigs.load("good", "answer")())
    """)
    assert done.stdout == "42\n", done.stderr
