"""What the coordinator knows of its job: small values, each changed by the module that declares it and by no other.

`job.py` puts them together and says who leads each on. Nothing is decided here, and no time is read: it comes in.
"""
