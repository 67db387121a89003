"""Hajob: elastic, highly available training jobs on Ascend NPUs."""
