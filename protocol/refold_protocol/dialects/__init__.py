"""Wire forms of model providers: Request to body bytes, stream bytes to chunks. Pure and versioned."""
