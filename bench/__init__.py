"""The benchmark: `python -m bench --quick`. See `bench/README.md`.

Nothing here is part of the library or of its wheel, and no test measures time.
"""
