"""The book: models, training, decoding, corpora, runs, studies, benchmarks, figures, live elements, lab."""
