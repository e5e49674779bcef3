"""Finding plugins: from metadata alone, whatever the rest of the environment looks like."""

import json
import pickle
import shutil

import pytest

import sprigs


def test_importing_the_hub_is_light(shelf):
    done = shelf.run("""
        import json, sys
        before = set(sys.modules)
        import sprigs
        print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
    """)
    import sys

    tops = set(json.loads(done.stdout))
    assert tops - sys.stdlib_module_names == {"sprigs", "pluggy"}


def test_listing_imports_no_plugin(shelf):
    for number in range(20):
        shelf.add(f"m{number:02}", "raise RuntimeError('imported')")
    done = shelf.run("""
        import json, sys
        from sprigs.cli._app import app
        app(["list", "--json"], standalone_mode=False)
        print(json.dumps([name for name in sys.modules if name.startswith("plug_")]))
    """)
    assert done.returncode == 0, done.stderr
    listing, _, imported = done.stdout.strip().rpartition("\n")
    assert json.loads(imported) == []
    listed = json.loads(listing)
    assert [entry["name"] for entry in listed] == [f"m{number:02}" for number in range(20)]
    assert listed[7]["summary"] == "summary of m07"
    assert listed[7]["distribution"] == "dist-m07"
    assert listed[7]["version"] == "1.0"


def test_help_and_completion_import_no_plugin(shelf):
    shelf.add("one", "raise RuntimeError('imported')")
    done = shelf.cli("--help")
    assert done.returncode == 0
    assert "summary of one" in done.stdout


def test_entry_reads_the_metadata(here):
    here.add(
        "lens",
        metadata=[
            "Summary: sees",
            "Home-page: https://example.org/home",
            "Project-URL: Repository, https://example.org/code",
            "Requires-Dist: sprigs",
            "Requires-Dist: numpy; extra == 'fast'",
        ],
    )
    entry = sprigs.Registry().methods()["lens"]
    assert (entry.distribution, entry.version, entry.summary) == ("dist-lens", "1.0", "sees")
    assert entry.links == {
        "Repository": "https://example.org/code",
        "Homepage": "https://example.org/home",
    }
    assert entry.homepage == "https://example.org/home"
    assert entry.all("Requires-Dist") == ["sprigs", "numpy; extra == 'fast'"]
    assert entry.editable is False
    assert entry.error is None


@pytest.mark.parametrize(
    ("origin", "editable"),
    [
        ('{"url": "file:///x", "dir_info": {"editable": true}}', True),
        ('{"url": "file:///x", "dir_info": {}}', False),
        ("not json", False),
        ("[]", False),
    ],
)
def test_editable_is_read_from_the_record_of_origin(here, origin, editable):
    here.add("lens")
    here.root.joinpath("dist_lens-1.0.dist-info", "direct_url.json").write_text(origin)
    assert sprigs.Registry().methods()["lens"].editable is editable


def test_names_are_one_however_they_are_spelt(here):
    here.add("Split_Zip", package="plug_spelt", plugin=None, value="plug_spelt.plugin")
    registry = sprigs.Registry()
    assert list(registry.methods()) == ["split-zip"]
    assert registry.entry("SPLIT.zip").name == "split-zip"


def test_a_damaged_neighbour_is_passed_over(here):
    here.add("lens")
    here.root.joinpath("broken-1.0.dist-info").mkdir()
    here.root.joinpath("~umpy-1.0.dist-info").mkdir()
    assert "lens" in sprigs.Registry().methods()


def test_one_distribution_seen_twice_is_one(here, monkeypatch, tmp_path):
    here.add("lens")
    second = tmp_path / "second"
    shutil.copytree(here.root, second)
    # As an old egg-info beside an editable install has it.
    second.joinpath("dist_lens-1.0.dist-info").rename(second / "dist_lens.egg-info")
    second.joinpath("dist_lens.egg-info", "METADATA").rename(second / "dist_lens.egg-info" / "PKG-INFO")
    monkeypatch.syspath_prepend(str(second))
    registry = sprigs.Registry()
    assert registry.get("lens").title == "Does lens"


def test_unknown_method_suggests(here):
    here.add("splitzip")
    with pytest.raises(sprigs.UnknownMethod, match="did you mean 'splitzip'") as caught:
        sprigs.Registry().get("splitzp")
    assert caught.value.known == ("splitzip",)
    assert isinstance(caught.value, LookupError)


def test_unknown_method_where_nothing_is_installed(here):
    with pytest.raises(sprigs.UnknownMethod, match="no method is installed"):
        sprigs.Registry("a.group.nobody.uses").get("lens")


def test_errors_survive_a_trip_between_processes(here):
    here.add("lens", "raise RuntimeError('no')")
    registry = sprigs.Registry()
    with pytest.raises(sprigs.ImportFailed) as caught:
        registry.get("lens")
    back = pickle.loads(pickle.dumps(caught.value))
    assert type(back) is sprigs.ImportFailed
    assert str(back) == str(caught.value)
    unknown = sprigs.UnknownMethod("a", ["b"])
    assert str(pickle.loads(pickle.dumps(unknown))) == str(unknown)
