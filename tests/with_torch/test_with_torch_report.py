"""`Schedule.torch_report` against torch's own loader, validator and runtime."""

import contextlib
import copy
import io
import random
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    _Action,
    _PipelineScheduleRuntime,
    _simulate_comms_compute,
)

import pipesched as ps


@pytest.fixture(scope="module")
def alone():
    """This process as a pipeline group of one rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def stub(schedule, rank=0):
    """As much of a stage as torch's loader looks at."""
    return SimpleNamespace(
        num_stages=schedule.num_stages,
        group_size=schedule.p,
        group_rank=rank,
        is_last=False,
        stage_index=0,
    )


def load(schedule, folder, format):
    """Load the schedule's file into torch's runtime; raises what torch raises."""
    path = folder / "schedule.csv"
    schedule.to_torch_csv(path, comms=format == "compute_comms")
    if any(not row for row in schedule.rows()):
        raise IndexError("torch wants at least one stage on each rank")
    runtime = _PipelineScheduleRuntime([stub(schedule)], schedule.num_microbatches)
    runtime._load_csv(str(path), format=format)
    return runtime


def simulate(runtime, num_stages):
    """torch's dry run, which knows neither overlapped pairs nor the actions around sharding."""
    table = {}
    for rank, row in runtime.pipeline_order_with_comms.items():
        opened = [part for action in row for part in action.sub_actions or (action,)]
        table[rank] = [
            action
            for action in opened
            if action.computation_type.value not in ("UNSHARD", "RESHARD", "REDUCE_GRAD")
        ]
    with contextlib.redirect_stdout(io.StringIO()):
        return _simulate_comms_compute(
            table, lambda s: runtime.stage_index_to_group_rank[s], num_stages
        )


def loads(schedule, folder):
    """Whether torch's loader takes the schedule."""
    try:
        load(schedule, folder, schedule.torch_report().format)
    except (AssertionError, IndexError, KeyError, RuntimeError, ValueError):
        return False
    return True


CASES = [
    ("naive", 3, 2, {}),
    ("gpipe", 3, 4, {}),
    ("1f1b", 4, 6, {}),
    ("1f1b", 4, 2, {}),
    ("eager-1f1b", 4, 6, {}),
    ("interleaved-1f1b", 2, 5, {"v": 3}),
    ("looped-bfs", 2, 3, {}),
    ("zb-h1", 4, 5, {}),
    ("zb-h2", 3, 6, {}),
    ("zb-1p", 2, 5, {}),
    ("zb-v", 3, 4, {}),
    ("v-half", 4, 5, {}),
    ("v-min", 4, 5, {}),
    ("dualpipe-v", 2, 5, {}),
    ("hanayo", 2, 4, {}),
]


@pytest.mark.parametrize(("name", "p", "m", "options"), CASES)
def test_every_family_that_is_said_to_run_loads_and_passes_torchs_dry_run(
    name, p, m, options, tmp_path
):
    schedule = ps.generate(name, p, m, **options)
    report = schedule.torch_report()
    assert report, str(report)
    simulate(load(schedule, tmp_path, "compute_only"), schedule.num_stages)
    simulate(load(schedule.lower(), tmp_path, "compute_comms"), schedule.num_stages)


@pytest.mark.parametrize("name", ["forward", "chimera", "dualpipe"])
def test_every_family_that_is_said_not_to_load_is_refused(name, tmp_path):
    schedule = ps.generate(name, 4, 8)
    report = schedule.torch_report()
    assert not report.loads
    assert not loads(schedule, tmp_path)


def mutated(schedule, seed):
    """The schedule with a few ops dropped, doubled, swapped, moved or renamed."""
    chance = random.Random(seed)
    rows = [list(row) for row in schedule.rows()]
    for _ in range(chance.randint(1, 3)):
        r = chance.randrange(len(rows))
        if not rows[r]:
            continue
        c, d = chance.randrange(len(rows[r])), chance.randrange(len(rows[r]))
        word = rows[r][c]
        match chance.randrange(6):
            case 0:
                del rows[r][c]
            case 1:
                rows[r].insert(d, word)
            case 2:
                rows[r][c], rows[r][d] = rows[r][d], word
            case 3:
                del rows[r][c]
                rows[chance.randrange(len(rows))].append(word)
            case 4:
                rows[r][c] = word.translate(str.maketrans("01", "10"))
            case 5 if word.startswith("("):
                rows[r][c : c + 1] = word[1 : word.index(")")].split(";")
            case 5:
                rows[r][c] = word.replace("B", "I") if "B" in word else word.replace("I", "B")
    return ps.Schedule.from_rows(rows) if any(rows) else schedule


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(CASES), st.integers(0, 10**9))
def test_loading_is_foretold_for_any_schedule(tmp_path_factory, case, seed):
    name, p, m, options = case
    schedule = mutated(ps.generate(name, p, m, **options), seed)
    report = schedule.torch_report()
    assert report.loads == loads(schedule, tmp_path_factory.getbasetemp()), str(report)


# One rank, so that a real step can be run here; runs of several ranks are in worker.py.

RUNS = {
    "in order": ["0F0 0F1 1F0 1B0 1F1 1B1 0B0 0B1"],
    "split": ["0F0 0F1 1F0 1I0 1F1 1I1 1W1 0I0 0I1 0W0 0W1 1W0"],
    "backwards reversed": ["0F0 0F1 1F0 1F1 1B1 1B0 0B1 0B0"],
    "pair": ["0F0 1F0 (0F1;1B0)OVERLAP_F_B 0B0 1F1 1B1 0B1"],
    "three stages": ["0F0 1F0 2F0 2I0 1I0 0I0 0W0 2W0 1W0"],
}
FAILS = {
    "loss-order": ["0F0 0F1 1F1 1B1 1F0 1B0 0B0 0B1"],
    "repeated": ["0F0 1F0 1B0 1B0 0B0"],
}


def step(schedule):
    """Two steps of torch's own runtime on one rank; the largest difference in a gradient."""
    torch.manual_seed(0)
    modules = [nn.Linear(4, 4) for _ in range(schedule.num_stages)]
    alone = nn.Sequential(*copy.deepcopy(modules))
    stages = [
        PipelineStage(module, s, len(modules), torch.device("cpu"))
        for s, module in enumerate(modules)
    ]
    m = schedule.num_microbatches
    runtime = _PipelineScheduleRuntime(stages, m, loss_fn=nn.MSELoss())
    actions = {r: [_Action.from_str(w) for w in row] for r, row in enumerate(schedule.rows())}
    runtime._prepare_schedule_with_comms(actions)
    batch, target, losses = torch.randn(2 * m, 4), torch.randn(2 * m, 4), []
    nn.MSELoss()(alone(batch), target).backward()
    worst = 0.0
    for _ in range(2):  # what is left over from one step can trip the next
        nn.Sequential(*modules).zero_grad()
        runtime.step(batch, target=target, losses=losses)
        pairs = zip(nn.Sequential(*modules).parameters(), alone.parameters(), strict=True)
        worst = max(
            [worst, *(float((p.grad - q.grad).abs().nan_to_num(1).max()) for p, q in pairs)]
        )
    return worst


def steps(schedule):
    """Whether torch's own runtime gets through the steps, with the right gradients."""
    try:
        return step(schedule) < 1e-6
    except (AssertionError, KeyError, RuntimeError, TypeError):
        return False


@pytest.mark.parametrize("name", RUNS)
def test_a_yes_is_proven_by_a_step(alone, name):
    schedule = ps.Schedule.from_rows(RUNS[name])
    assert schedule.torch_report(), str(schedule.torch_report())
    assert steps(schedule)


@pytest.mark.parametrize("code", FAILS)
def test_a_no_of_a_run_is_proven_by_a_step(alone, code, tmp_path):
    schedule = ps.Schedule.from_rows(FAILS[code])
    report = schedule.torch_report()
    assert report.loads
    assert not report.runs
    assert report.reasons[0].code == code
    assert loads(schedule, tmp_path)
    assert not steps(schedule)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(RUNS)), st.integers(0, 10**9))
def test_running_is_foretold_for_any_schedule_of_one_rank(alone, name, seed):
    schedule = mutated(ps.Schedule.from_rows(RUNS[name]), seed)
    report = schedule.torch_report()
    if report.loads:
        assert report.runs == steps(schedule), f"{schedule.rows()} {report}"


def test_every_published_file_is_loaded_by_torch(data_dir, tmp_path):
    files = sorted((data_dir / "torch_csv").glob("*.csv"))
    assert len(files) == 11
    for file in files:
        schedule = ps.read_torch_csv(file)
        report = schedule.torch_report()
        assert report, f"{file.name}: {report}"
        ours = load(schedule, tmp_path, report.format)
        simulate(ours, schedule.num_stages)
        if "BW" in file.name or file.stem.startswith("bf3319ac"):
            continue  # in the old words, which torch itself no longer reads
        theirs = _PipelineScheduleRuntime([stub(schedule)], schedule.num_microbatches)
        theirs._load_csv(str(file), format=report.format)
        assert theirs.pipeline_order_with_comms == ours.pipeline_order_with_comms, file.name
