"""The book's workshop: data, experiments, analysis, benchmarks, figures, the lab."""
