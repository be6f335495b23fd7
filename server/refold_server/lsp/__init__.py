"""The language-server side: open documents, commands on selections, edits. pygls is behind `adapter.py` and nowhere else."""
