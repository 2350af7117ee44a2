"""Tests that need torch.  `make test-torch` runs them; see the note in tests/conftest.py."""

import pytest
import torch
import torch.distributed as dist


@pytest.fixture(scope="session")
def alone():
    """This process as a pipeline group of one rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
