"""DGL's three ways against masked attention in float64, value and gradient."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges.dgl_engines import in_dgl
from support import check_propagation, edge_graphs, interval_graphs


@pytest.mark.dgl
@given(st.one_of(edge_graphs(), interval_graphs()), st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_each_is_dense_attention_on_any_graph(graph, heads, width, large_scores):
    assert len(in_dgl()) == 3
    for attend in in_dgl().values():
        check_propagation(
            graph,
            lambda graph, q, k, v, way=attend: way(graph, q=q, k=k, v=v),
            heads,
            width,
            100.0 if large_scores else None,
        )
