"""Nothing that a caller passes in gets anything but an answer or a documented error.

Every public function, class and method is found by looking for it and called with arguments of
which some fit and some do not: wrong types and dtypes, huge and negative numbers, NaN, texts,
bytes, arrays of any shape. No other exception may come out of it, no warning, and no crash: the
sanitized build runs these tests too. A number is either small or so large that nobody can mean it,
since memory for anything between would be taken in earnest.
"""

import inspect
import pickle
import sys
import types
from dataclasses import is_dataclass
from decimal import Decimal
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from strategies import to_schedule
from twins import damaged, random_schedule, with_comms

import pipesched as ps
from pipesched import formulas

# ScheduleError is a ValueError; what opens a file may also say that it cannot.
DOCUMENTED = (TypeError, ValueError, OverflowError, MemoryError)
LOOKUPS = (*DOCUMENTED, IndexError, KeyError)

SMALL = st.integers(-2, 9)
HUGE = st.sampled_from((2**62, 2**63 - 1, 2**63, 2**64 - 1, 10**30, -(2**31), -(2**63), -(10**30)))
FLOATS = st.floats() | st.sampled_from((0.0, -0.0, 1e308, 5e-324, float("nan"), float("inf")))
NUMBERS = st.one_of(
    SMALL,
    HUGE,
    FLOATS,
    st.booleans(),
    st.fractions(),
    st.decimals(),
    st.complex_numbers(),
    SMALL.map(np.int8),
    st.sampled_from((np.float32("nan"), np.float32(0.5), np.float64("inf"))),
)
DTYPES = st.sampled_from(
    (
        "i1",
        "u1",
        "i4",
        "i8",
        "u8",
        "f2",
        "f4",
        "f8",
        ">f8",
        ">i4",
        "c16",
        "?",
        "O",
        "S3",
        "U3",
        "M8[s]",
    )
)


@st.composite
def arrays(draw):
    """Arrays of any dtype, shape, order and stride."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    values = draw(st.lists(st.integers(0, 9), min_size=1, max_size=8))
    array = np.resize(np.array(values), shape).astype(draw(DTYPES))
    if array.dtype.kind == "f" and array.size and draw(st.booleans()):
        array.flat[draw(st.integers(0, array.size - 1))] = draw(
            st.sampled_from((-1.0, 0.5, float("nan"), float("inf")))
        )
    if array.ndim and draw(st.booleans()):
        array = array[::-1]
    return array.T if draw(st.booleans()) else array


WORDS = st.one_of(
    st.from_regex(r"\A[0-9]{1,2}(F|B|I|W|BW|SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD)[0-9]{0,2}\Z"),
    st.sampled_from(
        (
            "",
            "0F0",
            "(0F0;0B1)OVERLAP_F_B",
            "(0F0;0F1;0F2)OVERLAP_F_B",
            "(;)OVERLAP_F_B",
            "99999999999999999999F0",
            "0F-1",
            "-1F0",
            "0f0",
            "²F3",
            "٣F٣",
            "0F0\0",
        )
    ),
    st.text(max_size=6),
)
ROWS = st.lists(
    st.one_of(
        st.lists(WORDS | st.none(), max_size=6),
        st.text("0123FBIW(;)OVERLAP_,. \n", max_size=30),
        st.binary(max_size=20),
    ),
    max_size=4,
)
JUNK = st.one_of(
    st.none(),
    NUMBERS,
    arrays(),
    WORDS,
    ROWS,
    st.binary(max_size=12),
    st.lists(NUMBERS, max_size=4),
    st.sampled_from((object(), {}, {1: 2}, set(), len, int, ..., [[]], [[[]]])),
    st.sampled_from((Fraction(1, 3), Decimal("NaN"), np.datetime64("2020-01-01"), np.bool_(True))),
)


@st.composite
def schedules(draw):
    """Schedules that can be made, legal or not."""
    seed = draw(st.integers(0, 2**32 - 1))
    rows, stages, microbatches = random_schedule(seed, max_stages=4, max_microbatches=4)
    if draw(st.booleans()):
        rows = with_comms(rows, stages, seed)
    if draw(st.booleans()):
        rows = damaged(rows, seed)
    try:
        return to_schedule(rows, stages, microbatches)
    except ps.ScheduleError:
        return ps.generate("1f1b", 2, 2)


@st.composite
def ops(draw):
    """Random bytes, or numbers in and out of range, as the ops of a schedule."""
    if draw(st.booleans()):
        return np.frombuffer(draw(st.binary(max_size=60)).ljust(60, b"\0"), ps.OP_DTYPE)
    record = st.tuples(SMALL, SMALL, st.integers(-1, 12), st.integers(-1, 2))
    return np.array(draw(st.lists(record, max_size=8)), dtype=ps.OP_DTYPE)


COSTS = st.sampled_from(
    (
        ps.Costs(),
        ps.Costs(forward=[1, 2]),
        ps.Costs(transfer=1e308, link="serial"),
        ps.Costs(forward=8e307),
        ps.Costs(microbatch_scale=[1.0, 0.0]),
        ps.Costs(forward=[[1.0], [2.0]]),
    )
)
# What would fit, by the name of the parameter; everything else gets junk alone.
FITTING = {
    **dict.fromkeys(("p", "m", "v", "rank", "ranks", "microbatches"), st.integers(1, 6)),
    "name": st.sampled_from((*ps.SCHEDULES, "1F1B")),
    "rows": ROWS,
    "ops": ops(),
    "offsets": st.lists(st.integers(-1, 6), min_size=1, max_size=4).map(sorted),
    "num_stages": st.integers(0, 4),
    "num_microbatches": st.integers(0, 4),
    "costs": COSTS,
    "schedule": schedules(),
    "basis": st.sampled_from(formulas.BASES),
}
OPTIONS = st.dictionaries(
    st.sampled_from(("v", "group", "rule", "order", "waves", "splits", "forward", "x")),
    SMALL | HUGE | st.sampled_from(("torch", "reversed")) | JUNK,
    max_size=2,
)


@pytest.fixture(scope="module", autouse=True)
def own_folder(tmp_path_factory):
    """Whatever is written goes into a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("bad_input")
        patch.chdir(folder)
        yield folder


def public_functions(*modules):
    """Name -> function, for every public function, class and class method.

    Records (frozen dataclasses) are left out: they hold what the library puts into them.
    """
    found = {}
    for module in modules:
        for name in module.__all__:
            value = getattr(module, name)
            if is_dataclass(value):
                continue
            if inspect.isclass(value) and not issubclass(value, BaseException):
                found[name] = value
                for key, member in vars(value).items():
                    if not key.startswith("_") and isinstance(member, classmethod):
                        found[f"{name}.{key}"] = getattr(value, key)
            elif callable(value) and not inspect.isclass(value):
                found[name] = value
    return found


def public_methods(*classes):
    """Name -> (class, name) for every public method and property, and the operators."""
    operators = ("__getitem__", "__eq__", "__array__")
    return {
        f"{kind.__name__}.{name}": (kind, name)
        for kind in classes
        for name in dir(kind)
        if (not name.startswith("_") or name in operators)
        and isinstance(inspect.getattr_static(kind, name), (types.FunctionType, property))
    }


@st.composite
def arguments(draw, function):
    """Positional and keyword arguments: most fit by name, some do not fit at all."""
    positional, keywords = [], {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind == parameter.VAR_KEYWORD:
            keywords.update(draw(OPTIONS))
        elif parameter.default is parameter.empty or draw(st.integers(0, 2)) == 0:
            fits = name in FITTING and draw(st.integers(0, 3)) > 0
            value = draw(FITTING[name] if fits else JUNK)
            if parameter.kind == parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                keywords[name] = value
    return positional, keywords


def outcome(function, *args, allowed=DOCUMENTED, **keywords):
    """What a function gives, or which of the documented errors it raises; the input stays."""
    arrays_given = [arg for arg in (*args, *keywords.values()) if isinstance(arg, np.ndarray)]
    before = [(arg.tobytes(), arg.dtype, arg.shape) for arg in arrays_given]
    try:
        result = function(*args, **keywords)
    except allowed as error:
        result = error
    except DeprecationWarning as warning:
        # An empty array as a flag: NumPy's ValueError since 2.2, and its warning before.
        if not str(warning).startswith("The truth value of an empty array is ambiguous"):
            raise
        result = ValueError(str(warning))
    finally:
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")
    assert [(arg.tobytes(), arg.dtype, arg.shape) for arg in arrays_given] == before
    return result


FUNCTIONS = public_functions(ps, formulas)


@pytest.mark.parametrize("name", FUNCTIONS)
@given(data=st.data())
def test_function(name, data):
    function = FUNCTIONS[name]
    opens_files = {"path", "paths"} & inspect.signature(function).parameters.keys()
    positional, keywords = data.draw(arguments(function))
    allowed = (*DOCUMENTED, OSError) if opens_files else DOCUMENTED
    outcome(function, *positional, allowed=allowed, **keywords)


@st.composite
def timelines(draw):
    return ps.generate("zb-v", 2, 3).simulate(ps.Costs(forward=draw(st.integers(0, 3))))


def content(instance):
    """What must not change; a timeline may keep what it found out on demand."""
    if isinstance(instance, ps.Timeline):
        return [getattr(instance, name).tolist() for name in ("start", "end", "busy", "cause")]
    return pickle.dumps(instance)


INSTANCES = {ps.Schedule: schedules(), ps.Costs: COSTS, ps.Timeline: timelines()}
METHODS = public_methods(*INSTANCES)


@pytest.mark.parametrize("name", METHODS)
@given(data=st.data())
def test_method(name, data):
    kind, key = METHODS[name]
    instance = data.draw(INSTANCES[kind])
    before = content(instance)
    member = outcome(getattr, instance, key, allowed=LOOKUPS)
    if callable(member):
        positional, keywords = data.draw(arguments(member))
        outcome(member, *positional, allowed=(*LOOKUPS, OSError), **keywords)
    assert content(instance) == before


READERS = [name for name in ps.__all__ if name.startswith("read_")]
CONTENTS = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=40).map(str.encode),
    st.lists(st.lists(WORDS, max_size=5).map(",".join), max_size=4).map(
        lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass")
    ),
    ROWS.map(lambda rows: repr(rows).encode("utf-8", "surrogatepass")),
)


@pytest.mark.parametrize("name", READERS)
@given(content=CONTENTS, mark=st.booleans())
def test_file(name, content, mark, own_folder):
    """A reader never trusts its file."""
    path = own_folder / f"{name}.input"
    path.write_bytes(b"\xef\xbb\xbf" * mark + content)
    outcome(getattr(ps, name), path)


@given(instance=schedules())
def test_simulate_refuses_what_check_refuses(instance):
    checked = outcome(instance.check)
    if isinstance(checked, ps.ScheduleError):
        assert outcome(instance.simulate).fault == checked.fault
    else:
        assert checked is instance
        assert instance.simulate().makespan > 0


@given(rows=ROWS)
def test_rows_that_are_taken_come_back(rows):
    """Whatever from_rows takes, it has understood: it is the same when written and read again."""
    schedule = outcome(ps.Schedule.from_rows, rows)
    if isinstance(schedule, ps.Schedule):
        assert ps.Schedule.from_rows(schedule.rows()) == schedule
        assert pickle.loads(pickle.dumps(schedule)) == schedule


@given(ops=ops(), offsets=FITTING["offsets"], stages=st.integers(1, 4), count=st.integers(1, 4))
def test_arrays_that_are_taken_come_back(ops, offsets, stages, count):
    """Random bytes as ops: refused, or held as they were given."""
    schedule = outcome(ps.Schedule.from_arrays, ops, offsets, stages, count)
    if isinstance(schedule, ps.Schedule):
        assert schedule.ops.tobytes() == ops.tobytes()
        assert schedule.offsets.tolist() == list(offsets)
        assert not np.shares_memory(schedule.ops, ops)
        outcome(schedule.check)
        outcome(schedule.lower)
