"""MindIO's name in the lab: a controller that only writes down what it is told."""
