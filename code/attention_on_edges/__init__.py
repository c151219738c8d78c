"""The book's workshop: corpora, tasks, runs, studies, benchmarks, figures, live elements, lab, commands."""
