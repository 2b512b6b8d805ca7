"""Themes: ours are whole, and a wrong one is refused with file and key."""

import os
from itertools import permutations

import pytest
import yaml

from latmon.model.frame import STAGES
from latmon.support.errors import EXIT_USAGE, ThemeError
from latmon.support.paths import data_dir
from latmon.support.theme import MAX_BYTES, Theme, load_theme, read_theme, theme_dirs, theme_names
from latmon.tui.style import face
from latmon.views.bars import role

GOOD = (data_dir("themes") / "dark.yaml").read_text()


def write(directory, text, name="x.yaml"):
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_ours_are_all_there_and_valid():
    assert theme_names((data_dir("themes"),)) == ("dark", "light", "high-contrast", "mono")
    for name in theme_names((data_dir("themes"),)):
        theme = load_theme(name, (data_dir("themes"),))
        assert theme.name == name


def luminance(colour):
    def linear(part):
        return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(colour[i : i + 2], 16) / 255) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def xterm(index):
    if index >= 232:
        return "#" + f"{8 + 10 * (index - 232):02x}" * 3
    levels = (0, 95, 135, 175, 215, 255)
    index -= 16
    return "#" + "".join(f"{levels[index // 36**0 // d % 6]:02x}" for d in (36, 6, 1))


@pytest.mark.parametrize("name", ["dark", "light", "high-contrast"])
def test_steps_are_even_for_every_eye(name):
    """Luminance goes one way only, away from the background, in truecolor and in 256; each step is distinct."""
    theme = load_theme(name, (data_dir("themes"),))
    for steps in (theme.steps, tuple(xterm(i) for i in theme.steps_256)):
        light = [luminance(s) for s in steps]
        assert light == sorted(light, reverse=not theme.dark)
        assert len(set(steps)) == len(steps)


@pytest.mark.parametrize("name", ["dark", "light", "high-contrast"])
def test_the_tail_stands_out_from_the_background(name):
    theme = load_theme(name, (data_dir("themes"),))
    high, low = sorted((luminance(theme.tail), luminance(theme.colours["background"])), reverse=True)
    assert (high + 0.05) / (low + 0.05) > 4.5


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"nmae": 1}, "nmae"),
        ({"name": "../etc"}, "name"),
        ({"dark": "yes"}, "dark"),
        ({"colours": {"text": "#ffffff"}}, "colours: background"),
        ({"colours": []}, "colours"),
        ({"colours": {"background": "red"}}, "colours"),
        ({"colours_16": {"accent": "#fff"}}, "colours_16: accent"),
        ({"heatmap": {"floor": "#ffffff", "steps": ["#ffffff"], "steps_256": [20]}}, "heatmap: steps"),
        ({"heatmap": {"floor": "#ffffff", "steps": ["#ffffff"] * 5, "steps_256": [20] * 4}}, "heatmap: steps_256"),
        (
            {"heatmap": {"floor": "#ffffff", "steps": ["#ffffff"] * 4, "steps_256": [3, True, 1, 2]}},
            "heatmap: steps_256",
        ),
        ({"heatmap": {"floor": "#xyz", "steps": ["#ffffff"] * 4, "steps_256": [20] * 4}}, "heatmap: floor"),
        ({"heatmap": {"colours": 1}}, "heatmap: unknown key 'colours'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, change, named):
    path = write(tmp_path, yaml.safe_dump(yaml.safe_load(GOOD) | change))
    with pytest.raises(ThemeError) as refused:
        read_theme(path)
    assert str(path) in str(refused.value)
    assert named in str(refused.value)
    assert refused.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [1]\nb: *a",
        "!!python/object/apply:os.system ['true']",
        "x: [",
        "[" * 5000,
        b"\xff\xfe\x00",
        "- 1",
        "",
        "x" * (MAX_BYTES + 1),
        "1: 2",
    ],
)
def test_hostile_files_are_a_sentence(tmp_path, text):
    with pytest.raises(ThemeError):
        read_theme(write(tmp_path, text))


def test_an_unknown_name_lists_the_known(tmp_path):
    write(tmp_path, GOOD, "mine.yaml")
    with pytest.raises(ThemeError, match="there are mine"):
        load_theme("../mine", (tmp_path,))


def test_what_is_no_readable_file_is_passed_over(tmp_path):
    """A directory that can't be examined (this name is too long, which holds for root, too), and a FIFO."""
    closed, fifos = tmp_path / ("x" * 300), tmp_path / "fifos"
    fifos.mkdir()
    os.mkfifo(fifos / "evil.yaml")
    dirs = (closed, fifos, theme_dirs()[-1])
    assert load_theme("dark", dirs).name == "dark"
    with pytest.raises(ThemeError, match=r"no theme 'evil'; there are dark, light, high-contrast, mono$"):
        load_theme("evil", dirs)


def test_a_user_theme_replaces_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    directory = tmp_path / "latmon" / "themes"
    directory.mkdir(parents=True)
    write(directory, GOOD.replace("#6cb6ff", "#123456"), "dark.yaml")
    assert theme_dirs()[0] == directory
    assert load_theme("dark").colours["accent"] == "#123456"


def test_a_missing_file_and_a_directory_are_sentences(tmp_path):
    with pytest.raises(ThemeError, match="can't be read"):
        read_theme(tmp_path)


@pytest.mark.parametrize("depth", ["none", "16", "256", "truecolor"])
@pytest.mark.parametrize("name", ["dark", "light", "high-contrast", "mono"])
def test_a_face_has_a_style_for_every_role(name, depth):
    made = face(load_theme(name, (data_dir("themes"),)), depth)
    heat = {made.ink.cell(i)[1] for i in range(1, made.ink.levels + 1)} | {made.ink.tail(1)[1]}
    roles = {"text", "dim", "strong", "accent", "bad", "gap", "limit", "area", "frame"} | heat
    roles |= {f"{upper}/{lower}" for upper, lower in permutations(heat, 2)} if made.ink.halves else set()
    assert roles <= set(made.styles)
    stages = [made.styles[role(stage, made.ink)].color for stage in STAGES[:-1]]
    if depth != "none" and name != "mono":
        assert len(set(stages)) == len(stages)
    if depth == "none":
        assert all(s.color is None and s.bgcolor is None for s in made.styles.values())


def test_without_colours_the_levels_are_reported_apart_by_glyph():
    ink = face(Theme("mono"), "none").ink
    assert len(set(ink.glyphs)) == len(ink.glyphs)
