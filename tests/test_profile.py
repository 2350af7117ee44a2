"""Profiles: what they hold, and the files they are read from and written to."""

import builtins
import json

import numpy as np
import pytest

import pipesched as ps

MODELS = (
    "alexnet",
    "gnmt",
    "gnmt_large",
    "resnet101",
    "resnet18",
    "resnet50",
    "squeezenet1_0",
    "vgg16",
)
NODE = (
    "{} -- {} -- forward_compute_time={}, backward_compute_time=2, "
    "activation_size=3, parameter_size=4"
)
LAYER = '{"name": "a", "forward": 1, "backward": 2}'
JSON = '{"format": "pipesched-profile", "version": 1, "layers": [%s]}'


@pytest.fixture
def make(tmp_path):
    """Write a file of the given lines and return its path."""

    def write(*lines, name="model.txt"):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("suffix", ["txt", "json"])
def test_published_profiles_survive_a_round_trip(model, suffix, data_dir, tmp_path):
    profile = ps.read_profile(data_dir / "pipedream_profiles" / model / "graph.txt")
    assert profile.name == model
    path = tmp_path / f"{model}.{suffix}"
    ps.write_profile(profile, path)
    assert ps.read_profile(path) == profile


def test_input_nodes_and_unused_elements_are_left_out(data_dir):
    folder = data_dir / "pipedream_profiles"
    alexnet = ps.read_profile(folder / "alexnet" / "graph.txt")
    assert len(alexnet) == 22
    assert alexnet.compute.sum() == pytest.approx(0.085321)  # 0.721 with the data loading
    gnmt = ps.read_profile(folder / "gnmt" / "graph.txt")
    assert not any(layer.name.startswith("Input") for layer in gnmt.layers)
    # 48 nodes, 3 of them inputs, 8 elements of outputs that nobody uses.
    assert len(gnmt) == 37


def test_order_fields_and_lists(make):
    profile = ps.read_profile(
        make(
            "node3 -- Add(a=1, b -> c) -- forward_compute_time=1, backward_compute_time=2.5, "
            "activation_size=[1; 2.5; 3], parameter_size=7 -- stage_id=4",
            "\tnode1 -- node3",
            "\tnode2 -- node3",
            "\tin -- node1",
            NODE.format("in", "Input0", 600),
            "",
            NODE.format("node1", "Conv2d(3, 64, kernel_size=(3, 3))", 0.001),
            "\tnode1 -- node2",
            NODE.format("node2", "ReLU", 12),
        )
    )
    assert [layer.name for layer in profile.layers] == [
        "Conv2d(3, 64, kernel_size=(3, 3))",
        "ReLU",
        "Add(a=1, b -> c)",
    ]
    assert profile.edges == ((0, 1), (0, 2), (1, 2))
    assert not profile.is_chain
    add = profile.layers[2]
    assert (add.forward, add.backward, add.activation, add.parameters) == (0.001, 0.0025, 6.5, 7)
    assert profile.layers[0].forward == 1e-6


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([NODE.format("a", "x", 1), "b -- x"], "line 2: a node is"),
        ([NODE.format("a", "x", "fast")], "line 1: forward_compute_time must be a number"),
        ([NODE.format("a", "x", "-1")], "line 1: forward_compute_time must be finite and not neg"),
        ([NODE.format("a", "x", "inf")], "line 1: forward_compute_time must be finite"),
        ([NODE.format("a", "x", "nan")], "line 1: forward_compute_time must be finite"),
        ([NODE.format("a", "x", "1e999")], "line 1: forward_compute_time must be finite"),
        ([NODE.format("a", "x", "[1; 2")], "line 1: forward_compute_time: the list"),
        ([NODE.format("a", "x", 1)] * 2, "line 2: the node 'a' stands twice"),
        ([NODE.format("a", "x", 1), "\ta -- b"], "line 2: the edge names 'b'"),
        ([NODE.format("a", "x", 1), "\ta"], "line 2: an edge is"),
        (
            [NODE.format("a", "x", 1), NODE.format("b", "x", 1), "\ta -- b", "\ta -- b"],
            "line 4: the edge a -- b stands twice",
        ),
        ([NODE.format("a", "x", 1) + ", color=3"], "line 1: unknown field 'color=3'"),
        ([NODE.format("a", "x", 1) + ", parameter_size=3"], "line 1: the field parameter_size"),
        ([NODE.format("a", "x", 1) + " -- speed=3"], "line 1: the fourth part"),
        (["a -- x -- forward_compute_time=1"], "line 1: node 'a' has no backward_compute_time"),
        ([""], "no node in the file"),
        ([NODE.format("a", "Input", 1)], "only Input"),
        (
            [NODE.format("a", "x", 1), NODE.format("b", "x", 1), "\ta -- b", "\tb -- a"],
            "line 4: the edge b -- a is part of a circle",
        ),
        (
            [NODE.format(i, "x", 1) for i in "abc"] + ["\tc -- b", "\tb -- c", "\ta -- b"],
            "line 5: the edge b -- c is part of a circle",
        ),
        ([NODE.format("a", "x", 1), "\ta -- a"], "line 2: the edge a -- a is part of a circle"),
        (
            [NODE.format(i, "x", 1) for i in "abc"] + ["\ta -- b", "\tb -- a", "\tb -- c"],
            "line 5: the edge b -- a is part of a circle",
        ),
        ([NODE.format("a", "x", "[1e308; 1e308]")], "line 1: forward_compute_time: the sum of"),
        ([NODE.format("a", "x", "1_000")], "line 1: forward_compute_time must be a number"),
        ([NODE.format("a", "x", "1e99999999999999999999")], "line 1: forward_compute_time must"),
        ([NODE.format("", "x", 1)], "line 1: a node needs a name"),
        ([NODE.format("a", "x", 1) + " -- stage_id=x"], "line 1: the fourth part"),
        (["{", '"format": 3', '"version": 1}'], "line 3: "),
        (['{"format": "other"}'], 'expected "format"'),
        (
            ['{"format": "pipesched-profile", "version": 1, "layers": [{"name": "a"}]}'],
            r"layers\[0\]: a layer needs the key 'forward'",
        ),
        (
            [JSON % '{"name": "a", "forward": 1, "backward": 2, "back": 2}'],
            "no key is named 'back'",
        ),
        ([JSON % "3"], r"layers\[0\]: a layer is an object, got int"),
        ([JSON % '{"name": 3, "forward": 1, "backward": 2}'], "name must be a str, got 3"),
        ([JSON % '{"name": "a", "forward": "1", "backward": 2}'], "forward must be a number"),
        ([JSON % '{"name": "a", "forward": NaN, "backward": 2}'], "forward must be finite"),
        ([JSON % f'{{"name": "a", "forward": 1{"0" * 400}, "backward": 2}}'], "must be finite"),
        ([JSON % '{"name": "a", "name": "b", "forward": 1, "backward": 2}'], "'name' stands twice"),
        ([(JSON % LAYER)[:-1] + ', "edges": 3}'], '"edges" must be a list, got int'),
        ([(JSON % f"{LAYER}, {LAYER}")[:-1] + ', "edges": [[0, 1.5]]}'], r"edges\[0\] must be"),
        (["{" + '"a": ' + "[" * 100_000], "nested too deeply"),
    ],
)
def test_a_fault_is_located(lines, text, make):
    with pytest.raises(ValueError, match=text):
        ps.read_profile(make(*lines))


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "model.txt"
    path.write_text(NODE.format("a", "x", 1), encoding="utf-16")
    with pytest.raises(ValueError, match=r"model\.txt: a profile is text in UTF-8"):
        ps.read_profile(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_marks(encoding, end, tmp_path):
    """A form feed or a Unicode line separator in a name ends no line."""
    lines = [NODE.format("a", "x\fy\u2028z", 1), NODE.format("b", "y", -0.0), "\ta -- b", ""]
    path = tmp_path / "model.txt"
    path.write_bytes(end.join(lines).encode(encoding))
    profile = ps.read_profile(path)
    assert [layer.name for layer in profile.layers] == ["x\fy\u2028z", "y"]
    assert profile.is_chain
    assert str(profile.layers[1].forward) == "0.0"
    path.write_bytes((JSON % LAYER).encode(encoding))
    assert len(ps.read_profile(path)) == 1


def test_a_profile_checks_itself():
    layer = ps.Layer("a", 1, 2, 3, 4)
    assert ps.Profile([layer, layer]).edges == ((0, 1),)
    with pytest.raises(ValueError, match="at least 1 layer"):
        ps.Profile([])
    with pytest.raises(TypeError, match=r"layers\[1\]"):
        ps.Profile([layer, 3])
    with pytest.raises(ValueError, match=r"edges\[0\] = \(1, 0\)"):
        ps.Profile([layer, layer], [(1, 0)])
    with pytest.raises(ValueError, match="stands twice"):
        ps.Profile([layer, layer], [(0, 1), (0, 1)])
    with pytest.raises(TypeError, match=r"edges\[0\] must be a pair"):
        ps.Profile([layer, layer], [0])
    with pytest.raises(ValueError, match="backward must be finite"):
        ps.Layer("a", 1, -2)
    with pytest.raises(TypeError, match="activation must be a number"):
        ps.Layer("a", 1, 2, None)
    with pytest.raises(TypeError, match="forward must be a number, got '1'"):
        ps.Layer("a", "1", 2)
    with pytest.raises(ValueError, match="forward must be finite"):
        ps.Layer("a", 10**400, 2)
    with pytest.raises(TypeError, match="name must be a str, got 7"):
        ps.Layer(7, 1, 2)
    with pytest.raises(TypeError, match="edges must be pairs of layers, got 3"):
        ps.Profile([layer, layer], 3)


def test_text_that_cannot_hold_a_name_says_so(tmp_path):
    for name in ("Input0", "__getitem__(0)", " a", "a\r", "a --", "-- a", "a\nb", "a -- b"):
        profile = ps.Profile([ps.Layer(name, 1, 2)])
        with pytest.raises(ValueError, match="rename the layer or write JSON"):
            ps.write_profile(profile, tmp_path / "x.txt")
    inner = ps.Profile([ps.Layer(n, 1, 2) for n in ("", "__getitem__(0)", "Input1")], name="x")
    ps.write_profile(inner, tmp_path / "x.txt")
    assert ps.read_profile(tmp_path / "x.txt") == inner
    ps.write_profile(profile, tmp_path / "x.json")
    assert ps.read_profile(tmp_path / "x.json") == profile
    with pytest.raises(ValueError, match="format must be"):
        ps.write_profile(profile, tmp_path / "x", format="yaml")
    data = json.loads((tmp_path / "x.json").read_text())
    assert data["layers"][0]["backward"] == 2.0
    assert "edges" not in data


def test_drawn_as_text():
    profile = ps.Profile(
        [ps.Layer("conv", 0.001, 0.003, 2e6, 1e6), ps.Layer("fc", 0.001, 0.001)], name="small"
    )
    assert profile.draw(width=8).splitlines() == [
        "small: 2 layers, a chain; 6 ms a mini-batch, 1 MB of weights",
        "        forward   backward     output    weights",
        "             ms         ms         MB         MB",
        "   0      1.000      3.000       2.00       1.00  ##======  conv",
        "   1      1.000      1.000       0.00       0.00  ##==      fc",
        "(bars: # forward, = backward)",
    ]
    assert str(profile).splitlines()[0] == profile.draw().splitlines()[0]


def test_plotted():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    profile = ps.Profile([ps.Layer("conv", 0.001, 0.003, 2e6, 1e6), ps.Layer("fc", 0.001, 0.001)])
    ax = profile.plot()
    bars = [patch.get_height() for patch in ax.patches]
    np.testing.assert_allclose(bars, [1, 1, 3, 1])
    _, other = plt.subplots()
    assert profile.plot(other) is other
    plt.close("all")


def test_without_matplotlib_the_error_names_the_command(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"pip install 'pipesched\[plot\]'"):
        ps.Profile([ps.Layer("a", 1, 2)]).plot()


def test_measured_quantities_are_kept_in_json(tmp_path):
    layers = [
        ps.Layer("a", 1.0, 3.0, 8, 4, backward_input=1.0, backward_weight=2.0, held=16),
        ps.Layer("b", 2.0, 4.0, 8, 4),
    ]
    path = tmp_path / "measured.json"
    ps.write_profile(ps.Profile(layers), path)
    assert ps.read_profile(path) == ps.Profile(layers, name="profile")
    assert "held" not in json.loads(path.read_text())["layers"][1]


def test_costs_of_stages():
    layers = [
        ps.Layer("a", 1.0, 3.0, 8, 4, backward_input=1.0, backward_weight=2.0, held=16),
        ps.Layer("b", 2.0, 4.0, 10, 4),
        ps.Layer("c", 3.0, 6.0, 12, 4),
    ]
    profile = ps.Profile(layers)
    costs = profile.costs(ps.partition_balanced(profile, 2).cuts, bandwidth=5.0)
    assert costs.forward.tolist() == [3.0, 3.0]
    assert costs.backward_input.tolist() == [3.0, 3.0]
    assert costs.backward_weight.tolist() == [4.0, 3.0]
    assert costs.transfer.tolist() == [2.0]
    assert costs.activation.tolist() == [26.0, 12.0]
    assert costs.static.tolist() == [16.0, 8.0]
    assert profile.costs([0, 3]).forward.tolist() == [6.0]
    whole = profile.costs([0, 2, 3], first_whole=True)
    assert whole.backward_input.tolist() == [0.0, 3.0]
    assert whole.backward_weight.tolist() == [7.0, 3.0]
    assert ps.generate("1f1b", 2, 4).simulate(costs).makespan > 0


def test_bad_cuts_and_parts_are_named():
    profile = ps.Profile([ps.Layer("a", 1, 2), ps.Layer("b", 1, 2)])
    for cuts in ([0], [0, 1], [1, 2], [0, 1, 1, 2], [0, 2, 1]):
        with pytest.raises(ValueError, match="cuts must rise from 0 to the number of layers, 2"):
            profile.costs(cuts)
    with pytest.raises(ValueError, match="bandwidth must be positive"):
        profile.costs([0, 2], bandwidth=0)
    with pytest.raises(ValueError, match="this profile is a graph"):
        ps.Profile([ps.Layer(n, 1, 2) for n in "abc"], [(0, 2), (1, 2)]).costs([0, 3])
    with pytest.raises(ValueError, match="must be given together"):
        ps.Layer("a", 1, 2, backward_input=1)
