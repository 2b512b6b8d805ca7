"""Table of the settings: keys of the config file, and the options of commands that override them.

The parser's options, the keys of the config with their defaults, the config's JSON Schema and the sample of a config
come from it. A command may have its own help and default of an option (latmon/cli/arguments.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from latmon.cli import values
from latmon.cli.values import Kind
from latmon.model.stages import OPS, STAGES_MODES

T = TypeVar("T")
MEASURED = "what is measured"
TOOLS = "the tool that runs the probes; under sudo only the system's file may name it"
SHOWN = "the screen"


class Setting(NamedTuple, Generic[T]):
    """A key of the config file, and the option that overrides it, where there is one."""

    key: str
    kind: Kind[T]
    group: str = SHOWN
    """Heading in the sample of a config."""
    option: str = ""
    metavar: str | None = None
    help: str = ""
    """Help of the option."""
    default: str = ""
    """Value without option and config, in words. Tests compare it with docs/CONFIG.md."""
    example: str = ""
    """Value in the sample of a config; empty: the default."""
    comment: str = ""
    """Meaning of the key in the sample of a config, and its description in the JSON Schema."""
    is_of_view: bool = False
    """Whether saved views may have it."""
    variable: str = ""
    """Environment variable that overrides the config."""


def _our_themes() -> Sequence[str]:
    from latmon.support.theme import OUR_THEMES  # noqa: PLC0415  only the JSON Schema lists them

    return OUR_THEMES


def _our_ramps() -> Sequence[str]:
    from latmon.support.theme import AUTO, OUR_RAMPS  # noqa: PLC0415  as in _our_themes

    return (AUTO, *OUR_RAMPS)


THEME = Setting(
    "theme",
    values.Name(_our_themes),
    option="--theme",
    metavar="NAME",
    help="dark, light, high-contrast, mono, solarized, colour-blind, phosphor or one of your own",
    default="dark",
    comment="dark, light, high-contrast, mono, solarized, colour-blind, phosphor",
)
RAMP = Setting(
    "ramp",
    values.Name(_our_ramps),
    option="--ramp",
    metavar="NAME",
    help="colours of counts: auto, cividis, viridis, inferno, mono or one of your own",
    default="auto",
    comment="colours of heat maps: auto, cividis, viridis, inferno, mono",
)
INTERVAL = Setting(
    "interval",
    values.Duration("an interval", lambda: (values.MIN_INTERVAL_US, values.MAX_INTERVAL_US)),
    MEASURED,
    option="--interval",
    help="time between two frames, 100ms to 60s (default 1s)",
    default="1s",
    comment="length of a frame, 100ms to 60s",
)
BACKEND = Setting(
    "backend",
    values.Name(lambda: ("auto", "bpftrace", "dtrace", "procfs")),
    MEASURED,
    option="--backend",
    metavar="NAME",
    help="measure with this backend: auto (the default), bpftrace, dtrace, procfs",
    default="auto",
    comment="auto, bpftrace, dtrace, procfs",
)
BPFTRACE = Setting(
    "bpftrace",
    values.ToolPath(),
    TOOLS,
    default="found in PATH",
    example="/usr/bin/bpftrace",
    variable="LATMON_BPFTRACE",
)
DTRACE = Setting(
    "dtrace",
    values.ToolPath(),
    TOOLS,
    default="found in PATH",
    example="/usr/sbin/dtrace",
    variable="LATMON_DTRACE",
)
THRESHOLD = Setting(
    "threshold",
    values.Duration(),
    MEASURED,
    option="--threshold",
    help="list I/Os that take at least this long, such as 100ms",
    default="per device",
    example="20ms",
    comment="I/Os above it are outliers; without it 8 times the device's mean, at least 1ms",
)
STAGES = Setting(
    "stages",
    values.OneOf(lambda: STAGES_MODES),
    MEASURED,
    option="--stages",
    metavar="WHEN",
    help="trace stages on demand (auto), never (basic), or always and for all devices (all)",
    default="auto",
    comment="when stages are traced: auto, basic (never), all (always)",
)
HISTORY = Setting(
    "history",
    values.Duration("a history", lambda: (values.MIN_HISTORY_US, values.MAX_HISTORY_US)),
    MEASURED,
    default="1h",
    comment="how far back the live screen can go",
)
BUDGET_PERCENT = Setting(
    "budget_percent",
    values.CpuPercent(),
    MEASURED,
    default="10",
    comment="what tracing may cost, in percent of one CPU; 0: no limit",
)
MAX_OVERHEAD = Setting(
    "max_overhead",
    values.CpuPercent(),
    MEASURED,
    option="--max-overhead",
    metavar="PERCENT",
    help="limit of all probes and their tool in percent of one CPU, such as 5: above it the tracer is stopped, or the "
    "capture where no tracer runs; 0: no limit",
    default="no limit",
    example="20",
    comment="above it the tracer ends, then latmon: all probes, in percent of one CPU; 0: no limit",
)
SWEEP = Setting(
    "sweep",
    values.Flag(),
    default="false",
    comment="true: for a slow link to a terminal that can't move cells",
)
BELL = Setting(
    "bell",
    values.Flag(),
    option="--bell",
    help="ring the terminal's bell for each new critical finding",
    default="false",
    comment="true: the bell rings for each new critical finding",
)
MOUSE = Setting(
    "mouse",
    values.Flag(),
    option="--no-mouse",
    help="leave the mouse to the terminal",
    default="true",
    comment="false leaves the mouse to the terminal",
)
VIEW = Setting(
    "view",
    values.Name(),
    option="--view",
    metavar="NAME",
    help="a saved view of the config (the key V shows the next one)",
    example="disks",
    comment="the saved view at the start",
)
SORT = Setting(
    "sort",
    values.OneOf(values.sort_names),
    option="--sort",
    metavar="NAME",
    help="order of the devices: unlike (the default), p99, max, IOPS, MB/s, out, name",
    default="unlike",
    comment="unlike, p99, max, IOPS, MB/s, out, name",
    is_of_view=True,
)
FILTER = Setting(
    "filter",
    values.Filter(),
    option="--filter",
    metavar="WORDS",
    help="only devices with these words in name, driver or model; !sda or -sda: without it",
    example="sd? -sdb",
    comment="only devices with these words in name, driver or model",
    is_of_view=True,
)
WINDOW = Setting(
    "window",
    values.Duration("a window", values.window_limits_us),
    option="--window",
    metavar="TIME",
    help="time on the screen, 15s to 10min; default 1min",
    default="1min",
    comment="time on the screen, 15s to 10min",
    is_of_view=True,
)
COLUMNS = Setting(
    "columns",
    values.Columns(),
    option="--columns",
    metavar="A,B",
    help="columns of the device table, such as IOPS,p99,max",
    default="all that fit",
    example="[IOPS, p99, max, depth]",
    is_of_view=True,
)
SCREEN = Setting(
    "screen",
    values.Screen(),
    option="--screen",
    metavar="NAME",
    help="the first screen: overview, maps, zoom, stages, files, ... or 1 to 7",
    default="overview",
    comment="the first screen, or 1 to 7",
    is_of_view=True,
)
OP = Setting(
    "op",
    values.OneOf(lambda: ("all", *OPS)),
    option="--op",
    metavar="NAME",
    help="only read, write, flush, discard or other",
    default="all",
    comment="all, read, write, flush, discard, other",
    is_of_view=True,
)
SETTINGS: Mapping[str, Setting[Any]] = {
    declared.key: declared for declared in [*globals().values()] if isinstance(declared, Setting)
}
"""All of the above by key."""
OF_VIEWS = tuple(key for key, declared in SETTINGS.items() if declared.is_of_view)
"""Keys of a saved view."""
