import matplotlib
import pytest
import torch
from hypothesis import settings

matplotlib.use("agg")
settings.register_profile("edgewise", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("edgewise")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
