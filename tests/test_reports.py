"""What went wrong elsewhere comes out right here: one test a report, the tracker in its id."""

from fractions import Fraction

import numpy as np
import pytest

import pipesched as ps
from pipesched import formulas

REPORTS = {}
UNIT = ps.Costs(forward=1, backward_input=1, backward_weight=1)
EQUAL = ps.Costs(forward=1, backward=1)


def report(origin):
    def keep(function):
        REPORTS[origin] = function
        return function

    return keep


@pytest.mark.parametrize("origin", REPORTS.values(), ids=REPORTS)
def test_report(origin):
    origin()


def bubble_of(schedule, costs=None):
    """Makespan and bubble_fraction as an exact fraction of the makespan."""
    timeline = schedule.simulate(costs)
    total = int(timeline.makespan) * schedule.p
    return timeline.makespan, Fraction(round(timeline.bubble_fraction * total), total)


def peaks_of(schedule, costs=None):
    return schedule.simulate(costs).peak_activations.tolist()


def fault_of(schedule, **how):
    with pytest.raises(ps.ScheduleError) as caught:
        schedule.check(**how)
    return caught.value.fault


# Few micro-batches, and those that the ranks do not divide -----------------------------------


@report("pytorch/torchtitan#775")
def fewer_microbatches_than_ranks():
    schedule = ps.generate("1f1b", 8, 1).check()
    assert schedule.rows() == [[f"{r}F0", f"{r}B0"] for r in range(8)]
    assert bubble_of(schedule) == (24, Fraction(7, 8))
    schedule = ps.generate("1f1b", 4, 2).check()
    assert bubble_of(schedule) == (15, Fraction(3, 5))
    assert peaks_of(schedule) == [2, 2, 2, 1]


@report("huggingface/nanotron#347")
def one_microbatch():
    for name in ("gpipe", "1f1b", "eager-1f1b", "naive"):
        assert bubble_of(ps.generate(name, 8, 1).check())[1] == Fraction(7, 8)


@report("HPDL-Group/Merak#4")
def one_microbatch_on_two_ranks():
    assert bubble_of(ps.generate("1f1b", 2, 1).check())[1] == Fraction(1, 2)


@report("pytorch/pytorch#129597")
def interleaved_in_rounds():
    """rounds = max(1, m // p) must divide m; a remainder is no reason to refuse."""
    ten = ps.generate("interleaved-1f1b", 4, 10, v=2, rule="torch").check()
    assert bubble_of(ten) == (69, Fraction(6, 46))
    assert peaks_of(ten) == [12, 10, 8, 6]
    three = ps.generate("interleaved-1f1b", 4, 3, v=2, rule="torch").check()
    assert bubble_of(three) == (30, Fraction(2, 5))
    with pytest.raises(ValueError, match=r"rounds.*m=9"):
        ps.generate("interleaved-1f1b", 4, 9, v=2, rule="torch")
    ps.generate("interleaved-1f1b", 4, 9, v=2).check()


@report("verl-project/verl#1617")
def short_last_group():
    makespan, bubble = bubble_of(ps.generate("interleaved-1f1b", 4, 10, v=2, group=4).check())
    assert (makespan, round(float(bubble), 4)) == (79, 0.2405)
    makespan, bubble = bubble_of(ps.generate("interleaved-1f1b", 4, 10, v=2, group=5).check())
    assert (makespan, round(float(bubble), 4)) == (69, 0.1304)


@report("NVIDIA/Megatron-LM#1829")
def groups_smaller_than_the_ranks():
    """A group below p makes a waiting cycle: it is refused, with the cycle."""
    for group in (2, 3):
        with pytest.raises(ValueError, match="wait") as caught:
            ps.generate("interleaved-1f1b", 4, 8, v=2, group=group).check()
        cycle = caught.value.fault.cycle
        assert {0, 3} <= {rank for rank, _, _ in cycle}
    four = ps.generate("interleaved-1f1b", 4, 8, v=2, group=4).check()
    assert bubble_of(four) == (57, Fraction(9, 57))
    assert peaks_of(four) == [11, 9, 7, 5]
    eight = ps.generate("interleaved-1f1b", 4, 8, v=2, group=8).check()
    assert bubble_of(eight) == (57, Fraction(9, 57))
    assert peaks_of(eight) == [15, 13, 11, 9]


def interleaved_with_warm_up(p, m, v, warm_up):
    """Interleaved 1F1B with another number of forwards before the first backward."""
    rows = []
    for row in ps.generate("interleaved-1f1b", p, m, v=v).rows():
        forwards = [word for word in row if "F" in word]
        backwards = [word for word in row if "B" in word]
        ahead = warm_up(len(rows))
        steady = [word for pair in zip(forwards[ahead:], backwards, strict=False) for word in pair]
        rows.append(forwards[:ahead] + steady + backwards[len(forwards) - ahead :])
    return ps.Schedule.from_rows(rows)


@report("NVIDIA/Megatron-LM#169")
def warm_up_of_interleaved():
    p, m, v = 4, 8, 2
    right = ps.generate("interleaved-1f1b", p, m, v=v)
    first_backward = [int(np.argmax(row["kind"] == 1)) for row in right]
    assert [n - 1 for n in first_backward] == [10, 8, 6, 4]
    assert right == interleaved_with_warm_up(p, m, v, lambda r: 2 * (p - r - 1) + (v - 1) * p)
    guess = interleaved_with_warm_up(p, m, v, lambda r: (p - r - 1) * v)
    assert fault_of(guess).code in ("order", "deadlock")  # rank 3 waits for its own later op
    once = interleaved_with_warm_up(p, m, v, lambda r: p - r - 1 + (v - 1) * p).check()
    assert right.simulate().makespan == once.simulate().makespan == 57
    assert peaks_of(once) == [8, 7, 6, 5]
    assert peaks_of(right) == [11, 9, 7, 5]
    slow = ps.Costs(transfer=0.5)
    assert right.simulate(slow).makespan == 64
    assert once.simulate(slow).makespan == 72


@report("NVIDIA/Megatron-LM#750")
def interleaved_on_two_ranks():
    schedule = ps.generate("interleaved-1f1b", 2, 4, v=2).check()
    assert bubble_of(schedule) == (27, Fraction(1, 9))
    schedule.lower().check().check(blocking=True)
    assert bubble_of(ps.generate("1f1b", 2, 4))[1] == Fraction(1, 5)


@report("hpcaitech/ColossalAI#796")
def one_chunk_is_1f1b():
    for p, m in ((1, 1), (1, 5), (2, 1), (3, 7), (4, 4), (4, 8), (8, 3)):
        assert ps.generate("interleaved-1f1b", p, m, v=1) == ps.generate("1f1b", p, m)


@report("pytorch/pytorch#162822")
def forward_only():
    for p, m in ((1, 1), (4, 1), (4, 8), (8, 3)):
        schedule = ps.generate("forward", p, m).check()
        assert bubble_of(schedule) == (m + p - 1, Fraction(p - 1, m + p - 1))


@report("pytorch/PiPPy#192")
def batch_that_does_not_divide():
    """As many micro-batches as asked for, uneven and none empty; or an error that says so."""
    for batch, m, largest in ((6, 4, 2), (9, 4, 3)):
        sizes = ps.partition_balanced([1] * batch, m).sizes
        assert (len(sizes), sum(sizes), min(sizes) >= 1, max(sizes)) == (m, batch, True, largest)
        timeline = ps.generate("1f1b", 2, m).simulate(ps.Costs(microbatch_scale=sizes))
        assert timeline.busy.tolist() == [3 * batch] * 2
        with pytest.raises(ValueError, match="multiple"):
            formulas.microbatches_of(batch, microbatch_size=m)


@report("NVIDIA/Megatron-LM#1852")
def layouts_with_empty_stages():
    for text, layers, empty in (
        ("Et|(tt|)*30L", 61, ()),
        ("Et|(tt|)*29L|", 59, (31,)),
        ("Et|(tt|)*29|L", 59, (30,)),
        ("Et|(tt|)*28t|t|L", 59, ()),
    ):
        layout = ps.megatron_layout(text, p=16)
        assert (len(layout.stages), layout.v) == (32, 2)
        assert (layout.num_layers, layout.empty) == (layers, empty)


# Orders that wait in a circle ----------------------------------------------------------------


@report("pytorch/pytorch#172668")
def sends_that_must_be_buffered():
    """Interleaved 1F1B of 2 ranks, 4 micro-batches, its transfers as torch emitted them."""
    schedule = ps.Schedule.from_rows(
        [
            "0F0 0SEND_F0 0F1 0SEND_F1 2RECV_F0 2F0 2SEND_F0 2RECV_F1 2F1 2SEND_F1 0F2 0SEND_F2 "
            "2RECV_B0 2B0 2SEND_B0 0F3 0SEND_F3 2RECV_B1 2B1 2SEND_B1 2RECV_F2 2F2 2SEND_F2 "
            "0RECV_B0 0B0 2RECV_F3 2F3 2SEND_F3 0RECV_B1 0B1 2RECV_B2 2B2 2SEND_B2 2RECV_B3 2B3 "
            "2SEND_B3 0RECV_B2 0B2 0RECV_B3 0B3",
            "1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 3RECV_F0 3F0 3B0 3SEND_B0 3RECV_F1 3F1 "
            "3B1 3SEND_B1 1RECV_F2 1F2 1SEND_F2 1RECV_B0 1B0 1SEND_B0 1RECV_F3 1F3 1SEND_F3 "
            "1RECV_B1 1B1 1SEND_B1 3RECV_F2 3F2 3B2 3SEND_B2 3RECV_F3 3F3 3B3 3SEND_B3 1RECV_B2 "
            "1B2 1SEND_B2 1RECV_B3 1B3 1SEND_B3",
        ]
    )
    assert schedule.check().simulate().makespan == 27
    fault = fault_of(schedule, blocking=True)
    assert fault.code == "deadlock"
    stuck = {rank: word for rank, _, word in fault.cycle}
    assert stuck.keys() == {0, 1}
    assert all("SEND" in word for word in stuck.values())
    assert all(word in fault.text for word in stuck.values())
    lowered = schedule.lower().check().check(blocking=True)
    assert sorted(word for row in lowered.rows() for word in row) == sorted(
        word for row in schedule.rows() for word in row
    )


@report("NVIDIA/nccl#479")
def both_send_first():
    """Rank 0 sends F of micro-batch 1, rank 1 the gradient of 0, and each receives after that."""
    schedule = ps.Schedule.from_rows(
        [
            "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
            "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1",
        ]
    )
    schedule.check()
    fault = fault_of(schedule, blocking=True)
    assert fault.code == "deadlock"
    assert {word for _, _, word in fault.cycle} == {"0SEND_F1", "1SEND_B0"}
    schedule.lower().check(blocking=True)


@report("NVIDIA/Megatron-LM#5100")
def a_chain_where_all_send_first():
    """Every inner rank sends both ways before it receives; receiving first on odd ranks helps."""

    def chain(p, polite):
        rows = []
        for r in range(p):
            down = [f"{r}F0"] + ([f"{r}SEND_F0"] if r < p - 1 else [])
            # Micro-batch 1 goes the other way: its stage s is on rank p - 1 - s.
            s = p - 1 - r
            up = [f"{s}F1"] + ([f"{s}SEND_F1"] if s < p - 1 else [])
            first = ([f"{r}RECV_F0"] if r else []) + down
            second = ([f"{s}RECV_F1"] if s else []) + up
            ends_first = r < p // 2 if not polite else True
            rows.append(first + second if ends_first else second + first)
        return ps.Schedule.from_rows(rows)

    # Already at two ranks: each sends its own first and receives afterwards.
    assert fault_of(chain(2, polite=False), blocking=True).code == "deadlock"
    chain(2, polite=False).check()
    fault = fault_of(chain(4, polite=False), blocking=True)
    assert fault.code == "deadlock"
    chain(4, polite=True).check(blocking=True)
    chain(4, polite=False).lower().check(blocking=True)


@report("public tracker: grouped receives")
def three_ranks_in_a_circle():
    """Rank 0 waits for rank 2, rank 2 for rank 1, rank 1 for rank 0; the other order is fine."""
    relay = "1RECV_F0 1F0 1SEND_F0"
    bad = ps.Schedule.from_rows(
        [
            "0F1 0F0 0SEND_F1 0SEND_F0",
            relay,
            "2RECV_F0 2F0 1RECV_F1 1F1 2F1",
        ]
    )
    bad.check()
    fault = fault_of(bad, blocking=True)
    assert fault.code == "deadlock"
    assert [rank for rank, _, _ in fault.cycle] in ([0, 2, 1], [2, 1, 0], [1, 0, 2])
    good = ps.Schedule.from_rows(
        ["0F1 0F0 0SEND_F0 0SEND_F1", relay, "2RECV_F0 2F0 1RECV_F1 1F1 2F1"]
    )
    good.check(blocking=True)
    bad.lower().check(blocking=True)


# Memory --------------------------------------------------------------------------------------


@report("deepspeedai/DeepSpeed#3900")
def live_losses():
    """As many losses live at once as the last stage holds micro-batches."""
    assert peaks_of(ps.generate("1f1b", 4, 4))[-1] == 1
    assert peaks_of(ps.generate("gpipe", 4, 4))[-1] == 4


@report("deepspeedai/DeepSpeed#2800")
def buffers_in_flight():
    peaks = peaks_of(ps.generate("1f1b", 4, 8))
    assert peaks == [4, 3, 2, 1]
    assert [max(2, peak) for peak in peaks] == [4, 3, 2, 2]


@report("deepseek-ai/DualPipe#23")
def dualpipe_v_holds_one_more():
    costs = ps.Costs(forward=1, backward_input=1, backward_weight=1, overlap=3)
    timeline = ps.generate("dualpipe-v", 4, 10).check().simulate(costs)
    assert timeline.peak_activations.tolist() == [9] * 4
    assert (timeline.makespan, set(timeline.busy)) == (66, {60})
    assert timeline.makespan - 60 == (8 // 2 - 1) * (3 + 2 - 3)


@report("deepseek-ai/DualPipe#17")
def weights_of_dualpipe_and_dualpipe_v():
    """Weights a rank, of a model of 1: on d devices DualPipe holds 2/d, DualPipeV 1/d."""
    d = 8
    for name, share in (("dualpipe", 2 / d), ("dualpipe-v", 1 / d)):
        schedule = ps.generate(name, d, 2 * d)
        assert all(len(stages) == 2 for stages in schedule.placement)
        costs = ps.Costs(activation=0, static=1 / schedule.num_stages)
        assert schedule.simulate(costs).peak_memory.tolist() == [share] * d
    # With as many stages DualPipeV has half of the devices, and each twice as much.
    assert ps.generate("dualpipe-v", d // 2, d).num_stages == d


@report("sail-sg/zero-bubble-pipeline-parallelism#36")
def embedding_and_head_on_one_rank():
    """p = 8, four layers a rank: the V has both ends of the model on rank 0."""
    p, m, layer, embedding, head = 8, 16, 1, 5, 7
    loop, v_shape = ps.generate("zb-h1", p, m), ps.generate("zb-v", p, m)
    static = np.full(p, 4 * layer)
    static[[0, -1]] += [embedding, head]
    loop_bytes = loop.simulate(ps.Costs(activation=2, static=static)).peak_memory
    static = np.full(2 * p, 2 * layer)
    static[[0, -1]] += [embedding, head]
    v_bytes = v_shape.simulate(ps.Costs(activation=1, static=static)).peak_memory
    assert (v_bytes - loop_bytes).tolist() == [head, *[0] * (p - 2), -head]


@report("marin-community/marin#6532")
def memory_does_not_grow_with_m():
    for m, bubble in ((8, 0.4667), (16, 0.3043), (32, None)):
        schedule = ps.generate("1f1b", 8, m)
        assert peaks_of(schedule) == [8, 7, 6, 5, 4, 3, 2, 1]
        if bubble:
            assert round(schedule.simulate().bubble_fraction, 4) == bubble
    assert round(ps.generate("1f1b", 4, 8).simulate().bubble_fraction, 4) == 0.2727


@report("pytorch/pytorch#136766")
def recomputed_activations_wait_for_w():
    """Recomputed at I, they are held until W: the pending Ws count."""
    schedule = ps.generate("zb-h1", 4, 8)
    recomputed = ps.Costs(activation=0, activation_kept=1)
    assert schedule.simulate(recomputed).peak_memory.tolist() == [1, 2, 3, 4]
    assert schedule.simulate().peak_memory.tolist() == [4, 4, 4, 4]


@report("jasperzhong/read-papers-and-code#206")
def weight_versions_by_stage():
    """PipeDream keeps d - s versions at stage s, 2BW two everywhere, a flush one."""
    d, m = 4, 32
    pipedream = ps.generate("pipedream", d, m)
    assert ps.weight_versions(pipedream, "stash").held.tolist() == [4, 3, 2, 1]
    assert ps.weight_versions(pipedream, "2bw").held.tolist() == [2, 2, 2, 2]
    for name in ("gpipe", "1f1b"):
        schedule = ps.generate(name, d, m)
        assert ps.weight_versions(schedule, "flush").held.tolist() == [1, 1, 1, 1]
    assert [formulas.weights("pipedream", d, m, rank=r) for r in range(d)] == [4, 3, 2, 1]


# Times ---------------------------------------------------------------------------------------


@report("zxypro1/algolocal#95")
def gpipe_and_1f1b_take_the_same_time():
    m, p = 32, 8
    for name, peak in (("gpipe", 32), ("1f1b", 8)):
        costs = ps.Costs(forward=1, backward=1, activation=256, static=768)
        timeline = ps.generate(name, p, m).simulate(costs)
        assert timeline.makespan == 78 == 7 + 64 + 7
        assert round(timeline.bubble_fraction, 4) == 0.1795
        assert timeline.peak_memory[0] == 768 + 256 * peak
    half = ps.Costs(forward=0.5, backward=0.5)
    timeline = ps.generate("interleaved-1f1b", p, m, v=2).simulate(half)
    assert timeline.makespan == 71
    assert round(timeline.bubble_fraction, 4) == 0.0986


@report("sail-sg/zero-bubble-pipeline-parallelism#10")
def zero_bubble_gains():
    plain = ps.generate("1f1b", 8, 64).simulate(UNIT).makespan
    zero = ps.generate("zb-h1", 8, 64).simulate(UNIT).makespan
    assert (plain, zero) == (213, 199)
    assert round(plain / zero - 1, 3) == 0.07


@report("deepseek-ai/DeepSeek-V3#724")
def backward_with_or_without_its_weights():
    p, f, i, w = 8, 1, 1, 1
    timeline = ps.generate("zb-h1", p, 2 * p).simulate(UNIT)
    waiting = timeline.makespan - max(timeline.busy)
    whole = i + w
    assert waiting == (p - 1) * (f + i - w) == (p - 1) * (f + whole - 2 * w) == 7


@report("bigscience-workshop/bigscience#70")
def more_microbatches_not_more_ranks():
    p, micro_batch_size, replicas = 12, 2, 8
    for batch, m, bubble in ((192, 12, 0.478), (384, 24, 0.314)):
        assert batch == m * micro_batch_size * replicas
        assert round(ps.generate("1f1b", p, m).simulate().bubble_fraction, 3) == bubble
    one, two = (ps.generate("1f1b", p, m).simulate().makespan for m in (1, 2))
    assert two / one == pytest.approx(13 / 12)


# Closed forms --------------------------------------------------------------------------------


@report("deepseek-ai/DualPipe#8")
def utilisation_is_not_bubble():
    share = formulas.bubble("interleaved-1f1b", p=8, m=32, v=2)
    assert round(share, 4) == 0.0986 == round(7 / (2 * 32 + 7), 4)
    assert round(1 - share, 3) == 0.901  # what was called the bubble rate


@report("deepseek-ai/DualPipe#15")
def chunks_that_beat_dualpipe():
    """Interleaving has the smaller bubble from v > 3(p-1)/(p-2) on, where f = b = w."""
    for p, least in ((4, 5), (8, 4), (16, 4)):
        m = 2 * p
        paired = ps.Costs(forward=1, backward_input=1, backward_weight=1, overlap=3)
        timeline = ps.generate("dualpipe", p, m).simulate(paired)
        dualpipe = timeline.makespan - timeline.busy.max()
        smaller = [
            v
            for v in range(1, 8)
            if formulas.bubble_time("interleaved-1f1b", p, m, v=v, forward=Fraction(1, v))
            < dualpipe
        ]
        assert smaller[0] == least
        assert least > 3 * (p - 1) / (p - 2) >= least - 1
        factor = formulas.activation_factor("interleaved-1f1b", p, m, v=least)
        assert factor == pytest.approx(1 + (p - 1) / (p * least))
        assert timeline.peak_activations.max() / p == 1 + 1 / p


@report("rohitg00/ai-engineering-from-scratch#66")
def two_bases_of_one_bubble():
    assert round(formulas.bubble("1f1b", p=16, m=8), 4) == 0.6522
    assert formulas.bubble("1f1b", p=16, m=8, basis="ideal") == 1.875
    timeline = ps.generate("1f1b", 16, 8).simulate(EQUAL)
    assert round(timeline.bubble_fraction, 4) == 0.6522
    assert timeline.bubble_ratio == 1.875
    assert 16 * formulas.activation_factor("interleaved-1f1b", p=16, m=64, v=2) == 23.5


@report("deepspeedai/DeepSpeed#808")
def unit_slots():
    assert ps.generate("1f1b", 4, 4).simulate(EQUAL).makespan == 2 * (4 + 4 - 1) == 14
    assert formulas.makespan("1f1b", p=4, m=4, forward=1, backward=1) == 14
