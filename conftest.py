"""Fixtures for every test of the repository; they are defined where the rig is."""

import os
import signal
import threading

import hypothesis
import pytest

pytest.register_assert_rewrite("tests.rigs")  # what a rig asserts is explained like what a test asserts

pytest_plugins = ["e2e.harness.fixtures"]
if "HAJOB_KUBELETS" in os.environ:  # e2e/kubelets/configuration.py
    pytest_plugins.append("e2e.kubelets.fixtures")

# What tests expect of commands is English, in any locale; a process that a test starts has the same environment.
os.environ["HAJOB_LANG"] = "en"

# How long an example takes says something about the machine, nothing about the code.
hypothesis.settings.register_profile("hajob", deadline=None)
hypothesis.settings.load_profile("hajob")

# What is started in the background, by nohup or a build server, may be born deaf to Ctrl-C, and passes that on to every
# process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
