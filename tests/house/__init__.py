"""What of the code's structure can be counted, and limits that may only get better: `make house`."""
