"""Kernels of our own for GPUs."""
