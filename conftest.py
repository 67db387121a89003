"""Fixtures for every test of the repository; they are defined where the rig is."""

pytest_plugins = ["e2e.harness.fixtures"]
