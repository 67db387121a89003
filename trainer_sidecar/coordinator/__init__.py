"""The coordinator: the sidecar that drives MindIO's controller and the agents of one job.

The core (`core.py`) is pure: it takes events with their times and leaves the messages to send. Its rooms, each knowing
only those before it:

- `conversation`: with MindIO's controller, as one table;
- `state`: what is known of the job, in values that one module each changes;
- `watch`: the questions about the training;
- `repair`: what carries out an order, on the ranks and with MindIO;
- `attempt`: a start of the whole job, and what each agent is told;
- `takeover`: of ranks that run, by this coordinator or by another controller.

`shell` has the sockets, tasks and clocks around it. docs/protocols/sidecar.md says which process connects to which.
"""
