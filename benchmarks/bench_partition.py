"""Speed of partitioning, as ratios.

    python benchmarks/bench_partition.py

Against the slow twin the ratio is of this run. The wall times of PipeDream's own
program, and of the two libraries, were taken on another machine by whoever published
the data; a ratio to them says something about orders of magnitude and no more.
"""

import csv
import os
import sys
from pathlib import Path

import numpy as np
from timing import human, race

import pipesched as ps

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from reference_partition import balanced, published  # noqa: E402
from test_partition_plan import options_of, wide_graph  # noqa: E402

DATA = Path(os.environ.get("PIPESCHED_DATA", ROOT.parent / "shared" / "data"))
TWIN_NAMES = {
    "straight_pipeline": "straight",
    "use_fewer_machines": "fewer",
    "activation_compression_ratio": "ratio",
    "memory": "memory",
}


def bench_balanced():
    print("balanced partition, exact")
    for n, k in ((100, 8), (1000, 64)):
        costs = np.random.default_rng(n).random(n)
        (fast,) = race(lambda costs=costs, k=k: ps.partition_balanced(costs, k))
        text = f"  {n:>5} layers into {k:<3} {human(fast):>8}"
        if n <= 100:  # the twin takes a quarter of a minute for the other
            listed = costs.tolist()
            (slow,) = race(lambda x=listed, k=k: balanced(x, k), seconds=0.0)
            text += f"   the twin's dynamic programme {human(slow):>8} ({slow / fast:,.0f}x)"
        print(text)


def profiles():
    read = {}

    def get(name):
        if name not in read:
            read[name] = ps.read_profile(DATA / "pipedream_profiles" / name / "graph.txt")
        return read[name]

    return get


def bench_real_models(get):
    print("balanced partition of real models; the libraries' seconds are another machine's")
    with open(DATA / "configs" / "balance_compare.csv") as file:
        for row in csv.DictReader(file):
            if row["k"] != "16" or not (DATA / "pipedream_profiles" / row["model"]).exists():
                continue
            costs = get(row["model"]).compute
            (fast,) = race(lambda costs=costs: ps.partition_balanced(costs, 16), seconds=0.05)
            others = [float(row[f"{name}_s"]) / fast for name in ("deepspeed", "torchgpipe")]
            print(
                f"  {row['model']:<14} k=16 {human(fast):>8}"
                f"   {others[0]:>7,.0f}x and {others[1]:>5,.0f}x as fast; their largest parts "
                f"{float(row['deepspeed_ratio']):.3f} and {float(row['torchgpipe_ratio']):.3f} "
                "of the optimum"
            )


def bench_published(get):
    print("PipeDream's published objective; its own wall seconds are another machine's")
    times, ratios = [], []
    with open(DATA / "pipedream_profiles" / "reference_outputs.csv") as file:
        rows = [row for row in csv.DictReader(file) if not row["err"]]
    for row in rows:
        workers, bandwidth, options = options_of(row["args"])
        profile = get(row["model"])
        (fast,) = race(
            lambda p=profile, w=workers, b=bandwidth, o=options: ps.partition(
                p, w, b, compat="pipedream", **o
            ),
            seconds=0.0,
        )
        times.append(fast)
        ratios.append(float(row["wall_s"]) / fast)
        if fast > 0.02 or float(row["wall_s"]) > 20:
            print(
                f"  {row['tag']:<36} {human(fast):>8}   its own {row['wall_s']:>8} s "
                f"({ratios[-1]:,.0f}x)"
            )
    print(
        f"  all {len(rows)} rows: median {human(float(np.median(times)))}, "
        f"slowest {human(max(times))}, median ratio {np.median(ratios):,.0f}x"
    )
    print("against the twin, in this run")
    for tag in ("alexnet__n4_b1e9_acr1", "vgg16__n16_b1.25e9_acr1", "vgg16__clA_4x4_12e9_1.25e9"):
        row = next(row for row in rows if row["tag"] == tag)
        workers, bandwidth, options = options_of(row["args"])
        profile = get(row["model"])
        layers = [(x.compute, x.activation, x.parameters) for x in profile.layers]
        twin_options = {TWIN_NAMES[name]: value for name, value in options.items()}
        fast, slow = race(
            lambda p=profile, w=workers, b=bandwidth, o=options: ps.partition(
                p, w, b, compat="pipedream", **o
            ),
            lambda x=layers, e=profile.edges, w=workers, b=bandwidth, o=twin_options: published(
                x, e, w, b, **o
            ),
            seconds=0.0,
        )
        print(f"  {tag:<36} {human(fast):>8}   twin {human(slow):>8} ({slow / fast:,.0f}x)")


def bench_default(get):
    print("the default model, 4 servers of 4")
    models = {name: get(name) for name in ("vgg16", "gnmt_large", "resnet50", "resnet101")}
    models["11 blocks of 4 branches"] = wide_graph(branches=4, length=6, blocks=11)
    for name, profile in models.items():
        (fast,) = race(lambda p=profile: ps.partition(p, (4, 4), (12e9, 1.25e9)), seconds=0.0)
        plan = ps.partition(profile, (4, 4), (12e9, 1.25e9))
        exact = "" if plan.exact else f", in line: at most {plan.gap:.1%} above the optimum"
        print(f"  {name:<23} {plan.states:>5} states {human(fast):>8}   {plan.config}{exact}")


def main():
    bench_balanced()
    if not DATA.is_dir():
        print(f"no published profiles at {DATA}; set PIPESCHED_DATA for the rest")
        return
    get = profiles()
    bench_real_models(get)
    bench_published(get)
    bench_default(get)


if __name__ == "__main__":
    main()
