"""Fixtures for every test of the repository; they are defined where the rig is."""

import hypothesis

pytest_plugins = ["e2e.harness.fixtures"]

# How long an example takes says something about the machine, nothing about the code.
hypothesis.settings.register_profile("hajob", deadline=None)
hypothesis.settings.load_profile("hajob")
