from pipesched import formulas as formulas
from pipesched.check import KINDS as KINDS
from pipesched.check import Fault as Fault
from pipesched.check import ScheduleError as ScheduleError
from pipesched.compare import Comparison as Comparison
from pipesched.compare import ComparisonRow as ComparisonRow
from pipesched.compare import compare as compare
from pipesched.compare import plot_bubble as plot_bubble
from pipesched.compare import plot_comparison as plot_comparison
from pipesched.costs import Costs as Costs
from pipesched.exercise import bubble_formula as bubble_formula
from pipesched.exercise import bubble_fraction as bubble_fraction
from pipesched.exercise import gpipe_forward_schedule as gpipe_forward_schedule
from pipesched.formats.costs_json import read_costs as read_costs
from pipesched.formats.costs_json import write_costs as write_costs
from pipesched.formats.torch_csv import read_torch_csv as read_torch_csv
from pipesched.formats.torch_trace import read_torch_trace as read_torch_trace
from pipesched.formulas import microbatches_for as microbatches_for
from pipesched.generate import SCHEDULES as SCHEDULES
from pipesched.generate import generate as generate
from pipesched.measured import MeasuredTimeline as MeasuredTimeline
from pipesched.measured import compare_timelines as compare_timelines
from pipesched.schedule import OP_DTYPE as OP_DTYPE
from pipesched.schedule import Schedule as Schedule
from pipesched.timeline import Timeline as Timeline
from pipesched.timeline import Timelines as Timelines

__all__: list[str]
