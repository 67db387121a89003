"""The entry file that start scripts name; which stand-in trains is a matter of the image."""

import os
import runpy

runpy.run_module(os.environ.get("TOY_TRAINER", "e2e.trainer.train"), run_name="__main__", alter_sys=True)
