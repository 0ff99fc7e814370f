"""Settings that every suite shares."""

import os

from hypothesis import settings

# A slow machine is no failure, so no example has a deadline. In continuous integration the examples are the same on
# every run: a change that fails there fails here too.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
