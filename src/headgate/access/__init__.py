"""Who may do what: passwords, certificates, tokens, access lists, limits."""
