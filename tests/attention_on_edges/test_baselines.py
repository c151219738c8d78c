"""What we measure ourselves against: PyTorch's own layers with our weights give our tokens."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.decoding import greedy
from support import random_pairs, small_model
from workshop import torch_greedy, torch_twin

SOS, EOS = 0, 1


@given(st.integers(0, 50))
@settings(max_examples=10)
def test_greedy_decoding_is_that_of_pytorchs_layers(seed):
    torch.manual_seed(seed)
    model = small_model()
    model.generator.proj.bias.data[EOS] += 1.5
    sources, _ = random_pairs([(4, 1), (1, 1), (7, 1), (2, 1)], seed)
    ours = [list(h.ids) for h in greedy(model, sources, SOS, EOS, max_len=12)]
    assert ours == torch_greedy(torch_twin(model), sources, SOS, EOS, [12] * 4)
