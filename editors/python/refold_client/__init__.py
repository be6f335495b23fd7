"""A client of the daemon for programs: it starts one, talks to it over pipes, and keeps no truth of its own."""
