"""A stand-in for Volcano 1.9 with Huawei's Ascend plugin: as unkind as the two are, where it hurts a job of Hajob's.

It is made from what the real scheduler was seen to do; docs/internals/volcano-stand-in.md lists every row with its
test. Nothing of Volcano is in it, and Hajob knows nothing of it.
"""
