"""How model providers are reached: HTTP, and the offline provider. Encoded bodies go in, chunks come out."""
