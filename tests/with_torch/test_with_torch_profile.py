"""`pipesched.torch.profile` and `split` on real layers."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

import pipesched as ps
import pipesched.torch


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(16, 5)

    def forward(self, x):
        return self.line(x.mean(1))


def layers():
    torch.manual_seed(0)
    heavy = nn.Sequential(*(nn.Linear(16, 16) for _ in range(20)))
    return [nn.Embedding(9, 16), nn.Linear(16, 16), heavy, nn.BatchNorm1d(4), nn.ReLU(), Head()]


def test_a_model_is_measured_and_left_as_it_was(tmp_path):
    model = layers()
    tokens = torch.randint(0, 9, (8, 4))
    model[1].weight.grad = torch.ones(16, 16)
    before = {k: v.clone() for k, v in nn.ModuleList(model).state_dict().items()}
    state = torch.get_rng_state()
    loss = nn.CrossEntropyLoss()
    target = torch.randint(0, 5, (8,))
    state = torch.get_rng_state()
    found = pipesched.torch.profile(
        model, tokens, loss_fn=loss, target=target, repeats=3, name="tiny"
    )

    assert torch.equal(torch.get_rng_state(), state)
    for key, value in nn.ModuleList(model).state_dict().items():
        assert torch.equal(value, before[key]), key
    assert torch.equal(model[1].weight.grad, torch.ones(16, 16))
    assert model[2][0].weight.grad is None

    assert [layer.name for layer in found.layers][:3] == ["0 Embedding", "1 Linear", "2 Sequential"]
    assert (found.forward > 0).all()
    assert (found.backward > 0).all()
    assert found.activation.tolist() == [8 * 4 * 16 * 4] * 5 + [8 * 5 * 4]
    assert found.parameters[0] == 9 * 16 * 4
    assert found.layers[0].backward_input == 0  # tokens have no gradient
    assert found.layers[0].backward_weight == found.layers[0].backward
    for layer in found.layers[1:]:
        assert layer.backward_input > 0
        assert layer.backward_weight > 0 or not layer.parameters
        assert layer.held > 0
    assert found.layers[2].compute > 5 * found.layers[1].compute

    path = tmp_path / "profile.json"
    ps.write_profile(found, path)
    again = ps.read_profile(path)
    assert again == found
    cuts = ps.partition_balanced(again, 3).cuts
    costs = again.costs(cuts, bandwidth=1e9)
    assert costs.forward.sum() == pytest.approx(found.forward.sum())
    assert ps.generate("zb-h1", 3, 6).simulate(costs).makespan > 0
    assert [len(s) for s in pipesched.torch.split(model, 3, costs=again)] == [
        b - a for a, b in itertools.pairwise(cuts)
    ]


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="at least one layer"):
        pipesched.torch.profile([], torch.zeros(1))
    with pytest.raises(TypeError, match="sample must be a torch"):
        pipesched.torch.profile([nn.ReLU()], 3)
    with pytest.raises(TypeError, match="repeats must be an int, got 'many'"):
        pipesched.torch.profile([nn.ReLU()], torch.zeros(1), repeats="many")
    with pytest.raises(ValueError, match="repeats at least 1, got 0 and 0"):
        pipesched.torch.profile([nn.ReLU()], torch.zeros(1), warmup=0, repeats=0)

    class Two(nn.Module):
        def forward(self, x):
            return x, x

    with pytest.raises(TypeError, match=r"layer 1 \(Two\) must give one tensor, got tuple"):
        pipesched.torch.profile([nn.ReLU(), Two()], torch.zeros(1))


def test_split_refuses_what_does_not_fit():
    model = layers()
    with pytest.raises(TypeError, match="give one of num_stages and sizes"):
        pipesched.torch.split(model)
    with pytest.raises(TypeError, match="give one of num_stages and sizes"):
        pipesched.torch.split(model, 2, sizes=[3, 3])
    with pytest.raises(ValueError, match="add up to the 6 layers, got \\[3, 2\\]"):
        pipesched.torch.split(model, sizes=[3, 2])
    with pytest.raises(ValueError, match="at least 1 each"):
        pipesched.torch.split(model, sizes=[6, 0])
    with pytest.raises(ValueError, match="each of the 6 layers, got 2"):
        pipesched.torch.split(model, 2, costs=[1, 2])
    with pytest.raises(TypeError, match="costs balance a number of stages"):
        pipesched.torch.split(model, sizes=[3, 3], costs=[1] * 6)
    with pytest.raises(ValueError, match="at most the 6 layers, got 7"):
        pipesched.torch.split(model, 7)
    with pytest.raises(TypeError, match="num_stages must be an int, got 'two'"):
        pipesched.torch.split(model, "two")
    with pytest.raises(TypeError, match=r"sizes must be a sequence of ints, got \[1.5, 4.5\]"):
        pipesched.torch.split(model, sizes=[1.5, 4.5])
    with pytest.raises(TypeError, match=r"layers must be an nn\.Sequential or .* got Head"):
        pipesched.torch.split(model[5], 1)
    with pytest.raises(TypeError, match=r"layer 6 must be a torch\.nn\.Module, got int"):
        pipesched.torch.split([*model, 3], 2)
    with pytest.raises(ValueError, match="at least one layer, got none"):
        pipesched.torch.split([], 1)
    assert len(pipesched.torch.split(model, np.int64(2))) == 2
    assert len(pipesched.torch.split(model, sizes=np.array([2, 4]))[1]) == 4
    stages = pipesched.torch.split(nn.Sequential(*model), 2)
    assert [len(stage) for stage in stages] == [3, 3]
    assert stages[0][1] is model[1]
