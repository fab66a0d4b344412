"""The configuration file: YAML in, frozen data out, every mistake named with its line."""
