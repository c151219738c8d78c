"""PyTorch's sparse kernels: edges listed by receiver and by sender."""
