"""The command line. Each command is one file; heavy modules are imported by the command that needs them."""
