"""Themes and ramps: ours are whole and can be read, and a wrong one is refused with file, line and key."""

import os
from itertools import pairwise, permutations, product

import pytest
import yaml

from latmon.model.frame import STAGES
from latmon.model.stages import COLUMNS, FACTS
from latmon.support.errors import EXIT_USAGE, ThemeError
from latmon.support.paths import data_dir
from latmon.support.theme import (
    AUTO,
    BACKGROUNDS,
    GLYPHS,
    MAX_BYTES,
    OUR_RAMPS,
    OUR_THEMES,
    XTERM,
    Theme,
    ansi_colours,
    load_ramp,
    load_theme,
    ramp_names,
    read_ramp,
    read_theme,
    role_colours,
    theme_dirs,
    theme_names,
)
from latmon.tui.canvas import DEPTHS, face
from latmon.views.bars import letter_role, role
from latmon.views.lines import ODD

OURS = data_dir("themes")
GOOD = (OURS / "dark.yaml").read_text()
GOOD_RAMP = (OURS / "ramps" / "cividis.yaml").read_text()
THEMES = sorted(path.stem for path in OURS.glob("*.yaml"))
COLOURED = [name for name in THEMES if read_theme(OURS / f"{name}.yaml").colours]
RAMPS = sorted(path.stem for path in OURS.glob("ramps/*.yaml"))
VGA = (
    *("#000000", "#aa0000", "#00aa00", "#aa5500", "#0000aa", "#aa00aa", "#00aaaa", "#aaaaaa"),
    *("#555555", "#ff5555", "#55ff55", "#ffff55", "#5555ff", "#ff55ff", "#55ffff", "#ffffff"),
)
"""ANSI's colours on the Linux console."""
COVERED = dict(zip(GLYPHS, (0.05, 0.1, 0.25, 0.5, 0.75, 1.0), strict=True))
"""Share of a cell that is ink."""
STAGE_COLOURS = [one.colour for one in FACTS]
LETTERS = tuple(f"letter{number}" for number in range(1, len(FACTS) + 1))
TEXTS = ("text", "dim", "strong", "accent", "bad", "limit", "gap", "tail", *LETTERS)
READABLE, VISIBLE = 4.5, 3
"""Contrast that WCAG 2 demands of texts, and of graphics."""


def write(directory, text, name="x.yaml"):
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_ours_are_all_there_and_valid():
    assert theme_names((OURS,)) == OUR_THEMES
    assert ramp_names((OURS,)) == (AUTO, *OUR_RAMPS)
    assert set(OUR_THEMES) == set(THEMES)
    assert set(OUR_RAMPS) == set(RAMPS)
    for name in THEMES:
        assert read_theme(OURS / f"{name}.yaml").name == name
    for name in RAMPS:
        assert read_ramp(OURS / "ramps" / f"{name}.yaml", dark=True).name == name


def linear(colour):
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(colour):
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lightness(y):
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def lab(colour):
    red, green, blue = linear(colour)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def apart(one, other):
    """Return the distance of two colours in CIELAB; 2.3 can just be seen side by side."""
    return sum((a - b) ** 2 for a, b in zip(lab(one), lab(other), strict=True)) ** 0.5


def xterm(index):
    if index >= 232:
        return "#" + f"{8 + 10 * (index - 232):02x}" * 3
    levels = (0, 95, 135, 175, 215, 255)
    index -= 16
    return "#" + "".join(f"{levels[index // d % 6]:02x}" for d in (36, 6, 1))


def ramps():
    """Yield every ramp for a dark and for a light background, and those that a theme has of its own."""
    for name in RAMPS:
        for dark in (True, False):
            yield pytest.param(load_ramp(name, dark=dark), dark, id=f"{name}-{'dark' if dark else 'light'}")
    for name in THEMES:
        theme = read_theme(OURS / f"{name}.yaml")
        if not theme.ramp.name:
            yield pytest.param(theme.ramp, theme.dark, id=f"{name}'s own")


@pytest.mark.parametrize(("ramp", "dark"), ramps())
def test_steps_go_away_from_the_background_and_neighbours_differ(ramp, dark):
    for steps in (ramp.steps, tuple(xterm(i) for i in ramp.steps_256)):
        assert len(steps) == 9 if ramp.name else len(steps) >= 7
        light = [lightness(luminance(step)) for step in steps]
        assert light == sorted(light, reverse=not dark)
        assert all(abs(after - before) > 2 for before, after in pairwise(light))
        assert all(apart(before, after) > 6 for before, after in pairwise(steps))


@pytest.mark.parametrize(("ramp", "dark"), ramps())
def test_steps_of_few_colours_are_even_with_their_glyphs(ramp, dark):
    """A glyph mixes its colour with the background, black or white. Colour and glyph never lose against each other."""
    for shown, few in product([XTERM, VGA], ["steps_16", "steps_8"]):
        cells = getattr(ramp, few)
        background = 0.0 if dark else 1.0
        mixed = [COVERED[c.glyph] * luminance(shown[c.ansi]) + (1 - COVERED[c.glyph]) * background for c in cells]
        light = [lightness(y) for y in mixed]
        assert len(cells) == 6
        assert light == sorted(light, reverse=not dark)
        assert all(abs(after - before) > 2 for before, after in pairwise(light))
        assert few == "steps_16" or all(c.ansi < 8 for c in cells)


@pytest.mark.parametrize("name", COLOURED)
def test_texts_can_be_read(name):
    """In truecolor and in 256 colours, also the rgb of latmon's own choice."""
    colours = role_colours(load_theme(name, (OURS,)), STAGE_COLOURS)
    for shown in ({r: c.rgb for r, c in colours.items()}, {r: xterm(c.xterm) for r, c in colours.items()}):
        assert [r for r in TEXTS if contrast(shown[r], shown["background"]) < READABLE] == []
        assert contrast(shown["area"], shown["background"]) >= VISIBLE
        in_rows = ("text", "dim", "strong", "accent", "bad")
        assert [r for r in in_rows if contrast(shown[r], shown["sel"]) < READABLE] == []


@pytest.mark.parametrize("shown", [XTERM, VGA], ids=["xterm", "console"])
@pytest.mark.parametrize("name", [name for name in THEMES if name != "mono"])
def test_texts_of_16_colours_can_be_read(name, shown):
    theme = load_theme(name, (OURS,))
    background = "#000000" if theme.dark else "#ffffff"
    found = {r: shown[number] for r, number in ansi_colours(theme, STAGE_COLOURS).items()}
    assert [r for r in TEXTS if r in found and contrast(found[r], background) < READABLE] == []


@pytest.mark.parametrize("name", COLOURED)
def test_the_tail_is_no_step_of_any_ramp(name):
    for ramp in [AUTO, *RAMPS]:
        colours = role_colours(load_theme(name, (OURS,), ramp=ramp), STAGE_COLOURS)
        steps = [colour for role, colour in colours.items() if role.startswith("heat")]
        assert all(apart(colours["tail"].rgb, step.rgb) > 25 for step in steps)
        assert all(apart(xterm(colours["tail"].xterm), xterm(step.xterm)) > 25 for step in steps)
        assert contrast(colours["tail"].rgb, colours["background"].rgb) > READABLE


@pytest.mark.parametrize("depth", ["8", "16"])
@pytest.mark.parametrize("name", COLOURED)
def test_the_alarm_is_red_with_few_colours(name, depth):
    """Not the white of what is strong: of 16 colours it is bright red on dark."""
    style = face(load_theme(name), depth).styles["tail"]
    assert style.color.number in (1, 9)
    assert style != face(load_theme(name), depth).styles["strong"]


def test_the_alarm_is_seen_without_colours():
    styles = face(load_theme("mono"), "none").styles
    assert styles["tail"].underline
    assert styles["tail"] != styles["strong"]


@pytest.mark.parametrize("depth", ["256", "truecolor"])
@pytest.mark.parametrize("name", COLOURED)
def test_stages_differ_on_every_background(name, depth):
    shown = [stage_colour.rgb if depth == "truecolor" else xterm(stage_colour.xterm) for stage_colour in STAGE_COLOURS]
    assert all(apart(one, other) >= 19 for one, other in permutations(shown, 2))
    back = load_theme(name, (OURS,)).colours["background"]
    assert all(contrast(one, back) >= 1.2 for one in shown)  # a bar also has its letter, in the colour of texts


def test_a_letter_has_its_stages_colour_where_that_can_be_read():
    dark, light = (role_colours(load_theme(name, (OURS,)), STAGE_COLOURS) for name in ("dark", "light"))
    stages = [role(stage, face(load_theme("dark"), "truecolor").ink) for stage in STAGES[:-1]]
    letters = [letter_role(stage, face(load_theme("dark"), "truecolor").ink) for stage in STAGES[:-1]]
    assert [dark[letter].rgb for letter in letters] == [dark[stage].rgb for stage in stages]
    assert dark[LETTERS[-1]] == dark["text"], "that of unaccounted time is too dark"
    assert sum(light[letter] == light["text"] for letter in letters) >= len(letters) - 1


def test_a_theme_gets_its_ramp_from_itself_from_the_default_or_from_the_user(tmp_path):
    assert load_theme("dark", (OURS,)).ramp == load_ramp("cividis", dark=True)
    assert load_theme("light", (OURS,)).ramp == load_ramp("cividis", dark=False)
    own = load_theme("phosphor", (OURS,)).ramp
    assert own.steps != load_ramp("cividis", dark=True).steps
    assert load_theme("phosphor", (OURS,), ramp="viridis").ramp == load_ramp("viridis", dark=True)
    (tmp_path / "ramps").mkdir()
    write(tmp_path / "ramps", GOOD_RAMP.replace("#243c6e", "#123456"), "mine.yaml")
    assert load_theme("dark", (tmp_path, OURS), ramp="mine").ramp.steps[0] == "#123456"
    assert ramp_names((tmp_path,)) == (AUTO, *OUR_RAMPS, "mine")
    with pytest.raises(ThemeError, match=r"no ramp 'pink'; there are auto, cividis, viridis, inferno, mono$"):
        load_theme("dark", (OURS,), ramp="pink")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("yellow ▒", "yellow x", ":11: light: steps_16: item 1: a colour and one of · : ░ ▒ ▓ █"),
        ("black █]\n  steps_8", "pink █]\n  steps_8", ":11: light: steps_16: item 6: one of black, red"),
        ("[blue ▒, blue █", "[blue ▒, bright_blue █", ":7: dark: steps_8: only black, red"),
        ("[236, 239, 60,", "[236, 239, 60, 61,", ":5: dark: steps_256: as many as steps"),
        ('"#fee636"', "yellow", ":4: dark: steps: item 9: a colour like"),
        ("light:", "bright:", ":8: unknown key 'bright'; known are name, dark, light"),
        ("name: cividis", "name: 7", ":2: name: letters"),
    ],
)
def test_a_mistake_in_a_ramp_is_named_with_its_line(tmp_path, old, new, named):
    assert old in GOOD_RAMP
    path = write(tmp_path, GOOD_RAMP.replace(old, new))
    with pytest.raises(ThemeError) as refused:
        read_ramp(path, dark=True)
    assert f"{path}{named}" in str(refused.value)


def test_a_mistake_in_a_theme_is_named_with_its_line(tmp_path):
    path = write(tmp_path, GOOD.replace('dim: "#8b95a1"', "dim: grey"))
    with pytest.raises(ThemeError) as refused:
        read_theme(path)
    assert str(refused.value) == f'{path}:7: colours: dim: a colour like "#5fd7ff"'
    with pytest.raises(ThemeError, match=r"x.yaml:4: not YAML: "):
        read_theme(write(tmp_path, "name: dark\ncolours:\n- [\n"))


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
    """A directory that can't be examined (this name is too long, also for root), a FIFO and a link to itself."""
    closed, fifos = tmp_path / ("x" * 300), tmp_path / "fifos"
    fifos.mkdir()
    os.mkfifo(fifos / "evil.yaml")
    (fifos / "loop.yaml").symlink_to("loop.yaml")
    write(fifos, GOOD, "mine.yaml")
    dirs = (closed, fifos, theme_dirs()[-1])
    assert load_theme("dark", dirs).name == "dark"
    with pytest.raises(
        ThemeError,
        match=f"no theme 'evil'; there are {', '.join(OUR_THEMES)}, mine$",
    ):
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


@pytest.mark.parametrize("name", THEMES)
def test_a_face_has_a_style_for_every_role(name):
    for depth, ramp in product(DEPTHS, [AUTO, *RAMPS]):
        made = face(load_theme(name, (OURS,), ramp=ramp), depth)
        heat = {made.ink.cell(i)[1] for i in range(1, made.ink.levels + 1)} | {made.ink.tail()[1]}
        roles = {"text", "dim", "strong", "accent", "bad", "gap", "limit", "area", "frame"} | heat
        roles |= {letter_role(stage, made.ink) for stage in COLUMNS}
        roles |= {ODD, *(f"{role}/{back}" for role in roles for back in BACKGROUNDS)}
        roles |= {f"{upper}/{lower}" for upper, lower in permutations(heat, 2)} if made.ink.halves else set()
        assert roles <= set(made.styles)
        stages = [made.styles[role(stage, made.ink)] for stage in STAGES[:-1]]
        if depth != "none" and name != "mono":
            assert len(set(stages)) == len(stages)
            assert len(heat) == made.ink.levels + 1
            assert made.ink.levels == 6 if depth in ("8", "16") else made.ink.levels >= 7
        if depth == "none":
            assert all(s.color is None and s.bgcolor is None for s in made.styles.values())
        if depth in ("8", "16"):
            numbers = [s.color.number for s in made.styles.values() if s.color is not None]
            assert all(number < int(depth) for number in numbers)
            assert all(
                s.bgcolor is None for role, s in made.styles.items() if role.partition("/")[2] not in BACKGROUNDS
            )


def test_without_colours_the_levels_are_reported_apart_by_glyph():
    ink = face(Theme("mono"), "none").ink
    assert len(set(ink.glyphs)) == len(ink.glyphs)
