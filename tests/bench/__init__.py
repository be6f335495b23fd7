"""Benchmarks: ratios measured in one run. Nothing here is collected by the tests; `make bench` runs them."""
