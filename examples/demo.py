"""The main job on real input: which schedule for this model on this many ranks?

    python examples/demo.py RANKS MICRO_BATCHES [FOLDER]

draws the exercise, then cuts a measured model (transformer.json, see measure_model.py) evenly
over the ranks, compares all schedules on its costs, draws the fastest, checks a schedule file
that torch wrote, and leaves pictures and a trace in the folder.
"""

import sys
from pathlib import Path

import demo_exercise

import pipesched as ps

HERE = Path(__file__).resolve().parent
BANDWIDTH = 1.25e9  # bytes a second between ranks: 10 Gbit/s Ethernet


def title(text):
    """Print a headline."""
    print(f"\n{text}\n{'-' * len(text)}\n")


def costs_of_model(p):
    """Return the measured model's costs in milliseconds, cut evenly into p stages."""
    model = ps.read_profile(HERE / "transformer.json")
    if p > len(model):
        print(f"The model has {len(model)} layers, so it can be cut for at most as many ranks.")
        return None
    cut = ps.partition_balanced(model, p)
    print(f"{model.name}: {len(model)} layers, cut into {p} stages of even time")
    print(f"(stage, its layers, seconds a micro-batch):\n{cut}")
    costs = model.costs(cut.cuts, BANDWIDTH)
    return ps.Costs(
        costs.forward * 1e3,
        backward_input=costs.backward_input * 1e3,
        backward_weight=costs.backward_weight * 1e3,
        transfer=costs.transfer * 1e3 if p > 1 else 0.0,
        activation=costs.activation,
        static=costs.static,
    )


def check_torch_file():
    """Check the file that torch wrote, without sends and lowered in both modes."""
    path = HERE / "zero_bubble_by_torch.csv"
    schedule = ps.read_torch_csv(path)
    schedule.check()
    lowered = schedule.lower()
    lowered.check()
    lowered.check(blocking=True)
    print(f"{path.name}: {schedule!r}")
    print(
        f"legal; {len(lowered) - len(schedule)} sends and receives inserted: "
        "no deadlock, buffered or blocking"
    )
    print(schedule.torch_report())


def main(arguments):
    """Run the demo; return the program's exit code."""
    status = demo_exercise.main(arguments)
    if status:
        return status
    p, m = (int(text) for text in arguments[:2])
    folder = Path(arguments[2] if len(arguments) > 2 else "demo_output")

    title("A whole training step, on measured costs")
    costs = costs_of_model(p)
    if costs is None:
        return 0
    print(f"\nAll schedules for p = {p}, m = {m}; times in ms:\n")
    comparison = ps.compare(p, m, costs)
    print(comparison)

    winner = comparison.timelines[comparison[0].name]
    title(f"The fastest: {winner.schedule.name}")
    print(winner)

    title("A schedule file as torch writes it")
    check_torch_file()

    title("Left to open")
    winner.plot().figure.savefig(folder / "winner.png", dpi=150)
    winner.plot_memory().figure.savefig(folder / "winner-memory.png", dpi=150)
    several = [comparison.timelines[name] for name in ("gpipe", "1f1b")]
    ps.plot_comparison([*several, winner])[0].figure.savefig(folder / "compared.png", dpi=150)
    (folder / "winner.html").write_text(winner.to_html(), encoding="utf-8")
    winner.to_chrome_trace(folder / "winner.trace.json")
    winner.schedule.to_torch_csv(folder / "winner.csv")
    for name, what in (
        ("winner.png", "the fastest, as a plot"),
        ("winner-memory.png", "what its ranks hold"),
        ("compared.png", "GPipe, 1F1B and the fastest on one time axis"),
        ("winner.html", "the same to hover over, in a browser"),
        ("winner.trace.json", "for ui.perfetto.dev or chrome://tracing"),
        ("winner.csv", "for torch.distributed.pipelining"),
    ):
        print(f"  {folder / name}  {what}")
    return 0


if __name__ == "__main__":
    import matplotlib as mpl

    mpl.use("Agg")
    sys.exit(main(sys.argv[1:]))
