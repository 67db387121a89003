"""Runs the conformance vectors (`e2e/mindio/vectors/*.yaml`) against any MindIO package.

A vector is data: which processes there are, who does what when, and what must follow. It never says which package it
runs on; the package is a directory, `e2e/mindio/package` unless `HAJOB_MINDIO` or `--package` names another.
"""
