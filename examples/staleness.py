"""What weight versions mean for learning: six update rules on one small model.

A network of one layer a stage learns to sort its inputs into classes. Every rule runs the
ops of a pipeline schedule one by one, in the order in which they start, with the
weights that the rule gives each op:

    flush           1F1B, one update a batch of mini-batches (the same as BSP)
    naive           PipeDream's order; every op takes the newest weights
    stash           as naive, but a backward takes the weights its forward took
    vertical-sync   as stash, with the first stage's version on all stages
    2bw             gradients of a batch make a version; each batch takes the last but one

and, without a pipeline, data parallel with as many workers as there are stages:

    BSP             all workers' gradients are added up, then all go on
    ASP             each worker's gradient is applied when it is ready, on newer weights

Where weights turn fast between a forward and its backward (a high rate, many stages),
naive suffers: its backward is not the gradient of any forward. Stashing repairs it. At a
tenth of the rate there is nothing to choose between the two. Vertical sync learns as ASP
does, and a flush as BSP: they are the same equations.

    python examples/staleness.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np

import pipesched as ps
from pipesched import versions

STAGES = 8
WIDTH = 16
SAMPLES = 16  # a mini-batch
STEPS = 1200  # mini-batches
RATE = 8.0
EVERY = 16  # mini-batches between two measurements
RULES = ("flush", "naive", "stash", "vertical-sync", "2bw", "BSP", "ASP")


# ---- a model of one layer a stage -----------------------------------------------------------
#
# A stage adds relu(normalised(x W)) to x: a small residual network that sorts its inputs
# into classes. Normalised, a layer does not care how long its weights are, so that they
# can turn fast without blowing up: that is where versions matter.


def new_weights(seed: int, stages: int = STAGES) -> list[np.ndarray]:
    """An orthogonal matrix a stage."""
    rng = np.random.default_rng(seed)
    return [np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0] for _ in range(stages)]


def new_data(steps: int, seed: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and their classes for all mini-batches, as a small teacher sorts them."""
    inputs = np.random.default_rng(seed).normal(size=(steps, SAMPLES, WIDTH))
    outputs = inputs
    for weights in new_weights(seed + 1, stages=2):
        outputs = np.tanh(outputs @ (1.5 * weights))
    return inputs, outputs.argmax(axis=-1)


def forward(x: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """The output, and what the backward needs to know of the pass."""
    z = x @ weights
    length = np.sqrt((z * z).mean(axis=-1, keepdims=True) + 1e-6)
    unit = z / length
    return x + np.maximum(unit, 0.0), (x, unit, length)


def backward(
    kept: tuple[np.ndarray, ...], dy: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the input and of the weights."""
    x, unit, length = kept
    da = dy * (unit > 0.0)
    dz = (da - unit * (da * unit).mean(axis=-1, keepdims=True)) / length
    return dz @ weights.T + dy, x.T @ dz


def probabilities(y: np.ndarray) -> np.ndarray:
    power = np.exp(y - y.max(axis=-1, keepdims=True))
    return power / power.sum(axis=-1, keepdims=True)


def loss_gradient(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Of the cross entropy, a mean over the samples."""
    dy = probabilities(y)
    dy[np.arange(len(classes)), classes] -= 1.0
    return dy / len(classes)


def loss(weights: list[np.ndarray], inputs: np.ndarray, classes: np.ndarray) -> float:
    y = inputs
    for matrix in weights:
        y, _ = forward(y, matrix)
    chosen = np.take_along_axis(probabilities(y), classes[..., None], axis=-1)
    return float(-np.log(chosen + 1e-30).mean())


# ---- a schedule, op by op --------------------------------------------------------------------


def in_time_order(schedule: ps.Schedule) -> list[tuple[int, int, int]]:
    """(stage, mini-batch, kind) in the order of the starts; F takes 1, B takes 2."""
    start = schedule.simulate(ps.Costs(forward=1.0, backward=2.0)).start
    ops = schedule.ops[np.argsort(start, kind="stable")]
    return [(int(op["stage"]), int(op["microbatch"]), int(op["kind"])) for op in ops]


class Pipeline:
    """The stages' weights, all versions of them that are still needed, and a rule."""

    def __init__(self, weights: list[np.ndarray], rule: str, batch: int, rate: float) -> None:
        self.rule, self.batch, self.rate = rule, batch, rate
        self.versions = [{0: matrix} for matrix in weights]
        self.newest = [0] * len(weights)
        self.sums: list[np.ndarray | float] = [0.0] * len(weights)
        self.counted = [0] * len(weights)
        self.taken: dict[tuple[int, int], int] = {}
        self.kept: dict[tuple[int, int], tuple[np.ndarray, ...]] = {}
        self.activations: dict[tuple[int, int], np.ndarray] = {}  # for that stage's forward
        self.gradients: dict[tuple[int, int], np.ndarray] = {}  # for that stage's backward

    def weights(self) -> list[np.ndarray]:
        return [held[new] for held, new in zip(self.versions, self.newest, strict=True)]

    def forward(self, stage: int, j: int, inputs: np.ndarray) -> None:
        if self.rule == "vertical-sync" and stage > 0:
            version = self.taken[0, j]
        elif self.rule == "2bw":
            version = max(0, j // self.batch - 1)
        elif self.rule == "flush":
            version = j // self.batch
        else:
            version = self.newest[stage]
        self.taken[stage, j] = version
        x = inputs if stage == 0 else self.activations.pop((stage, j))
        y, kept = forward(x, self.versions[stage][version])
        self.kept[stage, j] = kept
        self.activations[stage + 1, j] = y

    def backward(self, stage: int, j: int, classes: np.ndarray) -> None:
        if stage == len(self.versions) - 1:
            dy = loss_gradient(self.activations.pop((stage + 1, j)), classes)
        else:
            dy = self.gradients.pop((stage, j))
        version = self.newest[stage] if self.rule == "naive" else self.taken[stage, j]
        dx, gradient = backward(self.kept.pop((stage, j)), dy, self.versions[stage][version])
        if stage > 0:
            self.gradients[stage - 1, j] = dx
        self.update(stage, gradient)

    def update(self, stage: int, gradient: np.ndarray) -> None:
        """Apply to the newest version: at once, or the sum of a batch's gradients."""
        if self.rule in ("flush", "2bw"):
            self.sums[stage] = self.sums[stage] + gradient
            self.counted[stage] += 1
            if self.counted[stage] < self.batch:
                return
            gradient, self.sums[stage], self.counted[stage] = self.sums[stage], 0.0, 0
        new = self.newest[stage]
        held = self.versions[stage]
        held[new + 1] = held[new] - self.rate * gradient
        self.newest[stage] = new + 1
        for old in [v for v in held if v < new + 1 - 2 * len(self.versions)]:
            del held[old]  # longer ago than any op in flight


def train(
    rule: str,
    inputs: np.ndarray,
    classes: np.ndarray,
    weights: list[np.ndarray],
    rate: float = RATE,
) -> tuple[list[np.ndarray], list[float]]:
    """Final weights, and the loss after every few mini-batches, of one rule."""
    if rule in ("BSP", "ASP"):
        return train_data_parallel(rule, inputs, classes, weights, rate)
    stages, steps = len(weights), len(inputs)
    pipeline = Pipeline(weights, rule, batch=stages, rate=rate)
    if rule == "flush":  # 1F1B for a batch, and again
        one = in_time_order(ps.generate("1f1b", stages, stages))
        order = [(s, first + j, kind) for first in range(0, steps, stages) for s, j, kind in one]
    else:
        order = in_time_order(ps.generate("pipedream", stages, steps))
    curve = []
    for stage, j, kind in order:
        if kind == 0:
            pipeline.forward(stage, j, inputs[j])
        else:
            pipeline.backward(stage, j, classes[j])
            if stage == 0 and j % EVERY == EVERY - 1:
                curve.append(loss(pipeline.weights(), inputs[:64], classes[:64]))
    return pipeline.weights(), curve


def gradients(
    weights: list[np.ndarray], inputs: np.ndarray, classes: np.ndarray
) -> list[np.ndarray]:
    """Of one mini-batch for all stages, each with one and the same weights both ways."""
    y, kept = inputs, []
    for matrix in weights:
        y, one = forward(y, matrix)
        kept.append(one)
    dy = loss_gradient(y, classes)
    found = []
    for matrix, one in zip(weights[::-1], kept[::-1], strict=True):
        dy, gradient = backward(one, dy, matrix)
        found.append(gradient)
    return found[::-1]


def train_data_parallel(
    rule: str, inputs: np.ndarray, classes: np.ndarray, weights: list[np.ndarray], rate: float
) -> tuple[list[np.ndarray], list[float]]:
    """As many workers as stages. BSP: all start from the same weights. ASP: a worker
    starts when its last gradient is applied, and the others' are applied meanwhile."""
    workers = len(weights)
    read = [weights] * workers  # what each worker computes on
    curve = []
    for j in range(len(inputs)):
        found = gradients(read[j % workers], inputs[j], classes[j])
        weights = [w - rate * g for w, g in zip(weights, found, strict=True)]
        if rule == "ASP":
            read[j % workers] = weights
        elif j % workers == workers - 1:
            read = [weights] * workers
        if j % EVERY == EVERY - 1:
            curve.append(loss(weights, inputs[:64], classes[:64]))
    return weights, curve


# ---- the comparison --------------------------------------------------------------------------


def run_all(steps: int = STEPS, rate: float = RATE) -> dict[str, list[float]]:
    """The loss curve of every rule, from the same start on the same data."""
    inputs, classes = new_data(steps)
    return {rule: train(rule, inputs, classes, new_weights(1), rate)[1] for rule in RULES}


def draw(curves: dict[str, list[float]], path: str) -> None:
    """The curves as a picture."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    styles = {
        "flush": ("#000000", "-"),
        "BSP": ("#999999", "--"),
        "naive": ("#D55E00", "-"),
        "stash": ("#0072B2", "-"),
        "vertical-sync": ("#56B4E9", "--"),
        "2bw": ("#009E73", "-"),
        "ASP": ("#CC79A7", "-."),
    }
    figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for rule, curve in curves.items():
        colour, style = styles[rule]
        x = EVERY * np.arange(1, len(curve) + 1)
        ax.plot(x, curve, style, color=colour, label=rule, lw=1.6)
    ax.set(
        xlabel="mini-batches",
        ylabel="loss",
        title=f"{STAGES} stages, rate {RATE}: one model, one data set, seven update rules",
    )
    ax.legend(ncols=2)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    curves = run_all()
    schedule = ps.generate("pipedream", STAGES, 4 * STAGES)
    print(f"{'rule':<14} {'loss':>9}   versions   staleness   passes   stages")
    for rule, curve in curves.items():
        line = f"{rule:<14} {curve[-1]:>9.5f}"
        if rule in versions.RULES:
            made = ps.weight_versions(schedule, rule)
            agree = {True: "agree", False: "differ"}
            line += (
                f"   {int(made.held.max()):>8}   {int(made.staleness.max()):>9}   "
                f"{agree[made.passes_agree]:<6}   {agree[made.stages_agree]}"
            )
        print(line)
    if len(sys.argv) > 1:
        draw(curves, sys.argv[1])
        print(f"picture: {sys.argv[1]}")


if __name__ == "__main__":
    main()
