"""The command line: ``pipesched`` and ``python -m pipesched``.

Exit status: 0 done, 1 an illegal schedule, 2 bad input (one line on standard error).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from pipesched._names import no_such
from pipesched.check import ScheduleError
from pipesched.costs import Costs
from pipesched.generate import SCHEDULES, generate
from pipesched.schedule import Schedule

if TYPE_CHECKING:
    from pipesched.plan import Plan
    from pipesched.timeline import Timeline

OK, ILLEGAL, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

_PICTURES = {".png": "png", ".svg": "svg", ".html": "html", ".htm": "html", ".txt": "text"}
_FORMATS = ("text", "png", "svg", "html", "trace", "csv", "rows", "json")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status and never raises for bad input."""
    try:
        arguments = _parser().parse_args(argv)
        status = arguments.run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except ScheduleError as error:
        return _fail(ILLEGAL, error)
    except BrokenPipeError:
        # The reader has gone (`| head`): nothing to say, and nothing to flush into.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except (ValueError, TypeError, OverflowError, OSError, ImportError) as error:
        return _fail(BAD_INPUT, error)
    except MemoryError:
        return _fail(BAD_INPUT, "out of memory: the schedule is too large for this machine")


def _fail(status: int, error: object) -> int:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    # One line, whatever the message holds.
    print(f"pipesched: {' '.join(text.split())}", file=sys.stderr)
    return status


# --- the commands -----------------------------------------------------------------------------


def _show(arguments: argparse.Namespace) -> int:
    _emit(_source(arguments), _costs(arguments), _format(arguments), arguments.output)
    return OK


def _simulate(arguments: argparse.Namespace) -> int:
    schedule = _source(arguments)
    kind = _format(arguments)
    if kind == "json":
        found = _measures(schedule.simulate(_costs(arguments)))
        _write(json.dumps(found, indent=1) + "\n", arguments.output)
    else:
        _emit(schedule, _costs(arguments), kind, arguments.output)
    return OK


def _check(arguments: argparse.Namespace) -> int:
    kind = _report(arguments)
    schedule = _source(arguments)
    try:
        schedule.check(blocking=arguments.blocking)
    except ScheduleError as error:
        if kind != "json":
            raise
        found = {"legal": False, "message": str(error), **asdict(error.fault)}
        _write(json.dumps(found, indent=1) + "\n", arguments.output)
        return ILLEGAL
    if kind == "json":
        text = json.dumps({"legal": True, **_counts(schedule)}, indent=1)
    else:
        from pipesched.draw.scene import extent

        text = f"legal: {extent(schedule)}, {len(schedule)} op{'s' * (len(schedule) != 1)}"
    _write(text + "\n", arguments.output)
    return OK


def _convert(arguments: argparse.Namespace) -> int:
    schedule = _source(arguments)
    kind = _format(arguments)
    if kind == "text" and not arguments.format and not _extension(arguments.output):
        kind = "csv"
    if arguments.comms:
        schedule = schedule.lower()
    _emit(schedule, _costs(arguments), kind, arguments.output)
    return OK


def _compare(arguments: argparse.Namespace) -> int:
    from pipesched.compare import compare

    names = None if arguments.schedules is None else arguments.schedules.split(",")
    kind = _report(arguments, "csv")
    found = compare(
        arguments.p, arguments.m, _costs(arguments), memory=arguments.memory, schedules=names
    )
    if kind == "json":
        rows = [asdict(row) for row in found]
        text = json.dumps({"rows": rows, "left_out": found.left_out}, indent=1)
    elif kind == "csv":
        columns = found.to_dict()
        lines = [columns, *zip(*columns.values(), strict=True)]
        text = "\n".join(",".join(map(str, line)) for line in lines)
    else:
        text = str(found)
    _write(text + "\n", arguments.output)
    return OK


def _partition(arguments: argparse.Namespace) -> int:
    from pipesched.formats.pipedream_profile import read_profile
    from pipesched.partition import baselines, partition

    kind = _report(arguments)
    profile = read_profile(arguments.profile)
    workers = _list("--workers", arguments.workers, int)
    bandwidth = _list("--bandwidth", arguments.bandwidth, float)
    plan = partition(
        profile,
        workers,
        bandwidth,
        memory=arguments.memory,
        stages=arguments.stages,
        compat=arguments.compat,
    )
    others = {} if arguments.compat else baselines(profile, workers, bandwidth)
    if kind == "json":
        found = {**_plan(plan), "baselines": [_plan(other) for other in others.values()]}
        text = json.dumps(found, indent=1)
    else:
        columns = _columns()
        table = plan.draw(width=0).splitlines()[2:]
        drawn = plan.draw(width=max(0, columns - max(map(len, table)))).splitlines()
        lines = [_wrapped(line, columns) for line in (*drawn[:2], *plan.explain().splitlines())]
        lines[2:2] = drawn[2:]
        for name, other in others.items():
            lines.append(
                f"{name + ':':18} {other.time * 1e3:9.2f} ms, "
                f"{other.time / (plan.time or 1.0):.2f} times as long ({other.config})"
            )
        text = "\n".join(lines)
    _write(text + "\n", arguments.output)
    return OK


def _columns() -> int:
    from shutil import get_terminal_size  # as Terminal.of asks: slow to load, and seldom needed

    return get_terminal_size((100, 24)).columns


def _wrapped(line: str, columns: int) -> str:
    from textwrap import wrap

    return "\n".join(wrap(line, max(columns, 20), subsequent_indent="  "))


def _versions(arguments: argparse.Namespace) -> int:
    from pipesched.versions import weight_versions

    kind = _report(arguments)
    found = weight_versions(
        _source(arguments), arguments.versions_rule, accumulate=arguments.accumulate
    )
    if kind == "json":
        text = json.dumps(
            {
                "rule": found.rule,
                "forward": found.forward.tolist(),
                "backward": found.backward.tolist(),
                "held": found.held.tolist(),
                "staleness": found.staleness.tolist(),
                "passes_agree": found.passes_agree,
                "stages_agree": found.stages_agree,
            },
            indent=1,
        )
    else:
        text = found.draw(_columns())
    _write(text + "\n", arguments.output)
    return OK


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "config": plan.config,
        "seconds": plan.time,
        "bound": plan.bound,
        "exact": plan.exact,
        "in_flight": plan.in_flight,
        "stages": [asdict(stage) for stage in plan.stages],
    }


def _list(option: str, text: str, kind: type) -> Any:
    """`4` or `4,4`: one number, or one for each level of the links."""
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} is a number, or several with commas, got {text!r}") from None
    return numbers[0] if len(numbers) == 1 else numbers


def _schedules(arguments: argparse.Namespace) -> int:
    kind = _report(arguments)
    families = list(SCHEDULES.values())
    if arguments.name is not None:
        if arguments.name not in SCHEDULES:
            raise ValueError(no_such("schedule", arguments.name, SCHEDULES))
        families = [SCHEDULES[arguments.name]]
    if kind == "json":
        _write(json.dumps([_family(f) for f in families], indent=1) + "\n", arguments.output)
        return OK
    lines = []
    if arguments.name is None:
        width = max(len(f.name) for f in families)
        lines = [f"{f.name.ljust(width)}  {f.title}" for f in families]
        lines.append("(pipesched schedules NAME tells its rule, options and source)")
    for family in families if arguments.name is not None else []:
        lines += [f"{family.name}: {family.title}", family.summary]
        lines.append(f"needs: {family.constraints or 'nothing beyond p >= 1 and m >= 1'}")
        lines.append(f"placement: {family.placement}")
        lines += [
            f"option {o.name} (default {o.default}): {o.text}" for o in family.options.values()
        ]
        lines.append(f"source: {family.source}")
    _write("\n".join(lines) + "\n", arguments.output)
    return OK


def _family(family: Any) -> dict[str, Any]:
    options = {o.name: {"default": o.default, "text": o.text} for o in family.options.values()}
    names = ("name", "title", "summary", "constraints", "placement", "source")
    return {**{name: getattr(family, name) for name in names}, "options": options}


# --- in ---------------------------------------------------------------------------------------


def _source(arguments: argparse.Namespace) -> Schedule:
    """The schedule that the command is about: a family's name, a file, or standard input."""
    source = arguments.source
    if source in SCHEDULES and not os.path.exists(source):
        if arguments.p is None or arguments.m is None:
            raise ValueError(f"{source} needs -p RANKS and -m MICROBATCHES")
        return generate(source, arguments.p, arguments.m, **_options(arguments))
    if arguments.p is not None or arguments.m is not None or _options(arguments):
        if not os.path.exists(source) and source != "-":
            raise ValueError(no_such("schedule", source, SCHEDULES))
        raise ValueError("-p, -m and options go with a schedule's name, not with a file")
    if source == "-":
        if getattr(arguments, "costs", None) == "-":
            raise ValueError("the schedule and --costs cannot both come from standard input")
        return _parse(sys.stdin.buffer.read(), "standard input", "standard input")
    if not os.path.exists(source):
        raise ValueError(
            f"{source!r} is neither a file nor a schedule (there are: {', '.join(SCHEDULES)})"
        )
    with open(source, "rb") as stream:
        return _parse(stream.read(), os.path.splitext(os.path.basename(source))[0], source)


def _parse(content: bytes, name: str, where: str) -> Schedule:
    """A schedule of that name; what is wrong with the content is said of `where`."""
    try:
        return _schedule_of(content, name)
    except ScheduleError:
        raise
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


def _schedule_of(content: bytes, name: str) -> Schedule:
    """Rows as JSON (``[["0F0", ...], ...]`` or ``{"name": ..., "rows": ...}``), torch's CSV, or
    a line a rank with blanks between the words.
    """
    content = content.removeprefix(b"\xef\xbb\xbf")
    if content.lstrip()[:1] in (b"[", b"{"):
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from None
        if isinstance(found, dict):
            name, found = str(found.get("name", name)), found.get("rows")
        if not isinstance(found, list):
            raise ValueError("no list of rows in the JSON")
        return Schedule.from_rows(found, name=name)
    if b"," not in content and b" " in content:
        return Schedule.from_rows(content.decode("ascii", "replace").splitlines(), name=name)
    from pipesched.formats.torch_csv import parse_torch_csv

    return parse_torch_csv(content, name)


def _option_names() -> list[str]:
    """Every option that some family has."""
    return sorted({name for family in SCHEDULES.values() for name in family.options})


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of the family that were given: words, or whole numbers."""
    family = SCHEDULES.get(arguments.source)
    options: dict[str, Any] = {}
    for name in _option_names():
        value = getattr(arguments, f"option_{name}")
        if value is None:
            continue
        known = family.options.get(name) if family else None
        if known is not None and not known.words:
            try:
                value = int(value)
            except ValueError:
                raise ValueError(f"--{name} is a whole number, got {value!r}") from None
        options[name] = value
    return options


def _costs(arguments: argparse.Namespace) -> Costs | None:
    if getattr(arguments, "costs", None) is None:
        return None
    from pipesched.formats.costs_json import read_costs

    if arguments.costs == "-":
        return read_costs(sys.stdin)
    return read_costs(arguments.costs)


# --- out --------------------------------------------------------------------------------------


def _extension(output: str | None) -> str:
    return "" if output in (None, "-") else os.path.splitext(str(output))[1].lower()


def _report(arguments: argparse.Namespace, *more: str) -> str:
    """The format of a command that writes words and numbers: text, json, or one of `more`."""
    extension = _extension(arguments.output)[1:]
    if arguments.json or extension == "json":
        return "json"
    if extension in more:
        return extension
    if extension in ("csv", "html", "png", "svg"):
        allowed = ", ".join(["text", "json", *more])
        raise ValueError(f"this command writes {allowed}, but the output is {arguments.output!r}")
    return "text"


def _format(arguments: argparse.Namespace) -> str:
    """The format that is asked for, or that the output's name tells."""
    if getattr(arguments, "json", False):
        return "json"
    if arguments.format:
        return str(arguments.format)
    output = arguments.output or "-"
    if output.endswith(".trace.json"):
        return "trace"
    extension = _extension(output)
    if extension in (".csv", ".json"):
        return extension[1:]
    if extension and extension not in _PICTURES:
        raise ValueError(
            f"cannot tell a format from {output!r}: name it with --format {'|'.join(_FORMATS)}"
        )
    return _PICTURES.get(extension, "text")


def _emit(schedule: Schedule, costs: Costs | None, kind: str, output: str | None) -> None:
    """Write a schedule, or its timeline under costs, in one of `_FORMATS`."""
    if kind == "csv":
        from pipesched.formats.torch_csv import format_torch_csv

        _write(format_torch_csv(schedule, comms=schedule.has_comms), output)
        return
    if kind == "rows":
        _write(json.dumps({"name": schedule.name, "rows": schedule.rows()}) + "\n", output)
        return
    timeline = schedule.simulate(costs)
    if kind == "json":
        _write(
            json.dumps({**_measures(timeline), "rows": schedule.rows()}, indent=1) + "\n", output
        )
    elif kind == "text":
        from pipesched.draw.text import Terminal, render

        terminal = Terminal.of(sys.stdout)
        if output not in (None, "-"):
            terminal = Terminal(width=terminal.width, colour=False, unicode=True)
        _write(render(timeline, terminal) + "\n", output)
    elif kind == "svg":
        from pipesched.draw.svg import render as svg

        _write(_ascii(svg(timeline)) + "\n", output)
    elif kind == "html":
        from pipesched.draw.svg import page

        _write(_ascii(page(timeline)), output)
    elif kind == "trace":
        from pipesched.formats.chrome_trace import write

        write(timeline, _stdout() if output is None or output == "-" else output)
    else:
        from pipesched.draw.plot import save

        save(timeline, _stdout().buffer if output is None or output == "-" else output)


def _stdout() -> TextIO:
    if sys.stdout is None:
        raise OSError("standard output is closed")
    return sys.stdout


def _ascii(markup: str) -> str:
    """SVG or HTML that is the same in every encoding that a terminal or a pipe may have."""
    return markup.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _write(text: str, output: str | None) -> None:
    if output is None or output == "-":
        # A character that standard output cannot take (of a name) is written as its number.
        stream = _stdout()
        stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))
        return
    with open(output, "w", encoding="utf-8", newline="") as stream:
        stream.write(text)


def _counts(schedule: Schedule) -> dict[str, int]:
    return {
        "ranks": schedule.p,
        "stages": schedule.num_stages,
        "micro-batches": schedule.num_microbatches,
        "ops": len(schedule),
    }


def _measures(timeline: Timeline) -> dict[str, Any]:
    return {
        "name": timeline.schedule.name,
        **_counts(timeline.schedule),
        "makespan": timeline.makespan,
        "bubble_fraction": timeline.bubble_fraction,
        "bubble_ratio": timeline.bubble_ratio,
        "span_bubble": timeline.span_bubble,
        "lower_bound": timeline.lower_bound,
        "busy": timeline.busy.tolist(),
        "idle": timeline.idle.tolist(),
        "peak_activations": timeline.peak_activations.tolist(),
        "peak_memory": timeline.peak_memory.tolist(),
    }


# --- the words of the command line ------------------------------------------------------------

_EXAMPLES = """\
examples:
  pipesched show 1f1b -p 4 -m 8                       draw 1F1B in the terminal
  pipesched show interleaved-1f1b -p 4 -m 8 --v 2 -o picture.svg
  pipesched compare -p 8 -m 32 --costs costs.json     all schedules on your costs
  pipesched check schedule.csv                        is a torch schedule file legal?
  pipesched simulate schedule.csv --costs costs.json --json
  pipesched convert schedule.csv -o schedule.trace.json   open it in Perfetto
  pipesched partition graph.txt --workers 16 --bandwidth 1.25e9
  pipesched versions stash pipedream -p 4 -m 8
  pipesched schedules zb-v                            the rule, its options and source
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line, like all others of this command."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="pipesched",
        description="Make, check, time and draw pipeline-parallel training schedules.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, help: str, example: str) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name,
            help=help,
            description=help,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.set_defaults(run=run)
        made.add_argument(
            "-o", "--output", metavar="FILE", help="where to write; '-' is standard output"
        )
        return made

    def add_source(made: argparse.ArgumentParser) -> None:
        made.add_argument(
            "source",
            help="a schedule's name, or a file ('-': stdin) with rows: torch's CSV, blanks, JSON",
        )
        made.add_argument("-p", type=_whole, help="ranks (with a schedule's name)")
        made.add_argument("-m", type=_whole, help="micro-batches (with a schedule's name)")
        for name in _option_names():
            owners = ", ".join(f.name for f in SCHEDULES.values() if name in f.options)
            made.add_argument(
                f"--{name}", dest=f"option_{name}", metavar="VALUE", help=f"option of {owners}"
            )

    def add_costs(made: argparse.ArgumentParser) -> None:
        made.add_argument(
            "--costs", metavar="FILE", help="costs as JSON, '-' for stdin; default F 1, B 2"
        )

    def add_format(made: argparse.ArgumentParser) -> None:
        made.add_argument(
            "--format", choices=_FORMATS, help="default: by the name of the output, else text"
        )

    def add_json(made: argparse.ArgumentParser) -> None:
        made.add_argument("--json", action="store_true", help="write JSON")

    show = command("show", _show, "draw a schedule", "pipesched show zb-h1 -p 4 -m 8 -o a.png")
    compare = command(
        "compare", _compare, "compare schedules on one model", "pipesched compare -p 4 -m 16"
    )
    check = command("check", _check, "is a schedule legal?", "pipesched check a.csv --blocking")
    simulate = command(
        "simulate", _simulate, "time a schedule", "pipesched simulate a.csv --costs costs.json"
    )
    convert = command(
        "convert", _convert, "change the format", "pipesched convert a.csv --comms -o b.csv"
    )
    cut = command(
        "partition",
        _partition,
        "cut a profiled model into replicated stages (PipeDream)",
        "pipesched partition vgg16.txt --workers 4,4 --bandwidth 12e9,1.25e9",
    )
    versions = command(
        "versions",
        _versions,
        "which weight version each op uses",
        "pipesched versions stash pipedream -p 4 -m 8",
    )
    schedules = command(
        "schedules", _schedules, "list the schedules there are", "pipesched schedules 1f1b"
    )
    versions.add_argument(
        "versions_rule", metavar="rule", help="flush, naive, stash, vertical-sync or 2bw"
    )
    for made in (show, check, simulate, convert, versions):
        add_source(made)
    for made in (show, simulate, convert):
        add_costs(made)
        add_format(made)
    for made in (show, simulate, convert, check, compare, cut, versions, schedules):
        add_json(made)
    check.add_argument(
        "--blocking", action="store_true", help="a send waits until its receive is reached"
    )
    convert.add_argument(
        "--comms", action="store_true", help="insert sends and receives that cannot deadlock"
    )
    versions.add_argument("--accumulate", type=_whole, help="micro-batches an update of 2bw")
    cut.add_argument("profile", help="a profile: PipeDream's graph.txt, or JSON")
    cut.add_argument("--workers", required=True, help="how many; by level, innermost first: 4,4")
    cut.add_argument("--bandwidth", required=True, help="bytes a second; one for each level")
    cut.add_argument("--memory", type=float, help="bytes a worker has")
    cut.add_argument("--stages", type=_whole, help="exactly so many stages")
    cut.add_argument("--compat", choices=["pipedream"], help="the published program's objective")
    compare.add_argument("-p", type=_whole, required=True, help="ranks")
    compare.add_argument("-m", type=_whole, required=True, help="micro-batches")
    compare.add_argument("--memory", type=float, help="bytes a rank has")
    compare.add_argument("--schedules", metavar="A,B,...", help="only these")
    add_costs(compare)
    schedules.add_argument("name", nargs="?", help="one schedule, with its rule and options")
    return parser


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a whole number, got {text!r}") from None
