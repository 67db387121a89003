"""The real TaskD's manager (HAJOB_TASKD) by itself: signals go in, MindIO's calls and messages to agents come out."""
