"""When the history is summed up, what is summed up, how it is asked for, and what is cut out of results instead."""
