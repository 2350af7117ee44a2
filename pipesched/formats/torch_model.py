"""A model of torch's pipeline runtime: what it does with a schedule, on tags instead of tensors.

`lowered` is torch's way of putting transfers into a schedule and `execute` its interpreter of
actions (torch 2.13.0), both restated from what they do.  A tag says which forward or backward made
a value, so a value that arrives at the wrong op is seen, which torch itself would not notice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator
from typing import NamedTuple

from pipesched.check import KINDS

__all__ = ["Action", "Stall", "Trip", "execute", "lowered"]

FORWARD, FULL, INPUT, WEIGHT, SEND_F, RECV_F, SEND_B, RECV_B = range(8)
_UNSHARD = 8

#: What is wrong with an action: a code, and the text that goes after the action.
_Problem = tuple[str, str] | None


class Action(NamedTuple):
    """An op, or a transfer that the lowering put in (its position is that of the op it serves)."""

    stage: int
    microbatch: int
    kind: int
    position: int

    def __str__(self) -> str:
        number = "" if self.kind >= _UNSHARD else self.microbatch
        return f"{self.stage}{KINDS[self.kind]}{number}"


class Stall(NamedTuple):
    """An action that waits for something that never comes."""

    rank: int
    action: Action
    need: str


class Trip(NamedTuple):
    """An action at which a run fails or goes wrong."""

    code: str
    rank: int
    action: Action
    text: str


def _need(action: Action, last: int) -> tuple[bool, int, int] | None:
    """The forward or backward of the neighbour stage that an action takes its input from."""
    if action.kind == FORWARD and action.stage > 0:
        return True, action.stage - 1, action.microbatch
    if action.kind in (FULL, INPUT) and action.stage < last:
        return False, action.stage + 1, action.microbatch
    return None


def lowered(
    rows: list[list[tuple[Action, ...]]], home: dict[int, int], last: int
) -> list[list[Action]] | Stall:
    """Put the transfers into rows of compute actions (of one action, or the two of a pair).

    Rank by rank, again and again, the next action is placed if what it needs has been made; its
    result is sent at once, and the receive is put at the end of what the other rank has by then.
    """
    placed: list[list[Action]] = [[] for _ in rows]
    made: set[tuple[bool, int, int]] = set()
    at = [0] * len(rows)
    busy = set(range(len(rows)))
    while busy:
        progress = False
        for rank in sorted(busy):
            parts = rows[rank][at[rank]]
            if not all(need in made for part in parts if (need := _need(part, last)) is not None):
                continue
            progress = True
            placed[rank] += parts
            for part in parts:
                stage, microbatch, kind, position = part
                if kind == WEIGHT:
                    continue
                forward = kind == FORWARD
                made.add((forward, stage, microbatch))
                other = stage + (1 if forward else -1)
                if 0 <= other <= last and home[other] != rank:
                    send, receive = (SEND_F, RECV_F) if forward else (SEND_B, RECV_B)
                    placed[rank].append(Action(stage, microbatch, send, position))
                    placed[home[other]].append(Action(other, microbatch, receive, position))
            at[rank] += 1
            if at[rank] == len(rows[rank]):
                busy.discard(rank)
        if not progress:
            rank = min(busy)
            for part in rows[rank][at[rank]]:
                need = _need(part, last)
                if need is not None and need not in made:
                    forward, stage, microbatch = need
                    return Stall(rank, part, f"{stage}{'F' if forward else 'B'}{microbatch}")
    return placed


class _Channel:
    """The transfers from one rank to another: the k-th receive takes what the k-th send sent."""

    def __init__(self) -> None:
        self.sent: list[Action] = []
        self.posted: list[Action] = []


class _Rank:
    """What one rank of torch's runtime holds; `run` goes on until it ends, waits, or trips."""

    def __init__(self, rank: int, row: list[Action], machine: _Machine) -> None:
        self.rank, self.row, self.machine = rank, row, machine
        self.own = {stage for stage, home in machine.home.items() if home == rank}
        self.steps = self._steps()
        self.waits: Action | None = None
        self.inputs: set[tuple[int, int]] = set()
        self.gradients: set[tuple[int, int]] = set()
        self.outputs: set[tuple[int, int]] = set()
        self.ready_gradients: set[tuple[int, int]] = set()
        self.halves: set[tuple[int, int]] = set()
        self.receives: dict[tuple[int, int, int], tuple[_Channel, int] | None] = {}
        self.losses: list[int] = []

    def _steps(self) -> Iterator[Trip | None]:
        """Yield None where the rank waits, and a trip where it trips."""
        for action in self.row:
            self.waits = action
            problem = yield from self._do(action)
            if problem is not None:
                yield Trip(problem[0], self.rank, action, problem[1])
                return
        self.waits = None

    def _do(self, action: Action) -> Generator[None, None, _Problem]:
        if action.kind in (SEND_F, SEND_B):
            return self._send(action)
        if action.kind in (RECV_F, RECV_B):
            return self._receive(action)
        if action.kind == FORWARD:
            return (yield from self._forward(action))
        if action.kind in (FULL, INPUT):
            return (yield from self._backward(action))
        if action.kind == WEIGHT:
            if (action.stage, action.microbatch) not in self.halves:
                return "repeated", "has no I left to complete"
            self.halves.remove((action.stage, action.microbatch))
        return None

    def _send(self, action: Action) -> _Problem:
        stage, microbatch, kind, _ = action
        other = stage + (1 if kind == SEND_F else -1)
        if not 0 <= other <= self.machine.last:
            return None  # torch has nobody to send it to, and goes on
        values = self.outputs if kind == SEND_F else self.ready_gradients
        if (stage, microbatch) not in values:
            return "transfer", "comes when there is nothing to send: not made yet, or used up"
        if other in self.own:
            return "transfer", f"is a transfer of rank {self.rank} to itself"
        if kind == SEND_B:
            values.remove((stage, microbatch))
        self.machine.channel(self.rank, other).sent.append(action)
        return None

    def _receive(self, action: Action) -> _Problem:
        stage, microbatch, kind, _ = action
        if (kind, stage, microbatch) in self.receives:
            return "transfer", "receives a second time before the first was used"
        other = stage + (1 if kind == RECV_B else -1)
        if not 0 <= other <= self.machine.last:
            self.receives[kind, stage, microbatch] = None
            return None
        if other in self.own:
            return "transfer", f"is a transfer of rank {self.rank} to itself"
        channel = self.machine.channel_to(other, self.rank)
        self.receives[kind, stage, microbatch] = channel, len(channel.posted)
        channel.posted.append(action)
        return None

    def _arrival(self, action: Action, receive: int) -> Generator[None, None, _Problem]:
        """Wait for what was received for an action; the trip if there is none, or another's."""
        found = self.receives.pop((receive, action.stage, action.microbatch), None)
        if found is None:
            return "transfer", f"comes without {action._replace(kind=receive)} before it"
        channel, index = found
        while len(channel.sent) <= index:
            yield None
        sent = channel.sent[index]
        if sent.microbatch != action.microbatch or abs(sent.stage - action.stage) != 1:
            return (
                "transfer-order",
                f"would take what {sent} sent: torch matches the transfers from one rank to "
                "another in the order in which they stand",
            )
        return None

    def _forward(self, action: Action) -> Generator[None, None, _Problem]:
        stage, microbatch, _, _ = action
        key = stage, microbatch
        if stage > 0:
            if stage - 1 in self.own:
                if key not in self.inputs:
                    return "order", f"comes before {stage - 1}F{microbatch} on its rank"
            else:
                problem = yield from self._arrival(action, RECV_F)
                if problem is not None:
                    return problem
        self.outputs.add(key)
        if stage == self.machine.last:
            if microbatch != len(self.losses):
                return (
                    "loss-order",
                    f"comes where torch expects micro-batch {len(self.losses)}: it numbers the "
                    "losses of the last stage as they come (pipesched.torch.build keeps them "
                    "apart)",
                )
            self.losses.append(microbatch)
        elif stage + 1 in self.own:
            self.inputs.add((stage + 1, microbatch))
        return None

    def _backward(self, action: Action) -> Generator[None, None, _Problem]:
        stage, microbatch, kind, _ = action
        key = stage, microbatch
        if stage < self.machine.last and stage + 1 not in self.own:
            problem = yield from self._arrival(action, RECV_B)
            if problem is not None:
                return problem
        if key not in self.outputs:
            return "repeated", "has no forward left to go back through"
        if stage < self.machine.last and stage + 1 in self.own and key not in self.gradients:
            return "order", f"comes before the backward of stage {stage + 1} on its rank"
        self.outputs.remove(key)
        if kind == INPUT:
            self.halves.add(key)
        if stage > 0 and stage - 1 in self.own:
            self.gradients.add((stage - 1, microbatch))
        else:
            self.ready_gradients.add(key)
        return None

    def left_over(self) -> Trip | None:
        """A receive that nobody used: the next step would post it on top of it."""
        for kind, stage, microbatch in self.receives:
            action = Action(stage, microbatch, kind, -1)
            action = next((a for a in self.row if a[:3] == action[:3]), action)
            return Trip("transfer", self.rank, action, "receives what nothing on its rank uses")
        return None


class _Machine:
    def __init__(self, rows: list[list[Action]], home: dict[int, int], last: int) -> None:
        self.home, self.last = home, last
        self.channels: dict[tuple[int, int], _Channel] = defaultdict(_Channel)
        self.ranks = [_Rank(rank, row, self) for rank, row in enumerate(rows)]

    def channel(self, rank: int, stage: int) -> _Channel:
        return self.channels[rank, self.home[stage]]

    def channel_to(self, stage: int, rank: int) -> _Channel:
        return self.channels[self.home[stage], rank]


def execute(rows: list[list[Action]], home: dict[int, int], last: int) -> Trip | None:
    """Run a schedule with its transfers as torch would; where it trips, if it does."""
    machine = _Machine(rows, home, last)
    active = list(machine.ranks)
    while active:
        before = sum(len(channel.sent) for channel in machine.channels.values())
        waiting = []
        for rank in active:
            for trip in rank.steps:
                if trip is not None:
                    return trip
                waiting.append(rank)
                break
        after = sum(len(channel.sent) for channel in machine.channels.values())
        if waiting and after == before:
            rank = waiting[0]
            assert rank.waits is not None
            return Trip("stall", rank.rank, rank.waits, "waits for a transfer that never comes")
        active = waiting
    for rank in machine.ranks:
        trip = rank.left_over()
        if trip is not None:
            return trip
    for (source, _), channel in machine.channels.items():
        if len(channel.sent) > len(channel.posted):
            sent = channel.sent[len(channel.posted)]
            return Trip("transfer", source, sent, "sends what nobody receives")
    return None
