"""The language-server side: open documents, commands on selections, edits. pygls is in `lsp_backend.py` and nowhere else."""
