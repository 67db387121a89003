"""What Hajob knows about ranks, copies, faults and actions: pure values and arithmetic, no I/O, no clock."""
