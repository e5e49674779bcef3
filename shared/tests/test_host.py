"""What a host sees: its own hooks, its own group, and news of what was loaded and what failed."""

import types

import pluggy
import pytest

import sprigs

HOST_SPEC = pluggy.HookspecMarker("greenhouse")


class Specifications:
    """Hooks of an imaginary host."""

    @HOST_SPEC
    def greenhouse_water(self, litres):
        """Give water."""


class Listener:
    """Writes down what it is told."""

    def __init__(self):
        self.loaded = []
        self.failed = []

    @sprigs.hookimpl
    def sprigs_loaded(self, method, entry):
        self.loaded.append((entry.name, method and method.title))

    @sprigs.hookimpl
    def sprigs_failed(self, entry, error):
        self.failed.append((entry.name, type(error)))


@pytest.fixture
def listener():
    return Listener()


def test_the_host_is_told_once(here, listener):
    here.add("good")
    here.add("bad", "1 / 0")
    here.add("twice", distribution="first", package="plug_first")
    here.add("twice", distribution="second", package="plug_second")
    registry = sprigs.Registry()
    registry.pm.register(listener)
    for _ in range(2):
        registry.load_all()
    assert listener.loaded == [("good", "Does good")]
    assert listener.failed == [("bad", sprigs.ImportFailed), ("twice", sprigs.DuplicateName)]


def test_a_plugin_cannot_break_the_news_of_others(here, listener):
    here.add(
        "alarm",
        "import sprigs\n"
        "@sprigs.hookimpl\ndef sprigs_method():\n"
        "    return sprigs.Method(name='alarm', title='t', paper=None, exports={})\n"
        "@sprigs.hookimpl\ndef sprigs_loaded():\n    raise RuntimeError\n",
    )
    here.add("good")
    registry = sprigs.Registry()
    registry.pm.register(listener)
    assert registry.load_all() == {}
    assert [name for name, _ in listener.loaded] == ["alarm", "good"]


def test_a_group_and_hooks_of_its_own(here, listener):
    here.add(
        "can",
        "import pluggy\nmark = pluggy.HookimplMarker('greenhouse')\n"
        "@mark\ndef greenhouse_water(litres):\n    return litres / 2\n",
        group="greenhouse.tools",
    )
    here.add(
        "hose",
        "import pluggy\nmark = pluggy.HookimplMarker('greenhouse')\n"
        "@mark\ndef greenhouse_water(gallons):\n    return gallons\n",
        group="greenhouse.tools",
    )
    registry = sprigs.Registry("greenhouse.tools", project="greenhouse", hookspecs=[Specifications], require_card=False)
    registry.pm.register(listener)
    assert set(registry.load_all()) == {"hose"}
    assert isinstance(registry.failures()["hose"], sprigs.BadHook)
    assert "SPRIGS_STRICT=1 raises" in str(registry.failures()["hose"])
    assert isinstance(registry.pm, pluggy.PluginManager)
    assert registry.pm.project_name == "greenhouse"
    assert registry.pm.hook.greenhouse_water(litres=10) == [5]
    assert isinstance(registry.plugin("can"), types.ModuleType)
    assert listener.loaded == [("can", None)]
    assert listener.failed == [("hose", sprigs.BadHook)]
    with pytest.raises(sprigs.BadCard, match="carries no card"):
        registry.get("can")


def test_a_lazy_plugin_module_is_not_woken(here):
    here.add(
        "lazy",
        "import sprigs\n"
        "def __dir__():\n    return ['sprigs_method', 'heavy']\n"
        "def __getattr__(name):\n    raise RuntimeError(name)\n"
        "@sprigs.hookimpl\ndef sprigs_method():\n"
        "    return sprigs.Method(name='lazy', title='t', paper=None, exports={})\n",
    )
    assert sprigs.Registry().get("lazy").name == "lazy"


def test_a_plugin_of_the_hosts_own_keeps_its_name(here):
    here.add("good")
    registry = sprigs.Registry()
    own = Listener()
    registry.pm.register(own, name="good")
    with pytest.raises(sprigs.BadHook, match="already registered"):
        registry.get("good")
    assert registry.pm.get_plugin("good") is own


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("'a command'", "list of click.Command"),
        ("[print]", "list of click.Command"),
        ("[click.Command('a'), click.Command('a')]", "a name of its own"),
        ("[click.Command(None)]", "a name of its own"),
    ],
)
def test_commands_that_are_none(here, returned, message):
    here.add(
        "good",
        "import sprigs\n"
        "@sprigs.hookimpl\ndef sprigs_method():\n"
        "    return sprigs.Method(name='good', title='t', paper=None, exports={})\n"
        f"@sprigs.hookimpl\ndef sprigs_commands():\n    import click\n    return {returned}\n",
    )
    with pytest.raises(sprigs.BadHook, match=message):
        sprigs.Registry().commands("good")
