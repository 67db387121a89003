"""The entry file of MindFormers, as start scripts name it."""

import runpy

runpy.run_module("e2e.trainer.mindformers", run_name="__main__", alter_sys=True)
