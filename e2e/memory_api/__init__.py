"""A stand-in for the Kubernetes API server, in memory, for tests.

It answers requests as a real server does, as far as the operator and the actors around it ask: versions and conflicts,
watches, lists in pages, selectors, deletion with grace, finalizers and owners, preconditions, dry run, patches,
validation, quotas, disruption budgets. Time is a clock's, so that tests decide how fast it goes; nothing in it is
random. Faults come on command. A suite asks it and a real server the same (tests/integration/memory_api).

It is not: authentication, authorization, CEL (but for the rule about the fence), API discovery, server-side apply, a
scheduler, a kubelet. Tests say where pods run and when they end (e2e.memory_api.nodes). The product knows nothing of
it.
"""
