"""What holds for all tests; free of torch, so that tests/egraph runs without it."""

from hypothesis import settings

# The same examples in every run, and none fails for being slow.
settings.register_profile("fxsat", derandomize=True, deadline=None)
settings.load_profile("fxsat")
