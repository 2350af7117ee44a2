"""The examples in the docstrings of the package's torch room run."""

import doctest
import importlib
import pkgutil

import pytest

import pipesched.torch

MODULES = ["pipesched.torch"] + [
    info.name for info in pkgutil.iter_modules(pipesched.torch.__path__, "pipesched.torch.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert doctest.testmod(module, optionflags=flags).failed == 0
