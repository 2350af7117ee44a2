"""What the tests of the families measure a schedule with: the slow twin, which is exact."""

import reference
from strategies import to_rows


def measure(schedule, forward=1, backward_input=1, backward_weight=1, **costs):
    """The twin's timeline of a schedule; by default F, I and W take one unit each and B two."""
    return reference.simulate(
        to_rows(schedule),
        schedule.num_stages,
        schedule.num_microbatches,
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        **costs,
    )


def peaks(schedule):
    """Chunks held at most, by rank."""
    return [reference.peak_chunks(row) for row in to_rows(schedule)]


def bubble_times(schedule, **costs):
    """(makespan - ideal, longest span of a rank - ideal), ideal being the busiest rank's work."""
    timeline = measure(schedule, **costs)
    ideal = max(timeline.busy)
    return timeline.makespan - ideal, timeline.span - ideal
